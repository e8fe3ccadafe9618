"""Read the return value of a function from a pod's termination message, where `in_pod.run_function` writes it."""

from __future__ import annotations

import json

KEY = "ptjob_return_value"


def return_value_in(message: str) -> str:
    """Return rank 0's return value as JSON; "" if the message is something else, such as the end of a log.

    A failed container's message may be a return value, too: rank 0 may return before another rank of its pod fails.
    """
    try:
        value = json.loads(message)
    except ValueError:
        return ""
    return json.dumps(value[KEY]) if isinstance(value, dict) and value.keys() == {KEY} else ""


def is_truncated(message: str) -> bool:
    """Return whether the message is a truncated return value: a pod's containers share the space for messages."""
    return message.startswith(f'{{"{KEY}":') and not return_value_in(message)
