"""What a job asks for beside it: a TensorBoard on the folder in which its events are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import literals
from ptjob_provider.core.spec.settings import parse_into, setting


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """How it is run. A part that is None is as its line says."""

    logdir: str | None = setting(literals.text)
    """Where the events are: `pvc://claim/path`, or the path as the program sees it. None: `tfevents`."""
    image: str | None = setting(literals.text)
    """What runs it; it has `python3` with TensorBoard. None: the installation's, else the job's own image."""
    service_type: str | None = setting(literals.word("NodePort", "ClusterIP"))
    """Who can reach it without a tunnel: everybody who reaches a node, or pods of the cluster. None: `NodePort`."""

    @classmethod
    def parse(cls, field: str, value: Any) -> TensorBoard | None:
        """Read true, false, or a map of these parts; false is none.

        Raises:
            InvalidSpec: neither, or an unknown or wrong part.
        """
        if isinstance(value, dict):
            return parse_into(cls, value, prefix=f"{field}.")
        try:
            return cls() if literals.boolean(field, value) else None
        except InvalidSpec:
            raise InvalidSpec.of(field, value, "true, false, or a map of logdir, image, service_type") from None
