"""Diagnose why a job failed, why it does not run yet, and when waiting has become pointless. Pure.

Takes a pod history and a job's status, and returns causes and sentences, the same for all back-ends and orchestrators.
`run.follow` decides when to diagnose.
"""

from __future__ import annotations

from ptjob_provider.core.diagnosis.causes import Cause, Diagnosis
from ptjob_provider.core.diagnosis.notices import (
    EndNotices,
    WaitingNotice,
    is_clean_up,
    never_ran,
    outlook,
    restarts_of,
    waiting_reason,
)
from ptjob_provider.core.diagnosis.retry_rules import Retrying
from ptjob_provider.core.diagnosis.root_cause import (
    deleted,
    diagnose,
    failed_replicas,
    failed_replicas_text,
    needs_events,
    not_stopped,
    outputs_failed,
    timed_out,
)
from ptjob_provider.core.diagnosis.summary import blocked_waits, in_brief
from ptjob_provider.core.diagnosis.timeouts import Limits, ending, ends_at
