"""Informer for jobs and their pods: a cache updated by watches that all followers of an event loop share."""

from __future__ import annotations

from ptjob_provider.core.kubernetes.board.following import followed, followed_world
from ptjob_provider.core.kubernetes.board.metering import measured
from ptjob_provider.core.kubernetes.board.queues import Queues
from ptjob_provider.core.kubernetes.board.reasons import Reasons, untold
from ptjob_provider.core.kubernetes.board.selection import Selection
from ptjob_provider.core.kubernetes.board.world import ENDED, World

__all__ = ["ENDED", "Queues", "Reasons", "Selection", "World", "followed", "followed_world", "measured", "untold"]
