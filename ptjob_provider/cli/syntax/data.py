"""`data list|create|ls|cp`: options for claims and the files on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import WholeNumber, addresses, output_option, pass_place, place_options

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place

_IMAGE = (
    "Cluster: image of the pod that reads the claim; it needs python3.  "
    "[default: [ptjob] probe_image, else python:3.13-alpine]"
)
_USER = "Cluster: user of that pod; a hardened namespace requires one.  [default: the image's]"


@click.group()
def data() -> None:
    """List and create claims, and copy files to and from them."""


@data.command("list")
@output_option
@place_options
@pass_place
def list_(place: Place, output: str | None) -> None:
    """List the claims that jobs of the namespace can mount."""
    from ptjob_provider.cli import data as claims

    claims.list_claims(place, output=output)


@data.command()
@click.argument("name")
@click.option("--size", metavar="SIZE", help="Capacity.  [default: 10Gi]")
@click.option(
    "--access-mode",
    type=click.Choice(["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"]),
    help="Access mode of the claim.  [default: ReadWriteMany]",
)
@click.option("--storage-class", metavar="NAME", help="[default: the cluster's]")
@place_options
@pass_place
def create(place: Place, name: str, *, size: str | None, access_mode: str | None, storage_class: str | None) -> None:
    """Create an empty claim."""
    from ptjob_provider.cli import data as claims

    claims.create_claim(place, name, size=size, mode=access_mode, storage_class=storage_class)


@data.command()
@click.argument("address", metavar="pvc://CLAIM/PATH", shell_complete=addresses)
@click.option("--image", metavar="IMAGE", help=_IMAGE)
@click.option("--user", type=WholeNumber(min=0), metavar="UID", help=_USER)
@output_option
@place_options
@pass_place
def ls(place: Place, address: str, *, image: str | None, user: int | None, output: str | None) -> None:
    """List a folder of a claim; on a cluster this starts a pod."""
    from ptjob_provider.cli import data as claims

    claims.list_files(place, address, image=image, user=user, output=output)


@data.command()
@click.argument("source", shell_complete=addresses)
@click.argument("target", shell_complete=addresses)
@click.option("--image", metavar="IMAGE", help=_IMAGE)
@click.option("--user", type=WholeNumber(min=0), metavar="UID", help=_USER)
@place_options
@pass_place
def cp(place: Place, source: str, target: str, *, image: str | None, user: int | None) -> None:
    """Copy a file or a folder to or from a claim; on a cluster this starts a pod.

    \b
    ptjob data cp digits.npz pvc://datasets/digits/digits.npz
    ptjob data cp pvc://models/digits.pt .
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import data as claims

    claims.copy_files(place, source, target, image=image, user=user)
