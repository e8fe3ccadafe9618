from __future__ import annotations

import errno

from ptjob_provider.core.local import pod
from ptjob_provider.core.local.launch import Launch
from rows import each_row

LAUNCH = Launch(pod="p", container="pytorch", image="i", argv=["prog", "x"], env={}, working_dir="/work", mark="m")


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
    assert pod.should_restart(policy, code) is again


def test_pauses_double_up_to_a_limit() -> None:
    """The first restart is immediate, as on a node."""
    assert [pod.delay(count, 10.0) for count in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert pod.delay(10_000, 10.0) == 300


def test_a_crash_loop_says_how_long_it_waits() -> None:
    """In the kubelet's words."""
    ended = {"reason": "Error", "exitCode": 1}

    assert pod.waiting(ended, LAUNCH, 20.0) == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 20s restarting failed container=pytorch pod=p",
    }


def test_a_program_that_does_not_start_says_why_it_waits() -> None:
    """Not that it crashes."""
    ended = {"reason": "StartError", "exitCode": 128, "message": "why"}

    assert pod.waiting(ended, LAUNCH, 20.0) == {"reason": "RunContainerError", "message": "why"}


@each_row(
    ("program", "error", "words"),
    [
        ("prog", OSError(errno.ENOENT, "No such file", "prog"), 'exec: "prog": executable file not found in $PATH'),
        ("/prog", OSError(errno.ENOENT, "No such file"), 'exec: "/prog": stat /prog: no such file or directory'),
        ("/prog", OSError(errno.EACCES, "Permission denied"), 'exec: "/prog": permission denied'),
        ("prog", OSError("odd"), 'exec: "prog": odd'),
        ("prog", RuntimeError("mount failed"), 'exec: "prog": mount failed'),
    ],
)
def test_a_failed_start_is_reported_in_the_runtimes_words(program: str, error: Exception, words: str) -> None:
    """What is missing, and where it was looked for."""
    assert pod.start_error(program, error) == words
