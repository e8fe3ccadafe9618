"""Implements `data`: lists and creates claims, and copies files to and from them as a tar stream."""

from __future__ import annotations

import posixpath
import signal
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ptjob_provider.cli import tables
from ptjob_provider.cli.copying import counted
from ptjob_provider.cli.output import EXIT_TERMINATED, EXIT_USAGE, Failure, cancel_on, notice, run, say
from ptjob_provider.cli.parameters import pass_target, pod_options, table_output_option, target_options
from ptjob_provider.core.identity import is_object_name
from ptjob_provider.core.outputs.contract import SCHEME
from ptjob_provider.core.status import since_1970

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from ptjob_provider.cli.target import Target
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import ClaimFiles

T = TypeVar("T")

_pod_options = pod_options(
    image="Cluster: image of the pod that reads the claim; it needs python3.  "
    "[default: [ptjob] probe_image, else python:3.13-alpine]",
    user="Cluster: user of that pod; a hardened namespace requires one.  [default: the image's]",
)


@click.group()
def data() -> None:
    """List and create claims, and copy files to and from them."""


@data.command("list")
@table_output_option
@target_options
@pass_target
def list_(target: Target, output: str | None) -> None:
    """List the claims that jobs of the namespace can mount."""
    claims = run(target.inspector().claims(target.namespace))
    rows = sorted(map(claim_row, claims), key=lambda row: str(row["name"]))
    none = f"no claims in namespace {target.namespace} of {target}"
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


@data.command()
@click.argument("name")
@click.option("--size", metavar="SIZE", help="Cluster: capacity.  [default: 10Gi]")
@click.option(
    "--access-mode",
    type=click.Choice(["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"]),
    help="Cluster: access mode.  [default: ReadWriteMany]",
)
@click.option("--storage-class", metavar="NAME", help="Cluster: storage class.  [default: the cluster's]")
@target_options
@pass_target
def create(target: Target, name: str, *, size: str | None, access_mode: str | None, storage_class: str | None) -> None:
    """Create an empty claim."""
    inspector = target.inspector()
    run(inspector.create_claim(target.namespace, name, size=size, mode=access_mode, storage_class=storage_class))
    say(f"claim {target.namespace}/{name} is made; mount it: --data {name}:/path")


@data.command()
@click.argument("address", metavar="pvc://CLAIM/PATH")
@_pod_options
@table_output_option
@target_options
@pass_target
def ls(target: Target, address: str, *, image: str | None, user: int | None, output: str | None) -> None:
    """List a folder of a claim; on a cluster this starts a pod."""
    remote = claim_path(address)
    if remote is None:
        raise Failure(f"{address}: allowed: pvc://CLAIM/PATH", EXIT_USAGE)
    claim, path = remote
    files = run(
        _with_files(target, claim, lambda files: files.listed(path), image=image, user=user), cancelled=EXIT_TERMINATED
    )
    rows = [{**each, "modified": _instant(each["modified"])} for each in files]
    tables.show_rows(rows, partial(tables.files, rows), output)


@data.command()
@click.argument("source")
@click.argument("target_path", metavar="TARGET")
@_pod_options
@target_options
@pass_target
def cp(target: Target, source: str, target_path: str, *, image: str | None, user: int | None) -> None:
    """Copy a file or a folder to or from a claim; on a cluster this starts a pod.

    \b
    ptjob data cp digits.npz pvc://datasets/digits/digits.npz
    ptjob data cp pvc://models/digits.pt .
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.core.local.inspector import LocalFiles

    from_claim, to_claim = claim_path(source), claim_path(target_path)
    access = partial(_with_files, target, image=image, user=user)
    with tempfile.TemporaryFile() as archive:
        if from_claim and not to_claim:
            claim, path = from_claim
            local = Path(target_path).resolve()
            with counted(archive, "copying") as written:
                run(access(claim, lambda files: files.pack(path, written)), cancelled=EXIT_TERMINATED)
            archive.seek(0)
            if local.is_dir():
                local /= posixpath.basename(path.rstrip("/")) or claim
            with counted(archive, "writing") as read:
                run(_until_told(LocalFiles(local.parent).unpack(read, "", local.name)), cancelled=EXIT_TERMINATED)
        elif to_claim and not from_claim:
            claim, path = to_claim
            local = Path(source).resolve()
            if not local.exists():
                raise Failure(f"SOURCE: {local} is not there", EXIT_USAGE)
            with counted(archive, "reading") as written:
                run(_until_told(LocalFiles(local.parent).pack(local.name, written)), cancelled=EXIT_TERMINATED)
            archive.seek(0)
            # A path that ends in /, or is empty, names the folder to copy into.
            remote_folder, last = posixpath.split(path)
            with counted(archive, "copying") as read:
                run(
                    access(claim, lambda files: files.unpack(read, remote_folder, last or local.name)),
                    cancelled=EXIT_TERMINATED,
                )
        else:
            rule = "one of both has to be pvc://CLAIM/PATH, the other a path on this machine"
            raise Failure(f"SOURCE TARGET: {source} {target_path} is not allowed; {rule}", EXIT_USAGE)
    say(f"copied {source} to {target_path}", err=True)


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Do the work on this machine, until a signal tells to stop."""
    cancel_on(signal.SIGTERM, signal.SIGHUP)
    await work


def claim_path(text: str) -> tuple[str, str] | None:
    """Return claim and path of `pvc://claim/path`, with "" as the path of its root; None for a path on this machine.

    Raises:
        Failure: the address names no claim.
    """
    if not text.startswith(SCHEME):
        return None
    claim, _, path = text.removeprefix(SCHEME).partition("/")
    if not is_object_name(claim):
        rule = "allowed: pvc://CLAIM/PATH, where CLAIM has lower-case letters, digits, '-' and '.'"
        raise Failure(f"{text}: {claim!r} is not allowed; {rule}", EXIT_USAGE)
    return claim, path


async def _with_files(
    target: Target, claim: str, do: Callable[[ClaimFiles], Awaitable[T]], *, image: str | None, user: int | None
) -> T:
    """Call `do` with access to the claim's files, and return its result; print why the pod that reads them waits."""
    cancel_on(signal.SIGTERM, signal.SIGHUP)
    options = replace(target.file_options(image, user), tell=notice)
    async with target.inspector().files(target.namespace, claim, options=options) as files:
        return await do(files)


def _instant(seconds: float) -> str:
    instant = since_1970(seconds)
    return instant.isoformat(sep=" ", timespec="seconds") if instant else ""
