"""Contain errors of the code that reads one job, so that an object which nobody has foreseen has a verdict, too.

An uncaught error would end every follower of the job at every try, and the informer that its whole namespace shares.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ptjob_provider.core.errors import PTJobError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

F = TypeVar("F", bound="Callable[..., Any]")


def contained(fallback: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator for a function that reads one job: it logs the traceback of an error, and does not raise it.

    Errors for people, `PTJobError`, are raised.

    Args:
        fallback: returns the result instead, from the error as text and the function's positional arguments.
    """

    def decorate(read: F) -> F:
        @wraps(read)
        def contained_read(*args: Any, **kwargs: Any) -> Any:
            try:
                return read(*args, **kwargs)
            except PTJobError:
                raise
            except Exception as error:
                logger.exception("%s: a job cannot be read as far as this; please report it", read.__qualname__)
                return fallback(f"{error!r:.200}; the traceback is in the log", *args)

        return cast("F", contained_read)

    return decorate
