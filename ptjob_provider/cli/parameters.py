"""What more than one command takes: `-o`, `-n`, the name of a job, spans of time."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

C = TypeVar("C", bound="Callable[..., Any]")

NAMESPACE = "ptjob_provider.namespace"
"""Where a command line's own namespace is kept in its context, for whoever completes it."""

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
SPAN_RULE = "a span such as 90s, 10m, 2h or 1d12h"


def read_span(text: str) -> timedelta | None:
    """Return the span that a text is, as kubectl takes it: `90s`, `10m`, `2h`, `1d12h`; None if it is none."""
    if not re.fullmatch(r"(\d+[dhms])+", text):
        return None
    parts = re.findall(r"(\d+)([dhms])", text)
    return sum((timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts), timedelta())


def span(context: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Read a span of time; whole seconds are one, too."""
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
        "-o", "--output", type=_FORMATS, callback=_for_people, help="For programs; without it, or wide, for people."
    )(command)


def airflow_options(command: C) -> C:
    """Add what leads to an Airflow."""
    url = click.option("--airflow-url", envvar="PTJOB_AIRFLOW_URL", metavar="URL", help="Of the API server to ask.")
    user = click.option(
        "--airflow-user",
        envvar="PTJOB_AIRFLOW_USER",
        metavar="NAME",
        help="Who asks; the password is read from $PTJOB_AIRFLOW_PASSWORD, or asked for. A token in "
        "$PTJOB_AIRFLOW_TOKEN takes the place of both.",
    )
    return url(user(command))


def wide_output_option(command: C) -> C:
    """Add `-o` where `wide` says more than nothing."""
    wide = "For programs; without it, for people, with wide also the nodes, for which each job's pods are asked for."
    return click.option("-o", "--output", type=_FORMATS, help=wide)(command)


def _for_people(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Read what Arena's and kubectl's users write for a table."""
    return None if value == "wide" else value


def namespace_option(command: C) -> C:
    """Let `-n` stand behind a command, too."""
    return click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        expose_value=False,
        callback=_in_namespace,
        shell_complete=namespaces,
        help="Of the jobs.",
    )(command)


def all_namespaces_option(command: C) -> C:
    """Let `-A` look in all namespaces."""
    return click.option(
        "-A", "--all-namespaces", is_flag=True, expose_value=False, callback=_everywhere, help="Of all namespaces."
    )(command)


def name_argument(command: C) -> C:
    """Add the name of a job, which a shell can complete."""
    return click.argument("name", shell_complete=job_names)(command)


def names_argument(command: C) -> C:
    """Add the names of jobs, which a shell can complete."""
    return click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=job_names)(command)


def kind_option(command: C) -> C:
    """Let `--kind` say which of several jobs of one name is meant."""
    return click.option(
        "--kind",
        metavar="KIND",
        expose_value=False,
        callback=_of_kind,
        shell_complete=kinds,
        help="Of the job.  [default: whichever there is]",
    )(type_option(command))


def type_option(command: C) -> C:
    """Take Arena's `--type`: all that is listed here trains with PyTorch; of which kind a job is says `--kind`."""
    words = click.Choice(["pytorchjob", "pytorch"], case_sensitive=False)
    return click.option("-T", "--type", type=words, expose_value=False, hidden=True)(command)


def _of_kind(context: click.Context, param: click.Parameter, kind: str | None) -> None:
    """Take the kind in any case, as people write it for kubectl."""
    if kind is None:
        return
    from ptjob_provider.core.manifest import KINDS  # noqa: PLC0415 - loads YAML

    known = {each.lower(): each for each in KINDS}
    if kind.lower() not in known:
        raise click.BadParameter(f"{kind!r} is not allowed; allowed: {', '.join(KINDS)}", ctx=context, param=param)
    context.obj = replace(context.obj, kind=known[kind.lower()])


def _everywhere(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    if wanted:
        context.obj = replace(context.obj, is_everywhere=True)


def _in_namespace(context: click.Context, _: click.Parameter, namespace: str | None) -> None:
    if namespace:
        context.meta[NAMESPACE] = namespace
        if context.obj is not None:  # a shell that completes opens no place
            context.obj = replace(context.obj, asked_namespace=namespace)


def job_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the jobs that a person may mean; nothing if they cannot be listed in time."""
    from ptjob_provider.cli.completing import names_of  # noqa: PLC0415 - only a shell asks

    return _beginning(incomplete, names_of(context))


def replicas(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the replicas of the job that is named before."""
    from ptjob_provider.cli.completing import replicas_of  # noqa: PLC0415 - as above

    return _beginning(incomplete, replicas_of(context))


def mounts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the claims as what a path is put behind: `models:/`."""
    from ptjob_provider.cli.completing import claims_of  # noqa: PLC0415 - as above

    return _beginning(incomplete, [f"{claim}:/" for claim in claims_of(context)])


def addresses(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the claims as the beginning of an address: `pvc://models/`."""
    from ptjob_provider.cli.completing import claims_of  # noqa: PLC0415 - as above

    return _beginning(incomplete, [f"pvc://{claim}/" for claim in claims_of(context)])


def jobs_or_addresses(context: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return both: claims once the text begins as an address."""
    return (addresses if incomplete.startswith("pvc:") else job_names)(context, param, incomplete)


def namespaces(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the namespaces that are known without asking a cluster."""
    from ptjob_provider.cli.completing import namespaces_of  # noqa: PLC0415 - as above

    return _beginning(incomplete, namespaces_of(context))


def kinds(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of jobs."""
    from ptjob_provider.core.manifest import KINDS  # noqa: PLC0415 - loads YAML

    return _beginning(incomplete, KINDS)


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
