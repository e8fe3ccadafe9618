"""Parameters shared by several commands: where jobs run, `-o`, the name of a job, durations."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ptjob_provider.cli.completion import job_names
from ptjob_provider.cli.target import BACKENDS, TargetOptions, find_target
from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.cli.target import Target

C = TypeVar("C", bound="Callable[..., Any]")

_GIVEN = "ptjob_provider.target"
"""Key of click's context for the target options, given before or after the command."""

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
SPAN_RULE = "a span such as 90s, 10m, 2h or 1d12h"
_LONGEST = timedelta(seconds=2**31 - 1)
"""Maximum duration, 68 years: an int32 of seconds, as in the CRDs."""


def not_allowed(
    value: str, rule: str, context: click.Context | None, param: click.Parameter | None
) -> click.BadParameter:
    """Return the error about a value, with what is allowed."""
    return click.BadParameter(f"{value!r} is not allowed; allowed: {rule}", ctx=context, param=param)


def check_not_empty(name: str, text: str | None) -> None:
    """Check that a flag's text is not one that counts as unset, such as that of a shell's unset variable.

    Raises:
        InvalidSpec: it is.
    """
    from ptjob_provider.core.spec.parsers import is_unset

    if text is not None and is_unset(text):
        raise InvalidSpec.of(name, text, "give a value, or leave the flag out")


def pair(name: str, text: str, rule: str = "KEY=VALUE, or a map in YAML such as '{KEY: value}'") -> tuple[str, str]:
    """Return key and value of `KEY=VALUE`; the value may contain further `=`, and may be empty.

    Raises:
        InvalidSpec: the text is not a pair. For variables, the message does not repeat it: a value may be secret.
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        if name.endswith("-env"):
            raise InvalidSpec.at(name, f"not a pair; allowed: {rule}")
        raise InvalidSpec.of(name, text, f"allowed: {rule}")
    return key, value


def read_span(text: str) -> timedelta | None:
    """Return the duration in kubectl's form: `90s`, `10m`, `2h`, `1d12h`; None if it has another form."""
    if not re.fullmatch(r"(\d+[dhms])+", text):
        return None
    parts = re.findall(r"(\d+)([dhms])", text)
    try:
        total = sum((timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts), timedelta())
    except (OverflowError, ValueError):  # more digits than `timedelta` or `int` accepts
        return None
    return total if total <= _LONGEST else None


