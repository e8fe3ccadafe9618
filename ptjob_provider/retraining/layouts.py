"""Tell which argument reads a source that has no complete batch by its rules. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptjob_provider.retraining.batches import BatchRules

_LIKE_A_MARKER = re.compile(r"_(?:success|complete|done|ready)", re.IGNORECASE)
"""Not Databricks' `_committed_…`, each of which ends in a number of its own."""


class Layout:
    """Shape of a source: an example of its data, and one of each marker, for each number of folders above them."""

    def __init__(self) -> None:
        self._data: dict[int, str] = {}
        self._markers: dict[tuple[int, str], str] = {}

    def add(self, path: str) -> None:
        """Take a file into account; what lies in a hidden folder is none of the source's."""
        folder, _, name = path.rpartition("/")
        depth = path.count("/")
        if any(part.startswith((".", "_")) for part in folder.split("/")):
            return
        if not name.startswith((".", "_")):
            self._data[depth] = min(path, self._data.get(depth, path))
        elif _LIKE_A_MARKER.match(name) and depth:
            self._markers[depth, name] = min(path, self._markers.get((depth, name), path))

    def advice(self, rules: BatchRules) -> str:
        """Return what lies in the source, by an example, and the arguments that read it."""
        if not self._data:
            return "it has no data yet"
        markers = self._markers if rules.has_markers else {}
        marker = min(markers, key=lambda each: (each[1] != rules.marker, each), default=None)
        if marker is not None:
            depth, name = marker
            example, wanted = self._markers[marker], [] if name == rules.marker else [f"marker={name!r}"]
        else:
            depth = min((depth for depth in self._data if depth), default=0)
            example, wanted = self._data[depth], ["marker=None"] if rules.has_markers else []
        if not depth:
            return f"it has files outside of folders, such as {example!a}: batch='file' makes each file a batch"
        wanted += [f"depth={depth}"] if depth != rules.depth else []
        told = f"it has {example!a}, {depth} folder{'' if depth == 1 else 's'} deep"
        if not wanted:
            return f"{told}, and no name that pattern={rules.pattern!r} takes"
        return f"{told}: {', '.join(wanted)} reads that"
