"""Read containers' logs from the API server: each line once and in order, with a notice where lines are lost.

`follower` reads one replica's log, over a stream if one of the client's `log_streams` is free. `runs` and `replica`
interpret the status of pods. `parse` converts bytes to lines with cursors, and creates the notices about lost lines.
"""

from __future__ import annotations

from ptjob_provider.core.kubernetes.logs.follower import ReplicaLog

__all__ = ["ReplicaLog"]
