"""Tells how a try came out, besides its result or its error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.conclusion import said_of_success

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import JobRef


def log_success(log: Any, ref: JobRef, result: Mapping[str, Any]) -> None:
    """Say in the task's log that the job succeeded; a warning if replicas of it failed nevertheless."""
    tell = log.warning if result.get("failed_replicas") else log.info
    tell("%s", said_of_success(ref, result))
