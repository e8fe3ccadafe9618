"""`ptjob`: submit, follow, inspect and delete training jobs and read their logs, from a terminal or a program.

Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no such job or claim; 75 try again later (sysexits'
EX_TEMPFAIL); 130 interrupted, 143 told to stop. docs/how-to/command-line.md defines their meaning.

This module has the options in front of a command. The commands' own options are in `syntax`, loaded when a command is
run or asked for its help; their code is in the modules beside it. So `--help` responds at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ptjob_provider.cli.lazy import LazyGroup
from ptjob_provider.cli.parameters import namespaces, of_files, of_namespace
from ptjob_provider.cli.place import BACKENDS
from ptjob_provider.cli.printable import printable
from ptjob_provider.core.errors import PTJobError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYNTAX = "ptjob_provider.cli.syntax"


class Commands(LazyGroup):
    """All commands, in the order of a job's life."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; report a place that cannot be reached like any other error."""
        try:
            return super().invoke(ctx)
        except PTJobError as error:
            from ptjob_provider.cli.output import refusal  # noqa: PLC0415 - loads asyncio

            raise refusal(error) from error

    sections: ClassVar[Mapping[str, Mapping[str, tuple[str, str]]]] = {
        "Train": {
            "submit": (f"{_SYNTAX}.submit", "Submit a job and return."),
            "run": (f"{_SYNTAX}.submit", "Submit a job and follow it to its end."),
            "render": (f"{_SYNTAX}.submit", "Print the manifest that `submit` would send."),
        },
        "Look": {
            "list": (f"{_SYNTAX}.jobs", "List the jobs of the namespace, oldest first."),
            "get": (f"{_SYNTAX}.jobs", "Show one job: replicas, outputs, why it failed or waits."),
            "logs": (f"{_SYNTAX}.logs", "Print a replica's log."),
            "follow": (f"{_SYNTAX}.logs", "Follow a job to its end, as `run` does."),
            "events": (f"{_SYNTAX}.jobs", "Show the events of a job and its pods."),
            "tensorboard": (f"{_SYNTAX}.tensorboard", "Show a job's curves in a browser on this machine."),
            "top": (f"{_SYNTAX}.top", "Show what nodes and jobs have and use."),
        },
        "Change": {
            "delete": (f"{_SYNTAX}.jobs", "Delete jobs and wait until they are gone."),
            "prune": (f"{_SYNTAX}.jobs", "Delete the jobs that ended a while ago."),
            "suspend": (f"{_SYNTAX}.jobs", "Suspend jobs: their pods are deleted until they are resumed."),
            "resume": (f"{_SYNTAX}.jobs", "Resume suspended jobs."),
            "orphans": (f"{_SYNTAX}.orphans", "List orphaned jobs: no task of Airflow waits for them."),
        },
        "Other": {
            "data": (f"{_SYNTAX}.data", "List and create claims, and copy files to and from them."),
            "doctor": (f"{_SYNTAX}.doctor", "Check whether jobs can run here, and say what to do."),
            "completion": (f"{_SYNTAX}.completion", "Print a shell completion script."),
        },
    }


_EPILOG = "Use ptjob COMMAND --help for a command's options and ptjob run --help-all for all flags of a job."


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS, case_sensitive=False),
    help="Where jobs run.  [default: airflow.cfg's, else kubernetes if there is a kubeconfig]",
)
@click.option(
    "--kubeconfig",
    "--config",
    metavar="PATH",
    callback=of_files,
    help="[default: $KUBECONFIG, else ~/.kube/config, else the pod's]",
)
@click.option("--context", metavar="NAME", help="[default: the kubeconfig's current one]")
@click.option(
    "--root",
    metavar="PATH",
    help="Of local jobs.  [default: airflow.cfg's, else $AIRFLOW_HOME/ptjob]",
)
@click.option(
    "--claims",
    metavar="PATH",
    help="Of local jobs.  [default: airflow.cfg's, else ROOT/claims]",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    callback=of_namespace,
    shell_complete=namespaces,
    help="[default: the context's, else default]",
)
@click.option(
    "--loglevel",
    type=click.Choice(["debug", "info", "warning", "warn", "error"], case_sensitive=False),
    default="warning",
    show_default=True,
    help="Of what ptjob tells of its own work.",
)
@click.version_option(package_name="ptjob-provider")
def main(*, loglevel: str, **_asked: Any) -> None:
    """Submit PyTorch training jobs and look at them, on a cluster or on this machine.

    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such job or claim, 75 try again later, 130 interrupted,
    143 told to stop.
    """
    _tell(loglevel)


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _tell(level: str) -> None:
    """Log to stderr: from `debug` or `info` on if set, else Python's default, warnings and errors."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
    if level.lower() in {"debug", "info"}:
        handler = logging.StreamHandler()
        handler.setFormatter(_PrintableFormatter("%(levelname)s %(message)s"))
        logging.basicConfig(level=level.upper(), handlers=[handler])


__all__ = ["main"]
