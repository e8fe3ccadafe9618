"""A job's requested TensorBoard, on the folder of its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import literals
from ptjob_provider.core.spec.settings import parse_into, setting


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Settings of TensorBoard; each field documents its default."""

    logdir: str | None = setting(literals.text)
    """Where the events are: `pvc://claim/path`, or the path as the program sees it. None: `tfevents`."""
    image: str | None = setting(literals.text)
    """What runs it; it has `python3` with TensorBoard. None: the installation's, else the job's own image."""
    service_type: str | None = setting(literals.word("NodePort", "ClusterIP"))
    """Who can reach it without a tunnel: everybody who reaches a node, or pods of the cluster. None: `NodePort`."""

    @classmethod
    def parse(cls, field: str, value: Any) -> TensorBoard | None:
        """Parse true, false, or a map of these parts; false is none.

        Raises:
            InvalidSpec: it is neither, or a part is unknown or invalid.
        """
        if isinstance(value, dict):
            return parse_into(cls, value, prefix=f"{field}.")
        try:
            return cls() if literals.boolean(field, value) else None
        except InvalidSpec:
            raise InvalidSpec.of(field, value, "true, false, or a map of logdir, image, service_type") from None
