"""Parameters shared by several commands: `-o`, `-n`, the name of a job, durations."""

from __future__ import annotations

import os
import re
from dataclasses import fields, replace
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ptjob_provider.cli.place import BACKENDS, Asked, find_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ptjob_provider.cli.place import Place

C = TypeVar("C", bound="Callable[..., Any]")

_ASKED, _KIND, _EVERYWHERE = (f"ptjob_provider.{what}" for what in ("asked", "kind", "everywhere"))
"""Keys of a command's context for the values of its own place options."""

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
SPAN_RULE = "a span such as 90s, 10m, 2h or 1d12h"
_LONGEST = timedelta(days=100 * 365)
"""Maximum duration: longer ones lead to instants that cannot be represented."""


class WholeNumber(click.IntRange):
    """A whole number within limits; an invalid value's error shows them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the value."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            highest = f", at most {self.max}" if self.max is not None else ""
            rule = f"a whole number, at least {self.min}{highest}"
            raise click.BadParameter(f"{str(value)!r} is not allowed; allowed: {rule}", ctx=ctx, param=param) from None


def read_span(text: str) -> timedelta | None:
    """Return the duration in kubectl's form: `90s`, `10m`, `2h`, `1d12h`; None if it has another form."""
    if not re.fullmatch(r"(\d+[dhms])+", text):
        return None
    parts = re.findall(r"(\d+)([dhms])", text)
    try:
        found = sum((timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts), timedelta())
    except (OverflowError, ValueError):  # more digits than a duration, or a number, may have
        return None
    return found if found <= _LONGEST else None


