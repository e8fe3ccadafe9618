from __future__ import annotations

import errno

from ptjob_provider.core.local import pod
from rows import each_row


def test_pauses_double_up_to_a_limit() -> None:
    """The first restart is immediate, as on a node."""
    assert [pod.delay(count, 10.0) for count in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert pod.delay(10_000, 10.0) == 300


@each_row(
    ("program", "error", "words"),
    [
        ("/prog", OSError(errno.EACCES, "Permission denied"), 'exec: "/prog": permission denied'),
        ("prog", OSError("odd"), 'exec: "prog": odd'),
        ("prog", RuntimeError("mount failed"), 'exec: "prog": mount failed'),
    ],
)
def test_a_failed_start_is_reported_in_the_runtimes_words(program: str, error: Exception, words: str) -> None:
    assert pod.start_error(program, error) == words
