"""Pod history: the recorded state and ends of a job's pods, kept after the pods are deleted.

`observe` takes pods and events as the API server has them, and returns a `PodHistory`. `diagnosis` interprets this
history, and the job's object stores it as an annotation.
"""

from __future__ import annotations

from ptjob_provider.core.history.codec import from_text, stored_in, to_text
from ptjob_provider.core.history.observe import observe, with_notice, with_reported
from ptjob_provider.core.history.pod_history import (
    EARLIEST,
    WORKLOAD,
    ContainerKind,
    PodHistory,
    Removal,
    Restarts,
    Termination,
    Waiting,
    WaitKind,
)
from ptjob_provider.core.history.pods import is_program_missing
