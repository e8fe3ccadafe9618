"""Unpack the archive with a job's code folder in a pod, then run a program if one is given.

This file needs only the standard library, Python 3.7 or newer. It is mounted together with the archive or, if the
archive is too large, without it; the archive is then a file `DIGEST.tar.gz` on a claim. It runs as an init container
or, where none can be added, in front of the training program:

    python unpack_code.py DIGEST|PATH/DIGEST.tar.gz FOLDER [PROGRAM ARGUMENT…]
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
FAILED = "the folder could not be unpacked: "
"""Prefix of the last line of a failed run."""

_NOT_FOUND = 127
_PIECE = 1024 * 1024


def main(arguments: list[str]) -> None:
    """Unpack the archive into the folder; if a program is given, run it there in place of this process.

    Raises:
        SystemExit: the archive is not the job's, a file cannot be written, or there is no such program; has the reason.
    """
    name, folder, *command = arguments
    path = Path(name)
    try:
        unpack(path if path.is_absolute() else Path(__file__).with_name(ARCHIVE), path.name.partition(".")[0], folder)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SystemExit(f"{FAILED}{error}") from None
    if command:
        _become(command, folder)


def unpack(archive: Path, digest: str, folder: str) -> None:
    """Extract the archive into the folder; existing files are replaced.

    Args:
        archive: path of a `.tar.gz`, or path with which the names of the pieces of one begin, which are in base64.
        digest: SHA-256 of the uncompressed archive.
        folder: path of the folder.

    Raises:
        ValueError: the archive's content has another digest.
    """
    with _opened(archive) as source, gzip.GzipFile(fileobj=source) as data:
        content = hashlib.sha256()
        for piece in iter(lambda: data.read(_PIECE), b""):
            content.update(piece)
        if content.hexdigest() != digest:
            raise ValueError("its archive has another version of the code than the job; submit the job again")
        data.seek(0)
        with tarfile.open(fileobj=data, mode="r|") as tar:
            tar.extraction_filter = _unchanged
            tar.extractall(folder)  # noqa: S202 - packed by `core.code.folder`, as the digest says


def _opened(archive: Path) -> IO[bytes]:
    if archive.suffix == ".gz":
        return archive.open("rb")
    pieces = sorted(archive.parent.glob(f"{archive.name}*"))
    return io.BytesIO(base64.b64decode(b"".join(each.read_bytes() for each in pieces)))


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
