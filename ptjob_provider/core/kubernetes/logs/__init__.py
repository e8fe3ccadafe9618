"""Read containers' logs from the API server: each line once and in order, with a notice where lines are lost.

`follower` reads one replica's log, over a stream or in turns, as `streams` allows. `runs` and `replica` interpret the
status of pods. `parse` converts bytes to lines with cursors, and creates the notices about lost lines.
"""

from __future__ import annotations

from ptjob_provider.core.kubernetes.logs.follower import ReplicaLog
from ptjob_provider.core.kubernetes.logs.streams import LogStreams

__all__ = ["LogStreams", "ReplicaLog"]
