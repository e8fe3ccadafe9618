"""Containers' logs over the API server: each line once and in order, and what is gone told with its time.

`replica_log` reads one replica's, over a stream or in turns as `streams` allows; `runs` and `replica` say what a pod's
status tells, `reading` makes lines of bytes, `patience` says when a server is asked again, `losses` says what is gone.
"""

from __future__ import annotations

from ptjob_provider.core.kubernetes.podlog.replica_log import ReplicaLog
from ptjob_provider.core.kubernetes.podlog.streams import LogStreams

__all__ = ["LogStreams", "ReplicaLog"]
