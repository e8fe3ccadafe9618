"""Implements `data`: lists and creates claims, and copies files to and from them as a tar stream."""

from __future__ import annotations

import posixpath
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from ptjob_provider.cli import tables
from ptjob_provider.cli.output import EXIT_USAGE, Refused, emit_rows, notice, run
from ptjob_provider.cli.printable import say
from ptjob_provider.core.identity import is_object_name
from ptjob_provider.core.in_pod import claim_files
from ptjob_provider.core.outputs.contract import SCHEME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import ClaimFiles, FileOptions

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OnClaim:
    """A path on a claim; the empty path is its root."""

    claim: str
    path: str

    @classmethod
    def read(cls, text: str) -> OnClaim | None:
        """Read `pvc://claim/path`, also without a path; None for a path on this machine.

        Raises:
            Refused: the address names no claim.
        """
        if not text.startswith(SCHEME):
            return None
        claim, _, path = text.removeprefix(SCHEME).partition("/")
        if not is_object_name(claim):
            raise Refused(f"{text}: allowed: pvc://CLAIM/PATH", EXIT_USAGE)
        return cls(claim=claim, path=path)


def list_claims(place: Place, *, output: str | None) -> None:
    """Print the namespace's claims."""
    rows = sorted(
        (claim_row(claim) for claim in run(place.site().claims(place.namespace))), key=lambda row: row["name"]
    )
    none = f"no claims in namespace {place.namespace} of {place}"
    tables.show_rows(rows, partial(tables.claims, rows, now=datetime.now(UTC)), output, none=none)


def claim_row(claim: Manifest) -> dict[str, Any]:
    """Return a claim's row of the list; description and owner are Arena's annotations."""
    meta, spec, status = claim["metadata"], claim.get("spec") or {}, claim.get("status") or {}
    notes = meta.get("annotations") or {}
    return {
        "name": meta["name"],
        "access_mode": ",".join(spec.get("accessModes") or ()),
        "size": (status.get("capacity") or {}).get("storage") or "",
        "status": status.get("phase") or "",
        "storage_class": spec.get("storageClassName") or "",
        "description": notes.get("description") or "",
        "owner": notes.get("owner") or "",
        "created_at": meta.get("creationTimestamp"),
    }


def create_claim(place: Place, name: str, *, size: str | None, mode: str | None, storage_class: str | None) -> None:
    """Create a claim."""
    made = place.site().create_claim(place.namespace, name, size=size, mode=mode, storage_class=storage_class)
    for sentence in run(made):
        notice(sentence)
    say(f"claim {place.namespace}/{name} is made; mount it: --data {name}:/path")


def list_files(place: Place, address: str, *, image: str | None, user: int | None, output: str | None) -> None:
    """Print the content of a folder of a claim."""
    there = OnClaim.read(address)
    if there is None:
        raise Refused(f"{address}: allowed: pvc://CLAIM/PATH", EXIT_USAGE)
    options = _options(place, image, user)
    found = run(_with_files(place, there.claim, options, lambda files: files.listed(there.path)))
    rows = [{**each, "modified": _instant(each["modified"])} for each in found]
    if output:
        emit_rows([row["name"] for row in rows], rows, output)
    else:
        tables.show(tables.files(rows))


def copy_files(place: Place, source: str, target: str, *, image: str | None, user: int | None) -> None:
    """Copy a file or a folder between this machine and a claim, with the target names of `cp -r`."""
    theirs, ours, options = OnClaim.read(source), OnClaim.read(target), _options(place, image, user)
    with tempfile.TemporaryFile() as archive:
        if theirs is not None and ours is None:
            here = Path(target).resolve()
            folder = here if here.is_dir() else here.parent
            name = posixpath.basename(theirs.path.rstrip("/")) or theirs.claim
            run(_with_files(place, theirs.claim, options, lambda files: files.pack(theirs.path, archive)))
            archive.seek(0)
            claim_files.unpack(archive, folder, folder, name if here.is_dir() else here.name)
        elif ours is not None and theirs is None:
            here = Path(source).resolve()
            _pack_here(here, archive)
            archive.seek(0)
            folder_there, name = _named(ours.path, here.name)
            run(_with_files(place, ours.claim, options, lambda files: files.unpack(archive, folder_there, name)))
        else:
            rule = "one of both has to be pvc://CLAIM/PATH, the other a path on this machine"
            raise Refused(f"SOURCE TARGET: {source} {target} is not allowed; {rule}", EXIT_USAGE)
    say(f"copied {source} to {target}", err=True)


def _pack_here(here: Path, archive: IO[bytes]) -> None:
    if not here.exists():
        raise Refused(f"SOURCE: {here} is not there", EXIT_USAGE)
    claim_files.pack(here, archive)


def _named(path: str, name: str) -> tuple[str, str]:
    """Return folder and name on the claim; a path that ends in `/`, or is empty, is the folder to copy into."""
    folder, last = posixpath.split(path)
    return (folder, last) if last else (path, name)


def _options(place: Place, image: str | None, user: int | None) -> FileOptions:
    """Return the options for file access; while its pod waits, the reason is printed."""
    return replace(place.file_options(image, user), tell=notice)


async def _with_files(place: Place, claim: str, options: FileOptions, do: Callable[[ClaimFiles], Awaitable[T]]) -> T:
    async with place.site().files(place.namespace, claim, options=options) as files:
        return await do(files)


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
