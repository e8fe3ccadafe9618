"""Implements `tensorboard`: shows the events of a job or a folder until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.completion import job_names
from ptjob_provider.cli.data import claim_path
from ptjob_provider.cli.output import EXIT_USAGE, Failure, cancel_on, notice, run, say
from ptjob_provider.cli.parameters import of_jobs, pod_options
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import JobNotFound
from ptjob_provider.core.inspector import TensorBoardView
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from ptjob_provider.cli.target import Target
    from ptjob_provider.core.identity import Manifest

_TIMEOUT = 300.0


@click.command()
@click.argument("what", metavar="JOB|pvc://CLAIM/PATH", shell_complete=job_names)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Cluster: port on this machine.  [default: any free port]",
)
@pod_options(
    image="Cluster: image to use where the job has no TensorBoard.  [default: [ptjob] tensorboard_image, else the "
    "job's own]",
    user="Cluster: user of the pod.  [default: the job's]",
)
@of_jobs
def tensorboard(target: Target, what: str, *, port: int, image: str | None, user: int | None) -> None:
    """Show a job's curves in a browser on this machine.

    Prints the address and runs until Ctrl-C. It goes through the API server: to the job's own TensorBoard or, also when
    the job is gone, to a pod that is started for this and deleted at the end. Without a cluster, prints the command
    that shows the curves.

    \b
    ptjob tensorboard digits
    ptjob tensorboard pvc://models/logs --image registry.example.com/team/tensorboard:2
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    run(_show(target, what, port=port, image=image, user=user))


async def _show(target: Target, what: str, *, port: int, image: str | None, user: int | None) -> None:
    """Show the TensorBoard until Ctrl-C. Before the address is printed, Ctrl-C is an interrupt, afterwards the end."""
    import asyncio

    cancel_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    image = image or target.settings.installation().tensorboard_image
    remote, job = claim_path(what), None
    if remote is None:
        job = await _job(target, what)
        plan = _plan_of(job, image)
    else:
        claim, path = remote
        plan = TensorBoardPlan(claim=claim, path=path.strip("/"), image=image)
        if target.backend != "local" and not image:
            raise Failure("--image: an image with TensorBoard is needed, or [ptjob] tensorboard_image", EXIT_USAGE)
    view = TensorBoardView(
        namespace=target.namespace, plan=plan, job=job, user=user, port=port, timeout=_TIMEOUT, tell=notice
    )
    async with target.inspector().tensorboard(view) as address:
        say(address)
        if target.backend == "local":
            return
        notice(f"shows pvc://{plan.claim}/{plan.path}" if plan.claim else f"shows the TensorBoard of {what}")
        notice("Ctrl-C ends it")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def _job(target: Target, name: str) -> Manifest:
    try:
        return await target.find(target.open(), name)
    except JobNotFound as error:
        advice = f"what a job has written stays on its claim: ptjob tensorboard pvc://CLAIM/PATH ({error})"
        raise JobNotFound(advice, code=error.code, reason=error.reason) from error


def _plan_of(job: Manifest, image: str) -> TensorBoardPlan:
    """Return a plan to show a job's events, whether or not it has a TensorBoard; its folder is "" if unknown."""
    from ptjob_provider.core.run.submit import Submission

    plan, tfevents = TensorBoardPlan.of(job), Submission.of(job).outputs.tfevents
    if plan is None:
        plan = TensorBoardPlan(claim=tfevents.claim if tfevents else "", path=tfevents.path if tfevents else "")
    kind = kinds.kind_of(job)
    own = pod_template.find_container(kind.rank0_template(job), kind.CONTAINER).get("image") or ""
    return replace(plan, image=image or plan.image or str(own))
