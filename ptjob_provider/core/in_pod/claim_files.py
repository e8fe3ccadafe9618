"""List, pack, unpack and verify the files on a claim; the same program for every back-end.

This file needs only the standard library, because a cluster runs it with the Python of any image, 3.7 or newer. Files
are copied as tar archives on a stream; extraction cannot leave the claim, and a copy is complete or not there.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
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
    resolved = Path(os.path.realpath(str(place)))  # `resolve` raises an error for links in a circle
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

    Symbolic links stay links.

    Raises:
        SystemExit: the path does not exist; a link leads out of the folder; something is neither file, folder nor link.
    """

    def checked(member: tarfile.TarInfo) -> tarfile.TarInfo:
        archive.inodes.clear()  # type: ignore[attr-defined]  # a file's second name is a file, not a hard link
        if member.issym():
            _check_link(place.parent / member.name, member, place)
        elif not (member.isfile() or member.isdir()):
            raise SystemExit(f"{member.name} is neither a file nor a folder; nothing was copied")
        return member

    _check_there(place)
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.add(str(place), arcname=place.name, filter=checked)


def _check_link(path: Path, member: tarfile.TarInfo, whole: Path) -> None:
    place = Path(os.path.realpath(str(path)))
    if Path(member.linkname).is_absolute() or (place != whole and whole not in place.parents):
        told = f"{member.name} is a symbolic link to {member.linkname}, which leads out of the folder"
        raise SystemExit(f"{told}; nothing was copied: put what it leads to in its place (cp -rL)")


def unpack(stream: IO[bytes], root: Path, folder: Path, name: str) -> None:
    """Extract an archive into the folder, which is created; the archive's first entry is renamed to `name`.

    The entries of an existing folder of that name are replaced, its others stay. Nothing is replaced before the archive
    is complete.

    Raises:
        SystemExit: an entry leaves the root, a link the copy; an entry is neither a file, a folder nor a link, or a
            folder is in the place of a file.
        tarfile.ReadError: the archive breaks off.
    """
    unfinished = folder / f".{uuid.uuid4().hex}.unfinished"  # two processes may copy the same file at once
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        try:
            unfinished.mkdir(parents=True)
            base = f"{folder.relative_to(root.resolve())}/{name}"
            _extract(archive, unfinished / "copy", root, base)
            _replace(unfinished / "copy", below(root, base))
        except (OSError, SystemExit):
            for _ in archive:  # the sender on a web socket sees no failure before everything is read
                pass
            raise
        finally:
            shutil.rmtree(str(unfinished), ignore_errors=True)  # no link is followed


def _extract(archive: tarfile.TarFile, copy: Path, root: Path, base: str) -> None:
    """Extract the archive, links last: no entry is written through one."""
    links = {}
    for member in archive:
        _, slash, rest = member.name.partition("/")
        below(root, f"{base}{slash}{rest}")
        _check_free(root / f"{base}{slash}{rest}", member, root)
        place = below(copy, rest)
        place.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            place.mkdir(exist_ok=True)
        elif member.isfile():
            with place.open("xb") as file:
                shutil.copyfileobj(archive.extractfile(member) or io.BytesIO(), file, _PIECE)
        elif member.issym():
            links[place] = member
        else:
            raise SystemExit(f"{member.name} is neither a file nor a folder; nothing was copied")
    if archive.fileobj.tell() < archive.offset + tarfile.BLOCKSIZE:  # without its last block
        raise tarfile.ReadError("the archive breaks off")
    for place, member in links.items():
        place.symlink_to(member.linkname)
    for place, member in links.items():  # one may lead out through another
        _check_link(place, member, copy)


def _check_free(there: Path, member: tarfile.TarInfo, root: Path) -> None:
    is_folder = there.is_dir() and (member.isdir() or not there.is_symlink())
    if os.path.lexists(str(there)) and is_folder != member.isdir():
        raise SystemExit(f"{there.relative_to(root)} is there, and only one of both is a folder; nothing was copied")


def _replace(source: Path, target: Path) -> None:
    if source.is_dir() and not source.is_symlink() and target.is_dir():
        for each in source.iterdir():
            _replace(each, target / each.name)
    else:
        source.replace(target)


def _check_there(place: Path) -> None:
    if not place.exists():
        raise SystemExit(f"there is no {place.name}")


def _entry(path: Path) -> dict[str, Any]:
    facts, is_folder = path.lstat(), path.is_dir()
    name = path.name + "/" * is_folder
    return {"name": name, "bytes": None if is_folder else facts.st_size, "modified": facts.st_mtime}


if __name__ == "__main__":
    main(sys.argv[1:])
