"""Replace container paths by this machine's paths, inside any text. Pure.

The longest container path wins, and only whole path components match: with `/data` mounted, `/data2` is unchanged. A
path may stand alone, after `=`, in a `a:b` list, or between the quotes and blanks of a shell command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BEFORE = r"(?:(?<=[\s'\"=:;,(\[{<>|&@`])|^)"
_AFTER = r"(?=[\s'\"/:;,)\]}<>|&`]|$)"


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Mapping of one path of the container's file system to this machine."""

    container_path: str
    host_path: str


class PathMap:
    """Translates texts of one container; the later of two bindings for one path counts, as a mount hides an image."""

    def __init__(self, bindings: Iterable[Binding]) -> None:
        self._hosts = {normal(binding.container_path): binding.host_path for binding in bindings}
        longest_first = sorted(self._hosts, key=len, reverse=True)
        choices = "|".join(re.escape(path) for path in longest_first)
        self._pattern = re.compile(f"{_BEFORE}({choices}){_AFTER}") if choices else None

    def text(self, text: str) -> str:
        """Return the text with every bound container path replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._hosts[match[1]], text)

    def path(self, path: str) -> str | None:
        """Return the local path of one absolute path; None if it is on no binding."""
        pure = PurePosixPath(normal(path))
        for ancestor in (pure, *pure.parents):
            host = self._hosts.get(str(ancestor))
            if host is not None:
                return str(PurePosixPath(host) / pure.relative_to(ancestor))
        return None


def normal(path: str) -> str:
    """Return the path without doubled and trailing slashes."""
    return str(PurePosixPath("/" + path.lstrip("/")))
