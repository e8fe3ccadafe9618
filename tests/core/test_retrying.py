from __future__ import annotations

from typing import Any

import pytest

from ends import NAME_ERROR, VALUE_ERROR, end, judged
from ptjob_provider.core.diagnosis import Cause, Diagnosis, Retrying
from ptjob_provider.core.errors import InvalidSpec


def raised(error: str) -> Diagnosis:
    return judged(end(message=VALUE_ERROR.replace("ValueError: bad batch", error)))


class NoQuota(Exception):
    """Stands for an exception of the training code."""


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("python_exception", "ValueError: x"),
        (Cause.PYTHON_EXCEPTION, "ValueError: x"),
        (ValueError, "UnicodeError: x"),
        ("OSError", "ConnectionResetError: [Errno 104]"),
        ("IOError", "FileNotFoundError: x"),
        ("ClientError", "botocore.exceptions.ClientError: SlowDown"),
        ("botocore.exceptions.ClientError", "botocore.exceptions.ClientError: SlowDown"),
        (NoQuota, f"{__name__}.NoQuota: x"),
    ],
)
def test_an_entry_means_a_cause_or_an_exception(entry: Any, error: str) -> None:
    """A cause by its value, an exception by its type; Python's own also by their base classes."""
    found = Retrying.of(None, [entry]).judge(raised(error))

    assert not found.retryable
    assert found.resolution.startswith("Look at the")


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("exit_code", "ValueError: x"),
        ("KeyError", "ValueError: x"),
        ("ConnectionError", "OSError: x"),
        ("google.api.ClientError", "botocore.exceptions.ClientError: SlowDown"),
        ("OSError", "requests.exceptions.ReadTimeout: x"),
    ],
)
def test_another_cause_or_exception_is_not_meant(entry: str, error: str) -> None:
    """Of a library's exceptions only the names are known, not the base classes."""
    found = raised(error)

    assert Retrying.of(None, [entry]).judge(found) == found


def test_the_authors_lists_override_the_cause() -> None:
    """The message names the matching entry; if both lists match, the job is not retried."""
    found = judged(end(message=NAME_ERROR))
    helped = Retrying.of(["NameError"], None).judge(found)
    both = Retrying.of(["NameError"], ["python_exception"]).judge(found)

    assert (found.retryable, helped.retryable, both.retryable) == (False, True, False)
    assert helped.resolution == "Fix the training code; retry_on names NameError"
    assert both.resolution == "Fix the training code; never_retry_on names python_exception"


def test_an_end_without_an_exception_has_a_cause_alone() -> None:
    found = judged(end(code=3))

    assert Retrying.of(None, ["Exception"]).judge(found).retryable
    assert not Retrying.of(None, ["exit_code"]).judge(found).retryable


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("OSError", r"never_retry_on: 'OSError' is not allowed; allowed: a list"),
        (["out-of-memory"], r"never_retry_on\[0\]: 'out-of-memory' .* a cause \(python_exception, .*OSError"),
        ([3], r"never_retry_on\[0\]: 3 is not allowed"),
        ([int], r"never_retry_on\[0\]: <class 'int'> is not allowed"),
    ],
)
def test_a_value_that_is_neither_a_cause_nor_an_exception_is_refused(value: Any, said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        Retrying.of(None, value)
