"""Tests of a stack's component processes: leftovers are found and stopped, other processes are left alone."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from demo.processes import Component
from demo.stack import Stack, StackConfig, free_port, kept_secret, pid_file, stop_leftovers
from ptjob_provider.core.local import devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SLEEPS = "import time; time.sleep(600)"


@pytest.fixture
def component(tmp_path: Path) -> Iterator[Callable[[str], Component]]:
    """Start programs as components; kill all of them afterwards."""
    started: list[Component] = []

    def start(program: str, says: str = "") -> Component:
        one = Component("one", [sys.executable, "-c", program], os.environ, tmp_path / f"{len(started)}.log")
        one.start()
        started.append(one)
        wait_for(lambda: says in one.tail())
        return one

    yield start
    for one in started:
        one.kill()


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds, at most a minute."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def leave_behind(home: Path, one: Component, *, starter: dict[str, float], created: float | None = None) -> None:
    """Write the file in which a stack records its processes."""
    born = created if created is not None else psutil.Process(one.pid).create_time()
    pid_file(home).write_text(json.dumps({"scheduler": {"pid": one.pid, "created": born}, "starter": starter}))


def test_processes_that_a_killed_run_left_behind_are_stopped(
    component: Callable[..., Component], tmp_path: Path
) -> None:
    """The next run in the same home stops it."""
    one = component(SLEEPS)
    leave_behind(tmp_path, one, starter={"pid": 1, "created": 0.0})

    assert stop_leftovers(tmp_path) == ["scheduler"]

    wait_for(lambda: not one.is_running)
    assert not pid_file(tmp_path).exists()


def test_a_process_that_only_has_the_same_id_is_left_alone(component: Callable[..., Component], tmp_path: Path) -> None:
    """Process ids are reused; the creation time distinguishes the processes."""
    one = component(SLEEPS)
    leave_behind(tmp_path, one, starter={"pid": 1, "created": 0.0}, created=1.0)

    assert stop_leftovers(tmp_path) == []

    assert one.is_running


def test_a_run_whose_starter_still_lives_is_left_alone(component: Callable[..., Component], tmp_path: Path) -> None:
    """Two demonstrations may run at the same time."""
    one, starter = component(SLEEPS), component(SLEEPS)
    leave_behind(tmp_path, one, starter={"pid": starter.pid, "created": psutil.Process(starter.pid).create_time()})

    assert stop_leftovers(tmp_path) == []

    assert one.is_running


def test_a_homes_secret_is_drawn_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    """Restarted components must accept each other's tokens."""
    secret = kept_secret(tmp_path)

    assert kept_secret(tmp_path) == secret
    assert len(secret) >= 64
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0


def test_the_port_of_a_stack_is_nobody_elses_before_it_is_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port is reserved while the database is migrated, so that no other stack takes it."""
    stack = Stack(StackConfig(home=tmp_path / "home", dags=tmp_path))
    draws, draw = [stack.port], random.randint
    monkeypatch.setattr(devices.random, "randint", lambda *between: draws.pop() if draws else draw(*between))

    found = free_port()

    stack.stop()
    assert draws == []
    assert found != stack.port
