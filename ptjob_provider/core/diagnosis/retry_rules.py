"""Apply a task's own rules about retries, which override the diagnosis."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.diagnosis.causes import Cause
from ptjob_provider.core.errors import InvalidSpec, nearest
from ptjob_provider.core.spec.parsers import is_unset, sequence

if TYPE_CHECKING:
    from ptjob_provider.core.diagnosis.causes import Diagnosis

_TYPE = re.compile(r"(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Z]\w*")
_ALLOWED = (
    f"allowed: a cause ({', '.join(Cause)}), or the type of an exception, such as OSError, "
    "'botocore.exceptions.ClientError' or 'socket.gaierror'"
)


@dataclass(frozen=True, kw_only=True)
class Retrying:
    """Causes and exceptions that are retried (`on`) and that are not (`never_on`), overriding the diagnosis.

    An entry is a cause, or the type of the exception that ended the training. A type without a module matches types of
    that name in any module; a built-in exception also matches its built-in subclasses. `never_on` overrides `on`.
    """

    on: tuple[str, ...] = ()
    never_on: tuple[str, ...] = ()

    @classmethod
    def of(cls, retry_on: Any, never_retry_on: Any) -> Self:
        """Parse the arguments `retry_on` and `never_retry_on`: lists of texts and exception classes, or None.

        Raises:
            InvalidSpec: an entry is neither a cause nor a type.
        """
        return cls(on=_entries("retry_on", retry_on), never_on=_entries("never_retry_on", never_retry_on))

    def judge(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with `retryable` set by the matching entry, which its advice then names."""
        for field, entries, retryable in (("never_retry_on", self.never_on, False), ("retry_on", self.on, True)):
            entry = next((each for each in entries if _means(each, diagnosis)), None)
            if entry is not None:
                advice = f"{diagnosis.resolution.partition(';')[0]}; {field} names {entry}"
                return replace(diagnosis, retryable=retryable, resolution=advice)
        return diagnosis


def _entries(field: str, value: Any) -> tuple[str, ...]:
    if is_unset(value):
        return ()
    return tuple(_entry(f"{field}[{index}]", each) for index, each in enumerate(sequence(field, value)))


def _entry(field: str, value: Any) -> str:
    if isinstance(value, type) and issubclass(value, BaseException):
        return value.__qualname__ if value.__module__ == "builtins" else f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, str) and (value in set(Cause) or _TYPE.fullmatch(value)):
        return str(value)
    close = nearest(value, Cause)
    raise InvalidSpec.of(field, value, _ALLOWED + (f"; did you mean {close}?" if close else ""))


def _means(entry: str, diagnosis: Diagnosis) -> bool:
    if entry in {diagnosis.cause, diagnosis.exception}:
        return True
    raised = diagnosis.exception.rpartition(".")[2]
    return bool(raised) and (entry == raised or _is_derived(diagnosis.exception, entry))


def _is_derived(raised: str, entry: str) -> bool:
    """Return whether both are built-in exceptions, and `raised` is a subclass of `entry`."""
    kind, base = (getattr(builtins, name, None) for name in (raised, entry))
    return isinstance(kind, type) and isinstance(base, type) and issubclass(kind, base)
