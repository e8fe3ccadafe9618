"""`top node`, `top job`: options for viewing usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ptjob_provider.cli.parameters import (
    all_namespaces_option,
    job_names,
    kind_option,
    output_option,
    pass_place,
    place_options,
)

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place


@click.group()
def top() -> None:
    """Show what nodes and jobs have and use."""


@top.command("node")
@output_option
@place_options
@pass_place
def node(place: Place, output: str | None) -> None:
    """Show each node's GPUs, CPU and memory, and what pods have taken of them.

    Takes `nodes list` and `pods list` in the whole cluster: the ClusterRole of deploy/components/cluster-view.
    """
    from ptjob_provider.cli import inspect

    inspect.top_nodes(place, output=output)


@top.command("job")
@click.argument("name", required=False, shell_complete=job_names)
@output_option
@kind_option
@all_namespaces_option
@place_options
@pass_place
def job(place: Place, name: str | None, output: str | None) -> None:
    """Show the GPUs of all jobs, or what each replica of one job uses now."""
    from ptjob_provider.cli import inspect

    if name is None:
        inspect.top_jobs(place, output=output)
    else:
        inspect.top_job(place, name, output=output)
