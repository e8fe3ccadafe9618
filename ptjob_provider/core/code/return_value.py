"""Read the return value of a function from a pod's termination message, where `in_pod.run_function` writes it."""

from __future__ import annotations

import json

KEY = "ptjob_return_value"


def return_value_in(message: str) -> str:
    """Return rank 0's return value as JSON; "" if the message is something else, such as the end of a log.

    The message of a container that failed may be one, too: rank 0 was done before another rank of its pod failed.
    """
    try:
        found = json.loads(message)
    except ValueError:
        return ""
    return json.dumps(found[KEY]) if isinstance(found, dict) and found.keys() == {KEY} else ""


def is_truncated(message: str) -> bool:
    """Return whether the message is the beginning of a return value: all containers of a pod share the space."""
    return message.startswith(f'{{"{KEY}":') and not return_value_in(message)
