"""Diagnose why a job failed, why it does not run yet, and when waiting has become pointless. Pure.

Turns records into sentences, independent of back-ends and orchestrators; the runner decides when to diagnose.
"""

from __future__ import annotations

from ptjob_provider.core.diagnosis.brief import held_back, in_brief
from ptjob_provider.core.diagnosis.ending import Limits, ending, ends_at
from ptjob_provider.core.diagnosis.failed import failed_replicas, told_of
from ptjob_provider.core.diagnosis.failure import deleted, diagnose, lacks_reason, outputs_failed, timed_out
from ptjob_provider.core.diagnosis.last_words import LastWords, is_clean_up
from ptjob_provider.core.diagnosis.outlook import outlook
from ptjob_provider.core.diagnosis.retrying import Retrying
from ptjob_provider.core.diagnosis.verdict import Cause, Diagnosis
from ptjob_provider.core.diagnosis.waiting import WaitingNotice, waiting_reason

__all__ = [
    "Cause",
    "Diagnosis",
    "LastWords",
    "Limits",
    "Retrying",
    "WaitingNotice",
    "deleted",
    "diagnose",
    "ending",
    "ends_at",
    "failed_replicas",
    "held_back",
    "in_brief",
    "is_clean_up",
    "lacks_reason",
    "outlook",
    "outputs_failed",
    "timed_out",
    "told_of",
    "waiting_reason",
]
