"""`tensorboard`: options for viewing events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import WholeNumber, jobs_or_addresses, kind_option, pass_place, place_options

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place


@click.command()
@click.argument("what", metavar="JOB|pvc://CLAIM/PATH", shell_complete=jobs_or_addresses)
@click.option("--port", type=WholeNumber(0, 65535), default=0, metavar="PORT", help="Of this machine.  [default: any]")
@click.option(
    "--image",
    metavar="IMAGE",
    help="Cluster: what shows it where none stands beside the job.  [default: [ptjob] tensorboard_image, else the "
    "job's own]",
)
@click.option("--user", type=WholeNumber(min=0), metavar="UID", help="Cluster: as whom.  [default: as the job]")
@kind_option
@place_options
@pass_place
def tensorboard(place: Place, what: str, *, port: int, image: str | None, user: int | None) -> None:
    """Show a job's curves in a browser of this machine.

    Prints its address, and ends by Ctrl-C. On a cluster through the API server: by the TensorBoard that stands
    beside the job, else, also when the job is gone, by a pod that is started for it and deleted at the end.

    \b
    ptjob tensorboard digits
    ptjob tensorboard pvc://models/logs --image registry.example.com/team/tensorboard:2
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import tensorboard as showing

    showing.show(place, what, port=port, image=image, user=user)
