"""Tests of measuring the processes of a job in its supervisor."""

from __future__ import annotations

import contextlib
import resource
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from ptjob_provider.core.local import processes
from ptjob_provider.core.local.processes import Load, UsageSampler, recorded_usage
from ptjob_provider.core.local.store import JobFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """Prevent files of this process from growing, as on a full disk; this includes pytest's own report."""
    before, handled = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handled)


@pytest.fixture
def _is_the_pods_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure this process as the process of every pod."""
    monkeypatch.setattr(processes, "marked", lambda *_, **__: [psutil.Process()])


@pytest.mark.usefixtures("_is_the_pods_process")
def test_a_full_disk_costs_a_sample_and_not_the_job(tmp_path: Path) -> None:
    """The supervisor's loop gets no exception, and no partial file is left."""
    sampler = UsageSampler("uid", JobFiles(tmp_path))

    with no_room():
        sampler.sample([("uses-master-0", "p")])

    assert recorded_usage(JobFiles(tmp_path)) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_is_the_pods_process")
def test_a_sample_is_recorded_for_each_replica(tmp_path: Path) -> None:
    sampler = UsageSampler("uid", JobFiles(tmp_path))

    for _ in range(2):
        sampler.sample([("uses-master-0", "p")])

    recorded = recorded_usage(JobFiles(tmp_path))["uses-master-0"]
    assert (recorded.samples, (recorded.peak_memory or 0) > 0, recorded.peak_cpu) == (1, True, None)


def test_a_pod_without_a_process_is_not_measured(tmp_path: Path) -> None:
    """If its processes have ended or not started, there is no sample instead of a zero."""
    UsageSampler("uid", JobFiles(tmp_path)).sample([("uses-master-0", "p")])

    assert recorded_usage(JobFiles(tmp_path)) == {}


def test_cores_are_counted_over_the_longest_time_between_two_samples() -> None:
    """It runs from before the first to after the second sample: a suspended sampler reports no extra cores.

    There is no value if ended processes used more than the others have used since.
    """
    first, second = Load(seconds=1.0, began=10.0, ended=11.0), Load(seconds=3.0, began=13.0, ended=14.0)

    assert second.cores_since(first) == 0.5
    assert second.cores_since(None) is None
    assert first.cores_since(second) is None
