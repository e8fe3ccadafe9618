"""List, pack, unpack and verify the files on a claim; the same program for every back-end.

This file needs only the standard library, because a cluster runs it with the Python of any image, 3.7 or newer. Files
are copied as tar archives on a stream; extraction cannot leave the claim.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import tarfile
import uuid
from pathlib import Path
from typing import IO, Any

_PIECE = 1024 * 1024


def main(arguments: list[str]) -> None:
    """List, verify, pack or unpack files, with standard input and output; arguments: action, claim root, path and name.

    Raises:
        SystemExit: the action failed; has the reason.
    """
    verb, root, path = arguments[0], Path(arguments[1]), arguments[2]
    place = below(root, path)
    if verb in {"list", "digest"}:
        sys.stdout.write(json.dumps((listed if verb == "list" else digest)(place)))
    elif verb == "pack":
        pack(place, sys.stdout.buffer)
    else:
        unpack(sys.stdin.buffer, root, place, arguments[3])


def below(root: Path, path: str) -> Path:
    """Return the path in the file system for a path on the claim.

    Raises:
        SystemExit: the path leaves the claim, by `..` or through a link.
    """
    place, whole = root / path.lstrip("/"), root.resolve()
    resolved = place.resolve()
    if resolved != whole and whole not in resolved.parents:
        raise SystemExit(f"{path} leads out of the claim")
    return resolved


def listed(place: Path) -> list[dict[str, Any]]:
    """Return name, size and modification time of a folder's entries, or of a file.

    Raises:
        SystemExit: the path does not exist.
    """
    _check_there(place)
    return [_entry(each) for each in sorted(place.iterdir())] if place.is_dir() else [_entry(place)]


def digest(place: Path) -> str:
    """Return the SHA-256 of the content of a file that gzip has compressed.

    Raises:
        OSError, EOFError, zlib.error: the file does not exist, or is damaged.
    """
    content = hashlib.sha256()
    with gzip.open(str(place)) as file:
        for piece in iter(lambda: file.read(_PIECE), b""):
            content.update(piece)
    return content.hexdigest()


def pack(place: Path, stream: IO[bytes]) -> None:
    """Write a file or folder to the stream, as a tar archive whose first entry has the name of the file or folder.

    Raises:
        SystemExit: the path does not exist.
    """
    _check_there(place)
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.add(str(place), arcname=place.name)


def unpack(stream: IO[bytes], root: Path, folder: Path, name: str) -> None:
    """Extract an archive into the folder, which is created; the archive's first entry is renamed to `name`.

    Raises:
        SystemExit: an entry leaves the root, or is neither a file nor a folder.
    """
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for member in archive:
                _, slash, rest = member.name.partition("/")
                target = below(root, f"{folder.relative_to(root.resolve())}/{name}{slash}{rest}")
                _extract(archive, member, target)
        except (OSError, SystemExit):
            for _ in archive:  # the sender on a web socket sees no failure before everything is read
                pass
            raise


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
    elif member.isfile():
        _write(archive.extractfile(member), target)
    else:
        raise SystemExit(f"{member.name} is neither a file nor a folder; it was not copied")


def _check_there(place: Path) -> None:
    if not place.exists():
        raise SystemExit(f"there is no {place.name}")


def _write(source: IO[bytes] | None, target: Path) -> None:
    """Write a file atomically; a link at the target path is replaced, not followed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{uuid.uuid4().hex}.unfinished")  # two processes may copy the same file at once
    with unfinished.open("xb") as file:
        try:
            while source is not None and (piece := source.read(_PIECE)):
                file.write(piece)
        except BaseException:
            unfinished.unlink()
            raise
    unfinished.replace(target)


def _entry(path: Path) -> dict[str, Any]:
    facts, is_folder = path.lstat(), path.is_dir()
    name = path.name + "/" * is_folder
    return {"name": name, "bytes": None if is_folder else facts.st_size, "modified": facts.st_mtime}


if __name__ == "__main__":
    main(sys.argv[1:])
