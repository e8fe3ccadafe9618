"""`ptjob`: look at training jobs, read their logs, delete them and find nobody's, from a terminal or a program.

Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no such job; 75 try again later (sysexits' EX_TEMPFAIL).

Here is what a command line may say. What the commands do is in `commands` and `orphans`, loaded when one is run:
`--help` answers at once.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ptjob_provider.cli.place import BACKENDS, Asked, Place, find_place

if TYPE_CHECKING:
    from collections.abc import Callable


_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def span(context: click.Context, param: click.Parameter, value: str) -> timedelta:
    """Read a span of time as kubectl takes it: `90s`, `10m`, `2h`, `1d12h`."""
    if not re.fullmatch(r"(\d+[dhms])+", value):
        rule = f"{value!r} is not allowed; allowed: a span such as 90s, 10m, 2h or 1d12h"
        raise click.BadParameter(rule, ctx=context, param=param)
    parts = re.findall(r"(\d+)([dhms])", value)
    return sum((timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts), timedelta())


def output_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `-o`."""
    formats = click.Choice(["json", "yaml", "name"])
    return click.option("-o", "--output", type=formats, help="For programs; without it, for people.")(command)


def kind_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--kind`."""
    told = "Of the job: PyTorchJob, TrainJob or PyTorchTrainingJob.  [default: whichever is there]"
    return click.option("--kind", metavar="KIND", callback=_known_kind, help=told)(command)


def _known_kind(_: click.Context, __: click.Parameter, kind: str | None) -> str | None:
    """Take the kind in any case, as people write it for kubectl."""
    from ptjob_provider.core.manifest import KINDS

    return {known.lower(): known for known in KINDS}.get(kind.lower(), kind) if kind else None


def namespace_option(command: Callable[..., None]) -> Callable[..., None]:
    """Let `-n` stand behind a command, too."""
    return click.option(
        "-n", "--namespace", metavar="NAME", expose_value=False, callback=_in_namespace, help="Of the jobs."
    )(command)


def _in_namespace(context: click.Context, _: click.Parameter, namespace: str | None) -> None:
    if namespace:
        context.obj = replace(context.obj, asked_namespace=namespace)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--backend",
    envvar=["PTJOB_BACKEND", "AIRFLOW__PTJOB__BACKEND"],
    type=click.Choice(BACKENDS, case_sensitive=False),
    help="Where the jobs run.  [default: what airflow.cfg says, else kubernetes if there is a kubeconfig]",
)
@click.option(
    "--kubeconfig", metavar="PATH", help="Of the cluster.  [default: $KUBECONFIG, else ~/.kube/config, else the pod's]"
)
@click.option("--context", metavar="NAME", help="Of the kubeconfig.  [default: its current one]")
@click.option(
    "--root",
    envvar=["PTJOB_LOCAL_ROOT", "AIRFLOW__PTJOB__LOCAL_ROOT"],
    metavar="PATH",
    help="Where local jobs live: [ptjob] local_root.  [default: what airflow.cfg says, else $AIRFLOW_HOME/ptjob]",
)
@click.option(
    "--claims",
    envvar=["PTJOB_LOCAL_CLAIMS", "AIRFLOW__PTJOB__LOCAL_CLAIMS"],
    metavar="PATH",
    help="Where their claims lie: [ptjob] local_claims.  [default: ROOT/claims]",
)
@click.option("-n", "--namespace", metavar="NAME", help="Of the jobs.  [default: the context's, else default]")
@click.version_option(package_name="ptjob-provider")
@click.pass_context
def main(click_context: click.Context, /, **asked: Any) -> None:
    """Look at PyTorch training jobs on a cluster, or on this machine.

    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such job, 75 try again later.
    """
    click_context.obj = find_place(Asked(**asked), os.environ)


@main.command("list")
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs with this label; repeatable."
)
@output_option
@kind_option
@namespace_option
@click.pass_obj
def list_jobs(place: Place, labels: tuple[str, ...], output: str | None, kind: str | None) -> None:
    """List the jobs of the namespace, oldest first."""
    from ptjob_provider.cli import commands

    commands.list_jobs(place, labels=labels, output=output, kind=kind)


@main.command()
@click.argument("name")
@click.option(
    "--outputs",
    is_flag=True,
    help="Look at what the job has written; on a cluster that starts a pod.  [default: tell what was found before]",
)
@output_option
@kind_option
@namespace_option
@click.pass_obj
def get(place: Place, name: str, *, outputs: bool, output: str | None, kind: str | None) -> None:
    """Show one job: its phase, its replicas, what it has written, and why it failed or waits."""
    from ptjob_provider.cli import commands

    commands.get(place, name, outputs=outputs, output=output, kind=kind)


@main.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on until the container has ended.")
@click.option("-t", "--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@click.option(
    "-i", "--replica", metavar="REPLICA", help="A pod's name, its end (worker-0) or a rank.  [default: rank 0]"
)
@click.option("--timestamps", is_flag=True, help="Begin each line with the time at which it was written.")
@kind_option
@namespace_option
@click.pass_obj
def logs(
    place: Place, name: str, *, follow: bool, tail: int | None, replica: str | None, timestamps: bool, kind: str | None
) -> None:
    """Print what a replica has written."""
    from ptjob_provider.cli import commands

    commands.logs(place, name, follow=follow, tail=tail, replica=replica, timestamps=timestamps, kind=kind)


@main.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--ignore-not-found", is_flag=True, help="A job that is not there is as good as deleted.")
@kind_option
@namespace_option
@click.pass_obj
def delete(place: Place, names: tuple[str, ...], *, ignore_not_found: bool, kind: str | None) -> None:
    """Stop jobs and remove them; what they have written to their claims stays.

    Returns when nothing of them runs any more.
    """
    from ptjob_provider.cli import commands

    for name in names:
        commands.delete(place, name, ignore_not_found=ignore_not_found, kind=kind)


@main.command("orphans")
@click.option(
    "--airflow-url",
    envvar="PTJOB_AIRFLOW_URL",
    metavar="URL",
    help="Of the API server to ask which tasks wait.  [default: none is asked, and all live jobs are listed]",
)
@click.option(
    "--airflow-user",
    envvar="PTJOB_AIRFLOW_USER",
    metavar="NAME",
    help="Who asks; the password is read from $PTJOB_AIRFLOW_PASSWORD, or asked for. A token in $PTJOB_AIRFLOW_TOKEN "
    "takes the place of both.",
)
@click.option("--instance", metavar="NAME", help="[ptjob] instance of that Airflow.  [default: what airflow.cfg says]")
@click.option(
    "--older-than", callback=span, default="10m", metavar="SPAN", show_default=True, help="Leave younger jobs alone."
)
@click.option("--delete", is_flag=True, help="Stop them; a job that has ended keeps its story, as does every claim.")
@output_option
@namespace_option
@click.pass_obj
def list_orphans(
    place: Place,
    *,
    airflow_url: str | None,
    airflow_user: str | None,
    instance: str | None,
    older_than: timedelta,
    delete: bool,
    output: str | None,
) -> None:
    """List the jobs that run although no task of Airflow waits for them; without an Airflow to ask, all that run.

    \b
    ptjob orphans --airflow-url https://airflow.example.com --delete
    ptjob orphans --older-than 2d
    """  # noqa: D301 - click keeps the lines of a paragraph that begins so
    from ptjob_provider.cli import orphans

    if airflow_url is None:
        if delete:
            raise click.UsageError("--delete needs --airflow-url; by your own judgement: ptjob delete NAME...")
        orphans.show_live(place, older_than=older_than, output=output)
        return
    waiters = orphans.waiters_of(airflow_url, airflow_user, os.environ)
    orphans.show_orphans(
        place, waiters, instance=instance or place.instance, older_than=older_than, delete=delete, output=output
    )
