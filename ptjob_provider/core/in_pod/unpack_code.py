"""Unpack a folder's archive in a pod, and start the program if one is given.

One file that needs only the standard library, Python 3.7 or newer. It runs from the volume that has the archive beside
it, or from which only the archive is missing because it is on a claim, as an init container or, where there can be
none, in front of the training's program:

    python unpack_code.py DIGEST FOLDER [PROGRAM ARGUMENT…]
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import sys
import tarfile
import zlib
from pathlib import Path
from typing import IO, NoReturn

CONTAINER = "unpack-code"
"""Name of the init container."""

PROGRAM = "unpack_code.py"
ARCHIVE = "code.tar.gz.b64"
CLAIM = "/mnt/ptjob-code"
"""Where the folder of a claim is mounted that has archives too large for Secrets, as `DIGEST.tar.gz`."""

FAILED = "the folder could not be unpacked: "
"""First words of the last line of a failure."""

_NOT_FOUND = 127
_PIECE = 1024 * 1024


def main(arguments: list[str]) -> None:
    """Unpack the archive into the folder; with a program, become it there.

    Raises:
        SystemExit: it is not the job's archive, cannot be written, or there is no such program; carries the reason.
    """
    digest, folder, *command = arguments
    try:
        unpack(Path(__file__).with_name(ARCHIVE), digest, folder)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SystemExit(f"{FAILED}{error}") from None
    if command:
        _become(command, folder)


def unpack(archive: Path, digest: str, folder: str) -> None:
    """Extract the archive, of which the pieces are beside each other or all is on the claim; files are replaced.

    Raises:
        ValueError: it has other content than the digest's.
    """
    with _opened(archive, digest) as source, gzip.GzipFile(fileobj=source) as data:
        content = hashlib.sha256()
        for piece in iter(lambda: data.read(_PIECE), b""):
            content.update(piece)
        if content.hexdigest() != digest:
            raise ValueError("its archive has another version of the code than the job; submit the job again")
        data.seek(0)
        with tarfile.open(fileobj=data, mode="r|") as tar:
            tar.extraction_filter = _unchanged
            tar.extractall(folder)  # noqa: S202 - packed by `core.code.folder`, as the digest says


def _opened(archive: Path, digest: str) -> IO[bytes]:
    pieces = sorted(archive.parent.glob(f"{archive.name}*"))
    if pieces:
        return io.BytesIO(base64.b64decode(b"".join(each.read_bytes() for each in pieces)))
    return Path(CLAIM, f"{digest}.tar.gz").open("rb")


def _unchanged(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    return member


def _become(command: list[str], folder: str) -> NoReturn:
    os.chdir(folder)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the job's own program
    except OSError as error:
        sys.stderr.write(f'exec: "{command[0]}": {error.strerror}\n')
        raise SystemExit(_NOT_FOUND) from None


if __name__ == "__main__":
    main(sys.argv[1:])
