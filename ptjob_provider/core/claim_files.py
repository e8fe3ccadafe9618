"""The files on a claim: listed by, and packed and unpacked with, the same program wherever the claim is.

It is one file of the standard library, because inside a cluster it is run by the Python of somebody's image, 3.7 or
newer. A copy is a tar archive on a stream; what is unpacked stays below the folder that it is unpacked to.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tarfile
from pathlib import Path
from typing import IO, Any

_PIECE = 1024 * 1024


def main(arguments: list[str]) -> None:
    """Do what the arguments say, on standard input and output: list, pack or unpack; the claim's root, a path, a name.

    Raises:
        SystemExit: it cannot be done; with why.
    """
    verb, root, path = arguments[0], Path(arguments[1]), arguments[2]
    place = below(root, path)
    if verb == "list":
        sys.stdout.write(json.dumps(listed(place)))
    elif verb == "pack":
        pack(place, sys.stdout.buffer)
    else:
        unpack(sys.stdin.buffer, root, place, arguments[3])


def below(root: Path, path: str) -> Path:
    """Return the place of a path of the claim.

    Raises:
        SystemExit: it leads out of the claim, by its words or by a link.
    """
    place, whole = root / path.lstrip("/"), root.resolve()
    found = place.resolve()
    if found != whole and whole not in found.parents:
        raise SystemExit(f"{path} leads out of the claim")
    return found


def listed(place: Path) -> list[dict[str, Any]]:
    """Return what is in a folder, or the file itself.

    Raises:
        SystemExit: there is nothing of that name.
    """
    _check_there(place)
    return [_entry(each) for each in sorted(place.iterdir())] if place.is_dir() else [_entry(place)]


def pack(place: Path, stream: IO[bytes]) -> None:
    """Write a file or a folder as an archive; its first entry is called like it.

    Raises:
        SystemExit: there is nothing of that name.
    """
    _check_there(place)
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.add(str(place), arcname=place.name)


def unpack(stream: IO[bytes], root: Path, folder: Path, name: str) -> None:
    """Read an archive; what its first entry is called is written as `name` in the folder, which is made.

    Raises:
        SystemExit: an entry leads out of the root, or is neither a file nor a folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            _, slash, rest = member.name.partition("/")
            target = below(root, f"{folder.relative_to(root.resolve())}/{name}{slash}{rest}")
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
    """Write a file so that nobody reads half of it; a link in the way is replaced and not followed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.unfinished")
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    with unfinished.open("xb") as file:
        while source is not None and (piece := source.read(_PIECE)):
            file.write(piece)
    unfinished.replace(target)


def _entry(path: Path) -> dict[str, Any]:
    facts, is_folder = path.lstat(), path.is_dir()
    name = path.name + "/" * is_folder
    return {"name": name, "bytes": None if is_folder else facts.st_size, "modified": facts.st_mtime}


if __name__ == "__main__":
    main(sys.argv[1:])
