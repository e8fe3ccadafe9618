"""Rules of a task's author on retries, which win over the verdict."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.diagnosis.verdict import Cause
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec.literals import is_unset, sequence

if TYPE_CHECKING:
    from ptjob_provider.core.diagnosis.verdict import Diagnosis

_TYPE = re.compile(r"(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Z]\w*")
_ALLOWED = (
    f"a cause ({', '.join(Cause)}), or the type of an exception, such as OSError, 'botocore.exceptions.ClientError' or "
    "'socket.gaierror'"
)


@dataclass(frozen=True, kw_only=True)
class Retrying:
    """Failures that are retried, and such that are not, whatever their diagnosis says.

    An entry is a cause, or the type of the exception that ended the training. A type without its module means that name
    in any module, one of Python's own means those derived from it as well. `never_on` wins over `on`.
    """

    on: tuple[str, ...] = ()
    never_on: tuple[str, ...] = ()

    @classmethod
    def of(cls, retry_on: Any, never_retry_on: Any) -> Self:
        """Read the two arguments: lists of texts and of exception classes, or None.

        Raises:
            InvalidSpec: an entry is neither a cause nor a type.
        """
        return cls(on=_entries("retry_on", retry_on), never_on=_entries("never_retry_on", never_retry_on))

    def judge(self, found: Diagnosis) -> Diagnosis:
        """Return the diagnosis with the author's answer, and its advice with the reason, where an entry means it."""
        for field, entries, retryable in (("never_retry_on", self.never_on, False), ("retry_on", self.on, True)):
            entry = next((one for one in entries if _means(one, found)), None)
            if entry is not None:
                advice = f"{found.resolution.partition(';')[0]}; {field} names {entry}"
                return replace(found, retryable=retryable, resolution=advice)
        return found


def _entries(field: str, value: Any) -> tuple[str, ...]:
    if is_unset(value):
        return ()
    return tuple(_entry(f"{field}[{index}]", one) for index, one in enumerate(sequence(field, value)))


def _entry(field: str, value: Any) -> str:
    if isinstance(value, type) and issubclass(value, BaseException):
        return value.__qualname__ if value.__module__ == "builtins" else f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, str) and (value in set(Cause) or _TYPE.fullmatch(value)):
        return str(value)
    raise InvalidSpec.of(field, value, _ALLOWED)


def _means(entry: str, found: Diagnosis) -> bool:
    if entry in {found.cause, found.exception}:
        return True
    raised = found.exception.rpartition(".")[2]
    return bool(raised) and (entry == raised or _is_derived(found.exception, entry))


def _is_derived(raised: str, entry: str) -> bool:
    """Tell whether both are Python's own exceptions, and the one is of the other's kind."""
    kind, base = (getattr(builtins, name, None) for name in (raised, entry))
    return isinstance(kind, type) and isinstance(base, type) and issubclass(kind, base)
