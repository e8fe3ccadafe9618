"""Implements `submit`, `run`, `render` and `follow`.

A new job is described by flags (derived from the job's fields), by a file, and by the words after the flags.
"""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ptjob_provider.cli import arena
from ptjob_provider.cli.fields import Flag, flags, in_flags, job_fields, joined, over_file
from ptjob_provider.cli.help_text import COMMON, described, heading_of
from ptjob_provider.cli.output import Failure, emit, failure_of, notice, say
from ptjob_provider.cli.parameters import (
    delete_on_interrupt_option,
    limit,
    of_one_job,
    output_option,
    pass_target,
    progress_options,
    target_options,
)
from ptjob_provider.core import kinds
from ptjob_provider.core.code.folder import with_packed_folder
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.manifest import dump_manifest, load_yaml
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.cli.target import Target

_ARENA = "Arena's further flags"
_ALL = "ptjob_provider.help_all"
_WORDS = "ptjob's words"


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
        """Parse the flags up to the first word that is no flag; Arena's type of training may precede them."""
        words = arena.without_type(args)
        ctx.meta[_WORDS] = list(words)
        return super().parse_args(ctx, words)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error about a field names the flag that set it."""
        try:
            return super().invoke(ctx)
        except (Failure, InvalidSpec) as error:
            refused = error.__cause__ if isinstance(error, Failure) else error
            if not isinstance(refused, InvalidSpec):
                raise
            raise Failure(in_flags(refused, ctx.params, ctx.meta[_WORDS]), failure_of(refused).exit_code) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, the command's own last; the short help has only the common flags."""
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


def _one_file(context: click.Context, param: click.Parameter, names: tuple[str, ...]) -> str | None:
    """Return the only file; several are refused, because people who know kubectl expect all of them to be read."""
    if len(names) > 1:
        raise click.BadParameter(f"{len(names)} files; give one manifest or map of fields", ctx=context, param=param)
    return next(iter(names), None)


def _job_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that describe a job."""
    options: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
        click.option(
            "-f",
            "--filename",
            multiple=True,
            callback=_one_file,
            metavar="FILE",
            help="A manifest, or a map of fields; -: stdin.",
        ),
        target_options,
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
        _arena("--sync-mode", "--syncMode", type=click.Choice(["git", "rsync"]), help="How --sync-source is fetched."),
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
    if flag.shape == "switch":
        names = (*flag.names[:-1], f"{flag.names[-1]}/--no-{flag.names[-1].removeprefix('--')}")
        return click.option(*names, flag.parameter, default=None, **how)
    metavar = {"pairs": "KEY=VALUE", "list": "ITEM"}.get(flag.shape, "VALUE")
    if flag.words:
        metavar = f"[{'|'.join(flag.words)}]"
        how["type"] = click.Choice(flag.words, case_sensitive=flag.path != ("kind",))
    return click.option(*flag.names, flag.parameter, multiple=flag.shape != "text", metavar=metavar, **how)


def _arena(*names: str, **how: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(*names, section=_ARENA, cls=FieldOption, **how)


def _job_command(command: Callable[..., None]) -> click.Command:
    """Return the command with the flags that describe a job; the target is its first argument."""
    settings = {"allow_interspersed_args": False}
    return click.command(cls=JobCommand, context_settings=settings)(_job_flags(pass_target(command)))


@_job_command
@output_option("Print the kind, namespace, name and uid of the job, or only its name.")
def submit(target: Target, /, *, output: str | None, **given: Any) -> None:
    """Submit a job and return.

    \b
    ptjob submit --name digits --image digits --workers 2 --gpus 1 --data models:/models -- python train.py --epochs 12
    ptjob submit -f job.yaml --workers 4
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli.following import Ending, Following

    following = Following(target=target, ending=Ending())
    job = described_job(target, given, runs_here=target.backend == "local")
    submission = following.until_end(following.submit(job))
    ref = submission.ref
    name = target.words_for(ref.namespace, ref.name)
    if output == "name":
        say(ref.name)
    elif output:
        emit(ref.to_dict(), output)
    else:
        say(f"{ref} was submitted: {ref.kind}, uid {ref.uid}")
        notice(f"follow it: ptjob follow {name}; its log: ptjob logs {name} -f; stop it: ptjob delete {name}")
    if submission.tensorboard_url:
        notice(f"{ref}: its TensorBoard runs until the job is deleted")


