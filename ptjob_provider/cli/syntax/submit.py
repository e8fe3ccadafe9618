"""`submit`, `run`, `render`: options for a new job. Its flags are derived from the job's fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ptjob_provider.cli import arena
from ptjob_provider.cli.fields import Flag, flags
from ptjob_provider.cli.flag_errors import in_flags
from ptjob_provider.cli.help_text import COMMON, described, heading_of
from ptjob_provider.cli.parameters import WholeNumber, addresses, mounts, pass_place, place_options, span
from ptjob_provider.cli.printable import say
from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ptjob_provider.cli.place import Place

_ARENA = "Arena's further flags"
_ALL = "ptjob_provider.help_all"
_WORDS = "ptjob's words"
_COMPLETED = {"volumes": mounts, **dict.fromkeys(("model", "tfevents", "checkpoints"), addresses)}
"""Completion of fields whose values already exist."""


class FieldOption(click.Option):
    """An option under a heading.

    Attributes:
        section: the heading.
        brief: its text in the short help; "": only in the long help.
    """

    def __init__(self, *args: Any, section: str = "", brief: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section
        self.brief = brief

    def brief_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return a line of the short help: the option's shortest names, its value and its description."""
        short = [name for name in self.opts if not name.startswith("--")]
        long = min((name for name in self.opts if name.startswith("--") and name.islower()), key=len)
        metavar = "" if self.is_flag else f" {self.make_metavar(ctx)}"
        return f"{', '.join([*short, long])}{metavar}", self.brief


class JobCommand(click.Command):
    """A command with the fields of a job; the words after the flags are the training's program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags up to the first other word; Arena's type of training may precede them."""
        try:
            words = arena.without_type(args)
        except InvalidSpec as error:
            raise click.UsageError(str(error), ctx=ctx) from None
        ctx.meta[_WORDS] = list(words)
        return super().parse_args(ctx, words)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error about a field names the flag that set it."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            text = in_flags(error.message, ctx.params, ctx.meta[_WORDS])
            if text == error.message:
                raise
            from ptjob_provider.cli.output import Refused

            raise Refused(text, error.exit_code) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, the command's own last; the short help has the common ones."""
        sections: dict[str, list[tuple[str, str]]] = {}
        own: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            if isinstance(param, FieldOption) and not ctx.meta.get(_ALL):
                if param.brief:
                    sections.setdefault(param.section, []).append(param.brief_record(ctx))
            elif isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                (sections.setdefault(param.section, []) if isinstance(param, FieldOption) else own).append(record)
        for heading, records in {**sections, "Options": own}.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _help_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        say(ctx.get_help())
        ctx.exit()


def _job_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that describe a job."""
    options: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
        click.option("-f", "--filename", metavar="FILE", help="A job's manifest, or a map of fields; -: stdin."),
        place_options,
        click.option(
            "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_help_all, help="Show every flag."
        ),
        *(_option(flag) for flag in flags()),
        _arena("--device", "devices", multiple=True, metavar="NAME=N", help="Another device: its resource and number."),
        _arena("--rdma", is_flag=True, help="One rdma/hca per pod, and memory that may be locked for it."),
        _arena(
            "--data-dir",
            "--dataDir",
            "data_dirs",
            multiple=True,
            metavar="HOST[:PATH]",
            help="A directory of the node, here or there in the container.",
        ),
        _arena("--sync-mode", "--syncMode", metavar="git|rsync", help="How the code of --sync-source is fetched."),
        _arena(
            "--sync-source", "--syncSource", metavar="ADDRESS", help="A repository, or HOST::MODULE/PATH; see --code."
        ),
        _arena(
            "--sync-image",
            "--syncImage",
            metavar="IMAGE",
            help="Image that fetches the code, instead of the installation's.",
        ),
        _arena("--hostIPC", "host_ipc", is_flag=True, help="Use the node's shared memory and semaphores."),
        _arena("--hostPID", "host_pid", is_flag=True, help="See the node's processes."),
        _arena("--shell", metavar="SHELL", help="Give the training's command to this shell as one line."),
        click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[pytorch] [PROGRAM [ARGUMENT]...]"),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _option(flag: Flag) -> Callable[[Callable[..., None]], Callable[..., None]]:
    how: dict[str, Any] = {"section": flag.section or heading_of(flag), "help": described(flag), "cls": FieldOption}
    how["brief"] = COMMON.get(flag.path[0], "") if len(flag.path) == 1 else ""
    how["shell_complete"] = _COMPLETED.get(flag.path[-1]) or _one_of(flag.words)
    if flag.shape == "switch":
        names = (*flag.names[:-1], f"{flag.names[-1]}/--no-{flag.names[-1].removeprefix('--')}")
        return click.option(*names, flag.parameter, default=None, **how)
    metavar = {"pairs": "KEY=VALUE", "list": "ITEM"}.get(flag.shape, "VALUE")
    if flag.words:
        metavar = f"[{'|'.join(flag.words)}]"
    return click.option(*flag.names, flag.parameter, multiple=flag.shape != "text", metavar=metavar, **how)


def _one_of(words: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], list[str]] | None:
    """Return the completion for one of the words; None if any text is allowed."""
    if not words:
        return None
    return lambda _context, _param, incomplete: [word for word in words if word.startswith(incomplete)]


def _arena(*names: str, **how: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(*names, section=_ARENA, cls=FieldOption, **how)


_SETTINGS = {"allow_interspersed_args": False}


@click.command(cls=JobCommand, context_settings=_SETTINGS)
@_job_flags
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "name"]), help="Print the job's reference.")
@pass_place
def submit(place: Place, /, *, output: str | None, filename: str | None, words: tuple[str, ...], **given: Any) -> None:
    """Submit a job and return.

    \b
    ptjob submit --name digits --image digits --workers 2 --gpus 1 --data models:/models -- python train.py --epochs 12
    ptjob submit -f job.yaml --workers 4
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import running

    running.submit(place, running.described_job(given, filename, words), output=output)


