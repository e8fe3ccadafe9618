"""Run a function as a training job, from a script or a notebook, with `train`.

    from ptjob_provider import train

    result = train(fit, 0.1, workers=2, backend="local")
    print(result["return_value"])

`train` does what `ptjob run` does, with the same owner, settings and output. Requests run on an event loop in a
separate thread, because an event loop already runs in a notebook's thread.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import fields
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ptjob_provider.cli.following import Ending, Following, guarded
from ptjob_provider.cli.output import notice
from ptjob_provider.cli.progress import of_snapshot
from ptjob_provider.cli.target import BACKENDS, TargetOptions, find_target
from ptjob_provider.core.code.folder import with_packed_folder
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.code.program import check_no_command, job_command
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import InvalidSpec, PTJobError, one_of
from ptjob_provider.core.identity import stem_of
from ptjob_provider.core.local.config import WITHOUT_IMAGE
from ptjob_provider.core.run.cleanup import stop_and_wait
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.spec import JOB_FIELDS, CodeSource, TrainingJob
from ptjob_provider.core.spec.limits import LIMITS, given_limits
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.core.spec.parsers import boolean, seconds
from ptjob_provider.core.training_progress import line_pattern

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from ptjob_provider.cli.target import Target
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.training_progress import Progress

T = TypeVar("T")

_SWITCHES = {"leave_stuck", "keep_running_pods", "delete_on_interrupt", "no_progress"}


@overload
def train(function: Callable[..., Any], /, *args: Any, submit: Literal[True], **options: Any) -> JobHandle: ...


@overload
def train(
    function: Callable[..., Any], /, *args: Any, submit: Literal[False] = False, **options: Any
) -> dict[str, Any]: ...


def train(
    function: Callable[..., Any],
    /,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    modules: Sequence[str] = (),
    backend: str | None = None,
    cluster_context: str | None = None,
    config_file: str | None = None,
    exact_name: bool = False,
    submit: bool = False,
    **options: Any,
) -> dict[str, Any] | JobHandle:
    """Run the function on every rank of a training job, show rank 0's log, and return the job's result.

    The result has the fields of `PyTorchJobOperator`'s result; `return_value` is the function's return value on rank 0.
    The function's source is sent to the job, with the parts of its file that it uses. Ctrl-C stops following; the job
    continues.

    Args:
        function: defined by `def`, in a file or a notebook.
        *args: the function's arguments: JSON values and the types that its type hints make of them, such as
            dataclasses.
        kwargs: the function's keyword arguments.
        modules: pure Python packages and modules of this machine that the function imports; their sources are sent to
            the job. With `code="."`, the current folder is sent instead.
        backend: `local` runs processes of this machine, which need no image; `kubernetes` runs pods. None: the back-end
            that `ptjob` uses.
        cluster_context: the context of the kubeconfig; None: its current context.
        config_file: the path of the kubeconfig; None: the one that `kubectl` uses.
        exact_name: use `name` without the hash that distinguishes jobs.
        submit: only submit the job, and return a handle for it.
        **options: fields of `PyTorchJobOperator` for the job (`workers`, `image`, `model` …), its `on_finish_action`,
            `keep_running_pods`, `start_timeout`, `queue_timeout`, `crash_loop_limit`, `max_preemptions`,
            `no_progress_limit` and `progress`, and those of `ptjob run`: `timeout`, `leave_stuck`,
            `delete_on_interrupt`, `no_progress`. Durations are seconds or timedeltas. The default of `name` is the
            function's name.

    Raises:
        InvalidSpec: a value is invalid, or the function cannot run alone; the text names the variable.
        JobFailed, JobTimedOut, JobDeleted, OutputsNotVerified: the training failed; the text is the diagnosis.
    """
    ending = _ending(options)
    if submit and ending.limits.max_preemptions:
        rule = "leave it out with submit=True: the handle is of one attempt"
        raise InvalidSpec.of("max_preemptions", ending.limits.max_preemptions, rule)
    target = _target(backend, context=cluster_context, kubeconfig=config_file)
    job = _job(function, args, kwargs or {}, modules=modules, given=options, is_local=target.backend == "local")
    following = Following(target=target, ending=ending, exact_name=exact_name)
    if submit:
        return JobHandle(target, ending, _run(following.submit(job), following.interrupted))
    return _with_return_value(_run(following.submit_and_follow(job), following.interrupted))


class JobHandle:
    """Handle for a submitted job.

    Attributes:
        ref: the job's kind, namespace, name and uid.
    """

    def __init__(self, target: Target, ending: Ending, submission: Submission) -> None:
        self.ref: JobRef = submission.ref
        self._target = target
        self._ending = ending
        self._submission = submission

    def __repr__(self) -> str:
        return f"<{self.ref.kind} {self.ref}>"

    def status(self) -> dict[str, Any]:
        """Return the job's result so far, with its `phase` and why it is `waiting`, like `ptjob get -o json`."""
        ref = self.ref
        snapshot = look(self._target.open(), ref.namespace, ref.name, kind=ref.kind, inspect=False)
        return _run(snapshot).to_dict()

    def progress(self) -> Progress | None:
        """Return how far the training is, as the last lines of rank 0's log say.

        None before rank 0 has started, and where its log says nothing (the reference, "What of a log is read as
        progress"). Its `step`, `total`, `epoch`, `epochs` and `metrics` are as written, `rate` is in steps per second,
        `eta` in seconds until `step` reaches `total`, and `at` the time of the last line.

        Raises:
            JobNotFound: the job is gone.
            ClusterError: the log cannot be read, or does not arrive within five seconds.
        """
        return _run(self._progress())

    def logs(self, rank: int = 0) -> str:
        """Return the log of a rank, as far as it is written."""
        names = {of: name for name, of in self._submission.ranks.items()}
        if rank not in names:
            raise InvalidSpec.of("rank", rank, f"allowed: 0 to {len(names) - 1}")
        return _run(self._text_of(names[rank]))

    def wait(self) -> dict[str, Any]:
        """Show rank 0's log until the job ends, and return the result or raise the error, like `train`."""
        following = Following(target=self._target, ending=self._ending)
        return _with_return_value(_run(following.follow(self._submission, hands_off=False), following.interrupted))

    def delete(self) -> None:
        """Delete the job, and return when none of its pods runs any more; outputs on claims stay."""
        _run(stop_and_wait(self._target.open(), self.ref))

    async def _progress(self) -> Progress | None:
        ref, target = self.ref, self._target
        snapshot = await look(target.open(), ref.namespace, ref.name, kind=ref.kind, inspect=False)
        found = await of_snapshot(target.inspector(), snapshot, self._ending.progress)
        return found.progress if found else None

    async def _text_of(self, replica: str) -> str:
        async with aclosing(self._target.open().logs(self.ref, replica, follow=False)) as lines:
            return "".join([line.text + ("" if line.continues else "\n") async for line in lines])


