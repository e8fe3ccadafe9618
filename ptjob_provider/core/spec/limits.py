"""Options that limit how long a job may wait, and how often it may end; `diagnosis.Limits` has the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.spec.parsers import integer, is_unset, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.spec.parsers import Reader

LIMITS: Mapping[str, Reader[Any]] = {
    "start_timeout": seconds,
    "queue_timeout": seconds,
    "crash_loop_limit": integer(0),
    "max_preemptions": integer(0, 100),
    "no_progress_limit": integer(0, 3),
}
"""Parsers of the limits that are options of every adapter.

The job's object has the preemptions, and summaries of the earlier attempts, of which three always fit."""


def given_limits(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits that the options set, parsed.

    Raises:
        InvalidSpec: a limit is invalid.
    """
    return {name: read(name, options[name]) for name, read in LIMITS.items() if not is_unset(options.get(name))}
