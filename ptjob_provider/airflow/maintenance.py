"""The maintenance DAG's work: find orphaned jobs, stop them, and log each one's owner."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow import compat, config
from ptjob_provider.airflow.compat import AirflowRuntimeError
from ptjob_provider.airflow.config import SECTION_OPTIONS, ForeignInstance
from ptjob_provider.airflow.connection import DEFAULT_CONN_ID, ConnectionArgs
from ptjob_provider.airflow.task_session import airflow_errors
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable
from ptjob_provider.core.run.orphans import GRACE, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from ptjob_provider.airflow.connection import ResolvedConnection
    from ptjob_provider.core.run.orphans import Orphan

logger = logging.getLogger(__name__)


async def _state_of(owner: Mapping[str, str]) -> str | None:
    """Return the task instance's state, see `sweep`, by the execution API, with the token of the task that calls it."""
    task_id, run_id, map_index = owner["task_id"], owner["run_id"], owner.get("map_index")
    try:
        states = compat.task_instances().get_task_states(
            dag_id=owner["dag_id"],
            task_ids=[task_id],
            run_ids=[run_id],
            map_index=None if map_index is None else int(map_index),
        )
    except AirflowRuntimeError as error:
        raise ClusterUnavailable(f"Airflow did not answer: {error}") from error
    except (ArithmeticError, TypeError, ValueError) as error:  # anybody can edit a job's annotations
        raise ClusterError("the ids in its owner annotation are those of no task instance") from error
    of_run: Mapping[str, Any] = states.get(run_id) or {}
    name = task_id if map_index is None else f"{task_id}_{map_index}"
    if name not in of_run:
        return None
    return str(of_run[name] or "none")


def stop_orphans(
    *,
    namespaces: Sequence[str],
    grace: timedelta = GRACE,
    dry_run: bool = False,
    kubernetes_conn_id: str = DEFAULT_CONN_ID,
) -> list[dict[str, Any]]:
    """Stop the orphaned jobs of this installation, log each, and return them as JSON-safe fields.

    Call this in a task. A job that cannot be checked or stopped is logged, and does not stop the search.

    Args:
        namespaces: the namespaces to search.
        grace: minimum age in seconds; younger jobs are kept.
        dry_run: stop nothing, only report.
        kubernetes_conn_id: connection to the cluster; the local back-end ignores it.

    Raises:
        AirflowException: a namespace could not be listed (raised after the others were searched), or this Airflow's
            id seems to come from another installation.
    """
    with airflow_errors():
        if why := config.foreign_origin():
            raise ForeignInstance(f"no jobs were checked: {why}")
        connection = ConnectionArgs(kubernetes_conn_id=kubernetes_conn_id).resolve()
        unfollowed_grace = SECTION_OPTIONS.orphan_grace()
        orphans = asyncio.run(
            _sweep(connection, namespaces, grace=grace, unfollowed_grace=unfollowed_grace, stop=not dry_run)
        )
    logger.info("%d orphaned jobs in %s", len(orphans), ", ".join(namespaces))
    return [orphan.to_dict() for orphan in orphans]


async def _sweep(connection: ResolvedConnection, namespaces: Sequence[str], **how: Any) -> list[Orphan]:
    orphans: list[Orphan] = []
    errors: list[ClusterError] = []
    instance = config.known()
    if instance is None:
        return orphans
    for namespace in namespaces:
        swept = sweep(connection.backend, _state_of, namespace=namespace, instance=instance, **how)
        try:
            async for orphan in swept:
                _log(orphan)
                orphans.append(orphan)
        except ClusterError as error:
            logger.warning("jobs of %s could not be listed: %s", namespace, error)
            errors.append(error)
    if errors:
        raise errors[0]
    return orphans


def _log(orphan: Orphan) -> None:
    job = orphan.job
    owner = ", ".join(f"{name}={value}" for name, value in job.owner.items())
    if orphan.error:
        logger.warning("%s, %s, of %s: %s", job.ref, job.phase, owner, orphan.error)
        return
    action = "stopped" if orphan.stopped else "left as it is"
    logger.info("%s, %s, of %s, was %s: %s", job.ref, job.phase, owner, action, orphan.why)