@_job_command
@click.option("--timeout", callback=limit, metavar="SPAN", help="Stop the job, and fail, if it takes longer.")
@click.option(
    "--start-timeout",
    callback=limit,
    metavar="SPAN",
    help="Time for images and volumes.  [default: 20m]",
)
@click.option("--queue-timeout", callback=limit, metavar="SPAN", help="Maximum time in a queue.  [default: no limit]")
@click.option("--crash-loop-limit", type=click.IntRange(min=0), metavar="N", help="Restarts in a row.  [default: 5]")
@click.option(
    "--max-preemptions",
    type=click.IntRange(min=0, max=100),
    metavar="N",
    help="New attempts after evictions.  [default: 3 with --checkpoints]",
)
@click.option(
    "--no-progress-limit",
    type=click.IntRange(min=0, max=3),
    metavar="N",
    help="Attempts without a new step.  [default: 2]",
)
@click.option(
    "--on-finish-action",
    type=click.Choice(["keep_job", "delete_job", "delete_succeeded_job"]),
    default="keep_job",
    show_default=True,
    help="Keep or delete the job object at the end.",
)
@click.option("--keep-running-pods", is_flag=True, help="Do not stop what still runs at the job's end.")
@delete_on_interrupt_option
@progress_options("Show no progress below the log.")
@output_option("Print result or name; the log goes to stderr.")
def run(target: Target, /, **given: Any) -> None:
    """Submit a job and follow it to its end.

    Rank 0's log is shown while it runs, and the exit code says how it ended. 0: it succeeded, with its outputs in
    place. 1: it failed. 75: it failed, or the result is unknown, for a temporary reason. Ctrl-C stops following (130),
    and the job continues; `ptjob follow NAME` resumes. A job that does not start in time, or fails again and again, is
    deleted, and only what is printed here is left of it.

    \b
    ptjob run --name digits --image digits --model pvc://models/digits.pt -- python train.py --epochs 12
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli.following import Ending, Following
    from ptjob_provider.core.diagnosis import Limits
    from ptjob_provider.core.spec.limits import LIMITS, given_limits

    limits = Limits(**given_limits({name: given.pop(name) for name in LIMITS}))
    options = {each.name: given.pop(each.name) for each in fields(Ending) if each.name in given}
    ending = Ending(limits=limits, **options)
    following = Following(target=target, ending=ending)
    job = described_job(target, given, runs_here=target.backend == "local")
    following.until_end(following.submit_and_follow(job))


@click.command()
@click.option(
    "--adopt",
    is_flag=True,
    help="Treat a job that something else created as your own: store its result on it, stop what it leaves running.",
)
@click.option("--timeout", callback=limit, metavar="SPAN", help="Stop the job, and fail, if it takes longer.")
@delete_on_interrupt_option
@progress_options("Show no progress below the log.")
@output_option("Print the result, or the name, at the end.")
@of_one_job
def follow(target: Target, name: str, *, adopt: bool, **options: Any) -> None:
    """Follow a job to its end, as `run` does.

    Rank 0's log is shown, and the exit code says how it ended. A job that does not start within 20 minutes, or fails
    again and again, counts as failed, but is left as it is: only --timeout and --delete-on-interrupt delete, and a job
    that something else created only with --adopt.
    """
    from ptjob_provider.cli.following import Ending, Following

    following = Following(target=target, ending=Ending(leave_stuck=True, **options))
    following.until_end(following.find_and_follow(name, adopt=adopt))


@_job_command
@output_option("Print the manifest in this format, or only the job's name.", default="yaml", show_default=True)
def render(target: Target, /, *, output: str, **given: Any) -> None:
    """Print the manifest that `submit` would send.

    Starts nothing and makes no request: `kubectl diff` tells whether a cluster would accept the manifest. Without
    --kind, [ptjob] kind and $PTJOB_KIND it is a PyTorchJob, also where `submit` would create a TrainJob because the
    cluster serves no other kind.

    \b
    ptjob render -f job.yaml --workers 4 | kubectl diff -f -
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli.following import has_literal_name, owner_of_call

    job = described_job(target, given)
    installation = target.settings.installation()
    rendered = kinds.requested_kind(job, preferred=installation.kind).render(
        job if job.named_namespace else job.in_namespace(target.namespace),
        owner=owner_of_call("rendered"),
        attempt=1,
        exact_name=has_literal_name(job),
        installation=installation,
    )
    for change in rendered.changes:
        notice(change)
    if rendered.secret is not None:
        name = rendered.secret["metadata"]["name"]
        what = "the folder's archive is" if job.code and job.code.folder else "credentials are"
        notice(f"{what} not shown: `submit` creates a Secret for that, whose name begins with {name}-")
    if output == "name":
        say(rendered.manifest["metadata"]["name"])
    elif output == "json":
        emit(rendered.manifest, output)
    else:
        say(dump_manifest(rendered.manifest), nl=False)