def span(context: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Read a duration; whole seconds are allowed, too."""
    if value is None:
        return None
    found = read_span(f"{value}s" if value.isdecimal() else value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not allowed; allowed: {SPAN_RULE}", ctx=context, param=param)
    return found


_FORMATS = click.Choice(["json", "yaml", "name", "wide"])


def output_option(command: C) -> C:
    """Add `-o`."""
    return click.option(
        "-o",
        "--output",
        type=_FORMATS,
        callback=_for_people,
        help="Output format for programs; the default and wide are for people.",
    )(command)


def airflow_options(command: C) -> C:
    """Add the options for the address and user of an Airflow."""
    url = click.option(
        "--airflow-url", envvar="PTJOB_AIRFLOW_URL", metavar="URL", help="Address of Airflow's API server."
    )
    user = click.option(
        "--airflow-user",
        envvar="PTJOB_AIRFLOW_USER",
        metavar="NAME",
        help="User name; the password is read from $PTJOB_AIRFLOW_PASSWORD or from a prompt. A token in "
        "$PTJOB_AIRFLOW_TOKEN replaces both.",
    )
    return url(user(command))


def wide_output_option(command: C) -> C:
    """Add `-o` for a command in which `wide` shows more."""
    wide = "Output format for programs; the default is for people, wide adds the nodes (one more request per job)."
    return click.option("-o", "--output", type=_FORMATS, help=wide)(command)


def _for_people(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Accept the names of Arena and kubectl for a table."""
    return None if value == "wide" else value


def of_files(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse a kubeconfig that does not exist: another cluster would be used instead, or none."""
    if value is None or any(Path(path).expanduser().exists() for path in value.split(":")):
        return value
    raise click.BadParameter(f"{value} is not there; allowed: the path of a kubeconfig", ctx=context, param=param)


def of_namespace(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an invalid namespace's name: no server is asked for it, and none would name the reason."""
    if not value:
        return None
    from ptjob_provider.core.errors import InvalidSpec  # noqa: PLC0415 - only where one is named
    from ptjob_provider.core.spec.pods import namespace  # noqa: PLC0415 - loads YAML

    try:
        return namespace("namespace", value)
    except InvalidSpec as error:
        raise click.BadParameter(str(error).removeprefix("namespace: "), ctx=context, param=param) from None


def place_options(command: C) -> C:
    """Allow the place options after a command, too; there they override those before it.

    Only `-n` is in the command's help: the others are in that of `ptjob`.
    """
    beside = "Namespace of the jobs.  --context, --kubeconfig and --backend are accepted here, too."
    also = (
        _also("-n", "--namespace", metavar="NAME", shell_complete=namespaces, help=beside, read=of_namespace),
        _also("--backend", type=click.Choice(BACKENDS, case_sensitive=False), hidden=True),
        _also("--kubeconfig", "--config", hidden=True, read=of_files),
        *(_also(name, hidden=True) for name in ("--context", "--root", "--claims")),
    )
    for option in reversed(also):
        command = option(command)
    return command


def _also(*names: str, read: Callable[..., Any] | None = None, **how: Any) -> Callable[[C], C]:
    """Return an option that a command accepts like those before it."""

    def keep(context: click.Context, param: click.Parameter, value: Any) -> None:
        told = read(context, param, value) if read else value
        if told is not None and param.name:
            context.meta.setdefault(_ASKED, {})[param.name] = told

    return click.option(*names, expose_value=False, callback=keep, **how)


def asked_in(context: click.Context) -> Asked:
    """Return the place options of a command line, before and after its command."""
    before, behind = context.find_root().params, context.meta.get(_ASKED, {})
    return Asked(**{each.name: behind.get(each.name, before.get(each.name)) for each in fields(Asked)})


def place_in(context: click.Context) -> Place:
    """Return the place of a command line.

    Raises:
        UsageError: the options are invalid; the message names the reason.
    """
    try:
        place = find_place(asked_in(context), os.environ)
    except ValueError as error:
        raise click.UsageError(str(error), ctx=context) from None
    return replace(place, kind=context.meta.get(_KIND), is_everywhere=context.meta.get(_EVERYWHERE, False))


def pass_place(command: C) -> C:
    """Pass the place to a command as its first argument."""

    @wraps(command)
    def placed(*args: Any, **given: Any) -> Any:
        return command(place_in(click.get_current_context()), *args, **given)

    return cast("C", placed)


def all_namespaces_option(command: C) -> C:
    """Add `-A`, for all namespaces."""
    return click.option(
        "-A", "--all-namespaces", is_flag=True, expose_value=False, callback=_everywhere, help="Of all namespaces."
    )(command)


def name_argument(command: C) -> C:
    """Add the name of a job, with completion."""
    return click.argument("name", shell_complete=job_names)(command)


def names_argument(command: C) -> C:
    """Add the names of jobs, with completion."""
    return click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)(command)


def kind_option(command: C) -> C:
    """Add `--kind`, which selects one of several jobs of the same name."""
    return click.option(
        "--kind",
        metavar="KIND",
        expose_value=False,
        callback=_of_kind,
        shell_complete=kinds,
        help="Kind of the job.  [default: any]",
    )(type_option(command))


def type_option(command: C) -> C:
    """Accept Arena's `--type`: all jobs here train with PyTorch; their kind is selected by `--kind`."""
    words = click.Choice(["pytorchjob", "pytorch"], case_sensitive=False)
    return click.option("-T", "--type", type=words, expose_value=False, hidden=True)(command)


def _of_kind(context: click.Context, param: click.Parameter, kind: str | None) -> None:
    """Accept the kind in any case, as for kubectl."""
    if kind is None:
        return
    from ptjob_provider.core.manifest import KINDS  # noqa: PLC0415 - loads YAML

    known = {each.lower(): each for each in KINDS}
    if kind.lower() not in known:
        raise click.BadParameter(f"{kind!r} is not allowed; allowed: {', '.join(KINDS)}", ctx=context, param=param)
    context.meta[_KIND] = known[kind.lower()]


def _everywhere(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    context.meta[_EVERYWHERE] = wanted


def job_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the jobs to complete; none if they cannot be listed in time."""
    from ptjob_provider.cli.completing import names_of  # noqa: PLC0415 - only for completion

    return _beginning(incomplete, names_of(context))


def replicas(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the replicas of the job on the command line."""
    from ptjob_provider.cli.completing import replicas_of  # noqa: PLC0415 - as above

    return _beginning(incomplete, replicas_of(context))


def mounts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the claims as the beginning of a mount: `models:/`."""
    from ptjob_provider.cli.completing import claims_of  # noqa: PLC0415 - as above

    return _beginning(incomplete, [f"{claim}:/" for claim in claims_of(context)])


def addresses(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the claims as the beginning of an address: `pvc://models/`."""
    from ptjob_provider.cli.completing import claims_of  # noqa: PLC0415 - as above

    return _beginning(incomplete, [f"pvc://{claim}/" for claim in claims_of(context)])


def jobs_or_addresses(context: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return jobs, or claims if the text begins as an address."""
    return (addresses if incomplete.startswith("pvc:") else job_names)(context, param, incomplete)


def namespaces(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the namespaces known without a request."""
    from ptjob_provider.cli.completing import namespaces_of  # noqa: PLC0415 - as above

    return _beginning(incomplete, namespaces_of(context))


def kinds(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of jobs."""
    from ptjob_provider.core.manifest import KINDS  # noqa: PLC0415 - loads YAML

    return _beginning(incomplete, KINDS)


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
