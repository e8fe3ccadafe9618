"""Informer for jobs and their pods: a cache updated by watches that all followers of an event loop share."""

from __future__ import annotations

from ptjob_provider.core.kubernetes.informer.cache import ENDED
from ptjob_provider.core.kubernetes.informer.events import EventPoller, Workloads, untold
from ptjob_provider.core.kubernetes.informer.informer import followed, followed_world
from ptjob_provider.core.kubernetes.informer.scope import WatchScope
from ptjob_provider.core.kubernetes.informer.usage_sampler import measured
