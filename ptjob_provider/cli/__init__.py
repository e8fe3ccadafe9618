"""`ptjob`: look at the training jobs of this machine, read their logs and delete them, from a terminal or a program.

Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no such job; 75 try again later (sysexits' EX_TEMPFAIL).

Here is what a command line may say. What the commands do is in `commands`, loaded when one is run: `--help` answers at
once.
"""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the commands look."""

    root: Path
    claims: Path | None
    namespace: str


def output_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `-o`."""
    formats = click.Choice(["json", "yaml", "name"])
    return click.option("-o", "--output", type=formats, help="For programs; without it, for people.")(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--root",
    envvar=["PTJOB_LOCAL_ROOT", "AIRFLOW__PTJOB__LOCAL_ROOT"],
    metavar="PATH",
    help="Where the jobs live: [ptjob] local_root.  [default: what airflow.cfg says, else $AIRFLOW_HOME/ptjob]",
)
@click.option(
    "--claims",
    envvar=["PTJOB_LOCAL_CLAIMS", "AIRFLOW__PTJOB__LOCAL_CLAIMS"],
    metavar="PATH",
    help="Where the claims lie: [ptjob] local_claims.  [default: ROOT/claims]",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="Of the jobs.")
@click.version_option(package_name="ptjob-provider")
@click.pass_context
def main(context: click.Context, root: str | None, claims: str | None, namespace: str) -> None:
    """Look at PyTorch training jobs that run on this machine.

    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such job, 75 try again later.
    """
    configured = airflow_section(os.environ)
    root = root or configured.get("local_root") or str(airflow_home(os.environ) / "ptjob")
    claims = claims or configured.get("local_claims")
    context.obj = Place(
        root=Path(root).expanduser(), claims=Path(claims).expanduser() if claims else None, namespace=namespace
    )


@main.command("list")
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs with this label; repeatable."
)
@output_option
@click.pass_obj
def list_jobs(place: Place, labels: tuple[str, ...], output: str | None) -> None:
    """List the jobs of the namespace, oldest first."""
    from ptjob_provider.cli import commands

    commands.list_jobs(place, labels=labels, output=output)


@main.command()
@click.argument("name")
@output_option
@click.pass_obj
def get(place: Place, name: str, output: str | None) -> None:
    """Show one job: its phase, its replicas, what it has written, and why it failed or waits."""
    from ptjob_provider.cli import commands

    commands.get(place, name, output=output)


@main.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on until the container has ended.")
@click.option("-t", "--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@click.option(
    "-i", "--replica", metavar="REPLICA", help="A pod's name, its end (worker-0) or a rank.  [default: rank 0]"
)
@click.option("--timestamps", is_flag=True, help="Begin each line with the time at which it was written.")
@click.pass_obj
def logs(place: Place, name: str, *, follow: bool, tail: int | None, replica: str | None, timestamps: bool) -> None:
    """Print what a replica has written."""
    from ptjob_provider.cli import commands

    commands.logs(place, name, follow=follow, tail=tail, replica=replica, timestamps=timestamps)


@main.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--ignore-not-found", is_flag=True, help="A job that is not there is as good as deleted.")
@click.pass_obj
def delete(place: Place, names: tuple[str, ...], *, ignore_not_found: bool) -> None:
    """Stop jobs and remove them; what they have written to their claims stays.

    Returns when nothing of them runs any more.
    """
    from ptjob_provider.cli import commands

    for name in names:
        commands.delete(place, name, ignore_not_found=ignore_not_found)


def airflow_home(environ: Mapping[str, str]) -> Path:
    """Return Airflow's home directory by Airflow's rule."""
    return Path(environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


def airflow_section(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return `[ptjob]` of the airflow.cfg that Airflow would read, without loading Airflow; {} if there is none."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(environ.get("AIRFLOW_CONFIG") or airflow_home(environ) / "airflow.cfg")
    except (OSError, UnicodeError, configparser.Error):
        return {}
    return dict(parser["ptjob"]) if parser.has_section("ptjob") else {}