def span(context: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Return the duration; a number without a unit is in seconds."""
    if value is None:
        return None
    duration = read_span(f"{value}s" if value.isdecimal() else value)
    if duration is None:
        raise not_allowed(value, SPAN_RULE, context, param)
    return duration


def limit(context: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Return the duration, which must be above 0."""
    duration = span(context, param, value)
    if duration == timedelta():
        raise not_allowed(str(value), f"{SPAN_RULE}, above 0", context, param)
    return duration


def output_option(text: str, *more: str, **how: Any) -> Callable[[C], C]:
    """Return `-o` with this help, for programs; with `more`, also for other words than json, yaml and name."""
    return click.option("-o", "--output", type=click.Choice(["json", "yaml", "name", *more]), help=text, **how)


table_output_option = output_option(
    "Output format; wide: the same as the default.  [default: a table]",
    "wide",
    callback=lambda _, __, value: None if value == "wide" else value,
)


def pod_options(image: str, user: str) -> Callable[[C], C]:
    """Return the options for a pod that a command starts: `--image` and `--user`."""

    def add(command: C) -> C:
        command = click.option("--user", type=click.IntRange(min=0), metavar="UID", help=user)(command)
        return click.option("--image", metavar="IMAGE", help=image)(command)

    return add


delete_on_interrupt_option = click.option(
    "--delete-on-interrupt", is_flag=True, help="Delete the job on Ctrl-C.  [default: keep it]"
)


def _pattern(context: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Compile a pattern of lines with progress before anything is submitted."""
    from ptjob_provider.core.training_progress import LinePattern

    try:
        return None if value is None else LinePattern(value)
    except InvalidSpec as error:
        raise click.BadParameter(error.allowed, ctx=context, param=param) from None


def progress_options(without: str) -> Callable[[C], C]:
    """Return the options for the training's progress: `--progress`, and `--no-progress` with this help."""

    def add(command: C) -> C:
        text = "Lines that say how far it is, in RE2."
        command = click.option("--no-progress", is_flag=True, help=without)(command)
        return click.option("--progress", callback=_pattern, metavar="PATTERN", help=text)(command)

    return add


def group_target_options(command: C) -> C:
    """Add the target options that precede a command."""
    return _target_options(
        command,
        backend="Where jobs run.  [default: airflow.cfg's, else kubernetes if there is a kubeconfig]",
        kubeconfig="Path of the kubeconfig.  [default: $KUBECONFIG, else ~/.kube/config, else the pod's]",
        context="Context of the kubeconfig.  [default: its current one]",
        root="Directory of local jobs.  [default: airflow.cfg's, else $AIRFLOW_HOME/ptjob]",
        namespace="Namespace of the jobs.  [default: the context's, else default]",
    )


def target_options(command: C) -> C:
    """Add the target options after a command, where they override those before it; the help shows only `-n`."""
    text = "Namespace of the jobs.  --context, --kubeconfig and --backend are accepted here, too."
    return _target_options(command, namespace=text)


def _target_options(command: C, **texts: str) -> C:
    options: list[tuple[tuple[str, ...], Callable[..., Any] | None, dict[str, Any]]] = [
        (("--backend",), None, {"type": click.Choice(BACKENDS, case_sensitive=False)}),
        (("--kubeconfig", "--config"), None, {"metavar": "PATH"}),
        (("--context",), None, {"metavar": "NAME"}),
        (("--root",), None, {"metavar": "PATH"}),
        (("-n", "--namespace"), _namespace, {"metavar": "NAME"}),
    ]
    for names, read, how in reversed(options):
        text = texts.get(names[-1 if names[0] == "-n" else 0].removeprefix("--"), "")
        command = _kept(*names, read=read, help=text, hidden=not text, **how)(command)
    return command


def _kept(*names: str, read: Callable[..., Any] | None = None, **how: Any) -> Callable[[C], C]:
    """Return an option whose value is kept in the context, for `target_in`."""

    def keep(context: click.Context, param: click.Parameter, value: Any) -> None:
        kept = read(context, param, value) if read and value else value
        if kept and param.name:
            context.meta.setdefault(_GIVEN, {})[param.name] = kept

    return click.option(*names, expose_value=False, callback=keep, **how)


def _namespace(context: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse an invalid name: locally no server checks it, and the error of an API server would not name the reason."""
    from ptjob_provider.core.spec.pods import dns_label

    try:
        return dns_label("namespace", value)
    except InvalidSpec as error:
        raise click.BadParameter(str(error).removeprefix("namespace: "), ctx=context, param=param) from None


def kind_option(command: C) -> C:
    """Add `--kind`, which selects one of several jobs of the same name, and Arena's `--type`, which selects nothing."""
    from ptjob_provider.core.manifest import KINDS

    types = click.Choice(["pytorchjob", "pytorch"], case_sensitive=False)
    command = click.option("-T", "--type", type=types, expose_value=False, hidden=True)(command)
    of_cluster = click.Choice(list(KINDS), case_sensitive=False)
    return _kept("--kind", type=of_cluster, metavar="KIND", help="Kind of the job.  [default: any]")(command)


all_namespaces_option = _kept("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")

name_argument = click.argument("name", shell_complete=job_names)
names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)


def target_in(context: click.Context) -> Target:
    """Return the target of a command line.

    Raises:
        InvalidSpec: the options are invalid; the message names the reason.
    """
    return find_target(TargetOptions(**context.meta.get(_GIVEN, {})), os.environ)


def pass_target(command: C) -> C:
    """Pass the target to a command as its first argument."""

    @wraps(command)
    def with_target(*args: Any, **given: Any) -> Any:
        return command(target_in(click.get_current_context()), *args, **given)

    return cast("C", with_target)


def of_one_job(command: C) -> C:
    """Add the argument and options that select one job; the command gets the target first, then the job's name."""
    return name_argument(of_jobs(command))


def of_jobs(command: C) -> C:
    """Add `--kind` and the target options; the command gets the target as its first argument."""
    return kind_option(target_options(pass_target(command)))
