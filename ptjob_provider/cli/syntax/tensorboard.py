"""`tensorboard`: options for viewing events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import WholeNumber, jobs_or_addresses, kind_option, pass_place, place_options

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place


@click.command()
@click.argument("what", metavar="JOB|pvc://CLAIM/PATH", shell_complete=jobs_or_addresses)
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=0,
    metavar="PORT",
    help="Port on this machine.  [default: any free port]",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="Cluster: image to use where the job has no TensorBoard.  [default: [ptjob] tensorboard_image, else the "
    "job's own]",
)
@click.option("--user", type=WholeNumber(min=0), metavar="UID", help="Cluster: user of the pod.  [default: the job's]")
@kind_option
@place_options
@pass_place
def tensorboard(place: Place, what: str, *, port: int, image: str | None, user: int | None) -> None:
    """Show a job's curves in a browser on this machine.

    Prints the address and runs until Ctrl-C. On a cluster it goes through the API server: to the job's own TensorBoard
    or, also when the job is gone, to a pod that is started for this and deleted at the end.

    \b
    ptjob tensorboard digits
    ptjob tensorboard pvc://models/logs --image registry.example.com/team/tensorboard:2
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import tensorboard as showing

    showing.show(place, what, port=port, image=image, user=user)
