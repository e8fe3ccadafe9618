from __future__ import annotations

import errno

import pytest

from ptjob_provider.core.local import container
from ptjob_provider.core.local.launch import Launch
from rows import each_row

LAUNCH = Launch(pod="p", container="pytorch", image="i", argv=["prog", "x"], env={}, working_dir="/work", mark="m")


@pytest.mark.parametrize(("replica", "pod"), [("Never", "Never"), ("OnFailure", "OnFailure"), ("ExitCode", "Never")])
def test_exit_code_is_the_operators_business(replica: str, pod: str) -> None:
    """The kubelet is told never to restart then."""
    assert container.pod_policy(replica) == pod


@each_row(
    ("policy", "code", "again"),
    [
        ("Never", 1, False),
        ("OnFailure", 1, True),
        ("OnFailure", 0, False),
        ("Always", 0, True),
        ("Always", 9, True),
    ],
)
def test_a_container_is_restarted_by_its_pods_policy(policy: str, code: int, again: bool) -> None:  # noqa: FBT001
    """In place, by the kubelet."""
    assert container.should_restart(policy, code) is again


def test_pauses_double_up_to_a_limit() -> None:
    """The first restart is immediate, as on a node."""
    assert [container.delay(count, 10.0) for count in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert container.delay(10_000, 10.0) == 300


def test_a_crash_loop_says_how_long_it_waits() -> None:
    """In the kubelet's words."""
    ended = {"reason": "Error", "exitCode": 1}

    assert container.waiting(ended, LAUNCH, 20.0) == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 20s restarting failed container=pytorch pod=p",
    }


def test_a_program_that_does_not_start_says_why_it_waits() -> None:
    """Not that it crashes."""
    ended = {"reason": "StartError", "exitCode": 128, "message": "why"}

    assert container.waiting(ended, LAUNCH, 20.0) == {"reason": "RunContainerError", "message": "why"}


def os_error(code: int, name: str = "prog") -> OSError:
    return OSError(code, {errno.ENOENT: "No such file or directory"}.get(code, "Permission denied"), name)


@each_row(
    ("program", "error", "words"),
    [
        ("prog", os_error(errno.ENOENT), 'exec: "prog": executable file not found in $PATH'),
        ("prog", os_error(errno.EACCES), 'exec: "prog": executable file not found in $PATH'),
        ("/prog", os_error(errno.ENOENT, "/prog"), 'exec: "/prog": stat /prog: no such file or directory'),
        ("/prog", os_error(errno.EACCES, "/prog"), 'exec: "/prog": permission denied'),
        ("prog", os_error(errno.EACCES, "/work"), 'chdir to cwd ("/work"): permission denied'),
        ("prog", OSError("odd"), 'exec: "prog": odd'),
        ("prog", RuntimeError("mount failed"), 'exec: "prog": mount failed'),
    ],
)
def test_a_failed_start_is_told_in_the_runtimes_words(program: str, error: Exception, words: str) -> None:
    """What is missing, and where it was looked for."""
    launch = Launch(pod="p", container="pytorch", image="i", argv=[program], env={}, working_dir="/work", mark="m")

    assert container.start_error(launch, error) == words