def described_job(target: Target, given: dict[str, Any], *, runs_here: bool = False) -> TrainingJob:
    """Return the job described by flags, a file and the words after the flags; `-n` overrides a file of fields.

    A command that `runs_here`, on this machine, needs no image.

    Raises:
        InvalidSpec: they are invalid, or contradict each other: a manifest of another namespace, as for kubectl.
    """
    described = joined(arena.arena_fields(given), job_fields(given))
    command = arena.program(given["words"], given["shell"])
    if command is not None:
        if "command" in described:
            rule = "leave it out: the program comes after the flags"
            raise InvalidSpec.of("--command", described["command"], rule)
        described["command"] = command
    whole = arena.with_image(over_file(_in_file(given["filename"]), described))
    if runs_here and whole.get("command") and not whole.keys() & {"image", "manifest", "pod_template"}:
        from ptjob_provider.core.local.config import WITHOUT_IMAGE

        whole = {**WITHOUT_IMAGE, **whole}
    job = TrainingJob.parse(**whole)
    if asked := target.requested_namespace:
        if job.namespace is None and job.named_namespace not in (None, asked):
            rule = f"allowed: the namespace of {given['filename']}, -n {job.named_namespace}, or no -n"
            raise InvalidSpec.of("--namespace", asked, rule)
        job = replace(job, namespace=asked)
    return with_packed_folder(job, beside=Path.cwd())


_A_FILE = "the path of a manifest or of a map of fields, or - for stdin"


def _in_file(filename: str | None) -> dict[str, Any]:
    """Return the fields in a file: a manifest is the value of the field `manifest`, any other map contains the fields.

    A manifest is recognized by `apiVersion`; not by `kind`, because a field has that name.

    Raises:
        InvalidSpec: the file cannot be read, or has neither.
    """
    if filename is None:
        return {}
    try:
        text = sys.stdin.read() if filename == "-" else Path(filename).read_text()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the file's name
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InvalidSpec.of("--filename", filename, f"allowed: {_A_FILE} ({why})") from None
    if not text.strip():
        raise InvalidSpec.at("--filename", f"{filename} is empty; give {_A_FILE}")
    content = load_yaml(text, field=f"--filename {filename}")
    if not isinstance(content, dict):
        raise InvalidSpec.at("--filename", f"{filename} is not a map; give {_A_FILE}")
    if "apiVersion" in content:
        return {"manifest": content}
    if of_manifest := content.keys() & {"metadata", "spec"}:
        parts = " and ".join(sorted(of_manifest))
        raise InvalidSpec.at("--filename", f"{filename} has {parts}, but no apiVersion; give {_A_FILE}")
    return content
