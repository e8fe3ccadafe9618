"""Implements `tensorboard`: shows the events of a job or a folder until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from ptjob_provider.cli.data import OnClaim
from ptjob_provider.cli.output import EXIT_INTERRUPTED, EXIT_USAGE, Refused, notice, run
from ptjob_provider.cli.printable import say
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import JobNotFound
from ptjob_provider.core.inspector import TensorBoardView
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.identity import Manifest

_TIMEOUT = 300.0


def show(place: Place, what: str, *, port: int, image: str | None, user: int | None) -> None:
    """Show the TensorBoard until Ctrl-C, which is the normal end; before it is shown, Ctrl-C is an interrupt."""
    try:
        run(_show(place, what, port=port, image=image, user=user))
    except asyncio.CancelledError:
        raise SystemExit(EXIT_INTERRUPTED) from None


async def _show(place: Place, what: str, *, port: int, image: str | None, user: int | None) -> None:
    _end_when_told()
    there = OnClaim.read(what)
    if there is None:
        job = await _job(place, what)
        plan = _plan_of(job, image or place.installation().tensorboard_image)
    else:
        job = None
        chosen = image or place.installation().tensorboard_image
        plan = TensorBoardPlan(claim=there.claim, path=there.path.strip("/"), image=chosen)
        if place.backend != "local" and not chosen:
            raise Refused("--image: an image with TensorBoard is needed, or [ptjob] tensorboard_image", EXIT_USAGE)
    view = TensorBoardView(
        namespace=place.namespace, plan=plan, job=job, user=user, port=port, timeout=_TIMEOUT, tell=notice
    )
    async with place.site().tensorboard(view) as address:
        say(address)
        notice(f"shows pvc://{plan.claim}/{plan.path}" if plan.claim else f"shows the TensorBoard of {what}")
        notice("Ctrl-C ends it")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def _job(place: Place, name: str) -> Manifest:
    try:
        return await place.find(place.open(), name)
    except JobNotFound as error:
        advice = f"what a job has written stays on its claim: ptjob tensorboard pvc://CLAIM/PATH ({error})"
        raise JobNotFound(advice, code=error.code, reason=error.reason) from error


def _plan_of(job: Manifest, image: str) -> TensorBoardPlan:
    """Return the folder with a job's events, whether or not it has a TensorBoard; "" if unknown."""
    plan, tfevents = TensorBoardPlan.of(job), Submission.of(job).outputs.tfevents
    if plan is None:
        plan = TensorBoardPlan(claim=tfevents.claim if tfevents else "", path=tfevents.path if tfevents else "")
    kind = kinds.kind_of(job)
    own = pod_template.find_container(kind.rank0_template(job), kind.CONTAINER).get("image") or ""
    return plan.run_by(image or plan.image or str(own))


def _end_when_told() -> None:
    """Cancel the task on a termination signal, whatever it waits for; what it has started is deleted then.

    Only the first signal counts: a closed terminal sends two, and the deletion has its own timeouts.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None  # noqa: S101 - `asyncio.run` made it

    told = asyncio.Event()

    def end() -> None:
        if not told.is_set():
            told.set()
            task.cancel()

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # only the main thread may do this
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(each, end)
