"""Parameters of a supervisor, passed through a pipe and never written to disk, since they contain secrets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.local.environment import Stores
from ptjob_provider.core.local.image import ImageFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.local.config import Gpus


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Parameters of one job on this machine.

    Attributes:
        claims: the directory of the namespace's claims.
        devices: the directory of the device locks.
        gpus: as in `LocalConfig`.
        restart_backoff: as in `LocalConfig`.
        environment: inherited by every container.
        python: the interpreter of images without a replacement.
        images: facts about the job's images, by name.
        stores: only the secrets and config maps that the job refers to.
    """

    claims: str
    devices: str
    gpus: Gpus
    restart_backoff: float
    environment: Mapping[str, str]
    python: str
    images: Mapping[str, ImageFacts]
    stores: Stores

    def image(self, name: str) -> ImageFacts:
        """Return the facts about an image; without a replacement only the interpreter."""
        return self.images.get(name) or ImageFacts(python=self.python, env={}, files={})

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` returned."""
        images = {name: ImageFacts.from_dict(facts) for name, facts in fields["images"].items()}
        return cls(**{**fields, "images": images, "stores": Stores(**fields["stores"])})