def _target(backend: str | None, *, context: str | None, kubeconfig: str | None) -> Target:
    if backend is not None and backend not in BACKENDS:
        raise InvalidSpec.of("backend", backend, one_of(BACKENDS))
    return find_target(TargetOptions(backend=backend, kubeconfig=kubeconfig, context=context), os.environ)


def _ending(options: dict[str, Any]) -> Ending:
    """Return the settings for following a job, and remove them from the options, which are then fields of the job."""
    names = {each.name for each in fields(Ending)} - {"output", "limits"}
    given = {name: options.pop(name) for name in names & options.keys()}
    given["limits"] = Limits(**given_limits({name: options.pop(name, None) for name in LIMITS}))
    if given.get("timeout") is not None:
        given["timeout"] = timedelta(seconds=seconds("timeout", given["timeout"]))
    if given.get("progress") is not None:
        given["progress"] = line_pattern("progress", given["progress"])
    for name in _SWITCHES & given.keys():
        given[name] = boolean(name, given[name])
    given["on_finish_action"] = OnFinishAction.parse(given.get("on_finish_action") or OnFinishAction.KEEP_JOB)
    return Ending(**given)


def _job(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    modules: Sequence[str],
    given: Mapping[str, Any],
    is_local: bool,
) -> TrainingJob:
    check_no_command(given, ("command", "args"), title="train")
    source = from_function(function, modules=modules, has_folder=CodeSource.is_folder(given.get("code")))
    if source.notice:
        notice(source.notice)
    for name in given.keys() & signature(function).parameters.keys() - {*JOB_FIELDS}:
        rule = f"by position, or in kwargs={{'{name}': …}}"
        raise InvalidSpec.of(name, given[name], f"it is an argument of {source.name}; allowed: {rule}")
    command = job_command(source, function, args, kwargs, fields=given)
    defaults = {"name": stem_of(source.name), **(WITHOUT_IMAGE if is_local else {})}
    chosen = {name: value for name, value in given.items() if value is not None}
    job = TrainingJob.parse(**{**({} if "manifest" in chosen else defaults), **chosen, "command": command})
    return with_packed_folder(job, beside=Path.cwd())


def _with_return_value(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result with the key `return_value`, which a job's result lacks if its function returned None."""
    return {"return_value": None, **result}


async def _nothing() -> None:
    """Do nothing when a read is interrupted: there is nothing to clean up."""


def _run(work: Coroutine[Any, Any, T], on_stop: Callable[[], Awaitable[None]] = _nothing) -> T:
    """Run the coroutine in a new thread, and return its result; Ctrl-C cancels the coroutine and waits for its end."""
    started: Future[Callable[[], object]] = Future()

    async def main() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - `asyncio.run` made it
        started.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await guarded(work, on_stop)

    with ThreadPoolExecutor(1, "ptjob") as pool:
        done = pool.submit(asyncio.run, main())
        try:
            return done.result()
        except KeyboardInterrupt:
            with suppress(RuntimeError):  # the loop has just ended
                started.result()()
            raise
        except PTJobError as error:
            raise error.with_traceback(None) from None
