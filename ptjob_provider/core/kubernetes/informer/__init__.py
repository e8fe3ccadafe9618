"""Watch jobs and their pods with informers: caches that all subscribers of an event loop share."""

from __future__ import annotations

from ptjob_provider.core.kubernetes.informer.events import EventPoller, Workloads, unreadable
from ptjob_provider.core.kubernetes.informer.informer import cached_job, informer_of, subscribe
from ptjob_provider.core.kubernetes.informer.scope import WatchScope
from ptjob_provider.core.kubernetes.informer.usage_sampler import read_usage