@click.command(cls=JobCommand, context_settings=_SETTINGS)
@_job_flags
@click.option("--timeout", callback=span, metavar="SPAN", help="Stop the job, and fail, if it takes longer.")
@click.option(
    "--start-timeout",
    callback=span,
    metavar="SPAN",
    help="Maximum time for images, volumes and init containers.  [default: 20m]",
)
@click.option("--queue-timeout", callback=span, metavar="SPAN", help="Maximum time in a queue.  [default: no limit]")
@click.option(
    "--crash-loop-limit", type=WholeNumber(min=0), metavar="N", help="Maximum restarts in a row.  [default: 5]"
)
@click.option(
    "--on-finish-action",
    type=click.Choice(["keep_job", "delete_job", "delete_succeeded_job"]),
    default="keep_job",
    show_default=True,
    help="Keep or delete the job object at the end.",
)
@click.option("--keep-running-pods", is_flag=True, help="Do not stop replicas that still run when the job has ended.")
@click.option("--delete-on-interrupt", is_flag=True, help="Delete the job on Ctrl-C.  [default: the job continues]")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "name"]),
    help="Print the result, or the job's name; the log goes to stderr.",
)
@pass_place
def run(
    place: Place,
    /,
    *,
    output: str | None,
    filename: str | None,
    words: tuple[str, ...],
    timeout: timedelta | None,
    start_timeout: timedelta | None,
    queue_timeout: timedelta | None,
    crash_loop_limit: int | None,
    on_finish_action: str,
    keep_running_pods: bool,
    delete_on_interrupt: bool,
    **given: Any,
) -> None:
    """Submit a job and follow it to its end.

    Rank 0's log is shown while it runs, and the exit code says how it ended. 0: it succeeded, with its outputs in
    place. 1: it failed. 75: it failed, or the result is unknown, for a temporary reason. Ctrl-C stops following (130),
    and the job continues; `ptjob follow NAME` resumes. A job that does not start in time, or fails again and again, is
    deleted, and only what is printed here is left of it.

    \b
    ptjob run --name digits --image digits --model pvc://models/digits.pt -- python train.py --epochs 12
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import running

    ending = running.Ending(
        timeout=timeout,
        start_timeout=start_timeout,
        queue_timeout=queue_timeout,
        crash_loop_limit=crash_loop_limit,
        on_finish_action=on_finish_action,
        keep_running_pods=keep_running_pods,
        delete_on_interrupt=delete_on_interrupt,
        output=output,
    )
    running.run_job(place, running.described_job(given, filename, words), ending)


@click.command(cls=JobCommand, context_settings=_SETTINGS)
@_job_flags
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "name"]), default="yaml", show_default=True)
@pass_place
def render(place: Place, /, *, output: str, filename: str | None, words: tuple[str, ...], **given: Any) -> None:
    """Print the manifest that `submit` would send.

    Nothing is started and no cluster is asked: whether it would take the manifest, `kubectl diff` tells. Without
    --kind it is a PyTorchJob, also where `submit` would make a TrainJob because the cluster serves no other.

    \b
    ptjob render -f job.yaml --workers 4 | kubectl diff -f -
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import running

    running.render(place, running.described_job(given, filename, words), output=output)
