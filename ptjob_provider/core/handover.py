"""Where a finished job's output lies, for a program that runs beside the claims; knows directories, no back-end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.outputs import PvcAddress

if TYPE_CHECKING:
    from pathlib import Path


def local_path(uri: str, *, claims: Path) -> Path:
    """Return where a `pvc://claim/path` lies on this machine; whether something is there is for the caller to see.

    Args:
        uri: such as `result["model"]["uri"]`.
        claims: the directory that holds the claims of one namespace, each under its name.

    Raises:
        InvalidSpec: it is no such address, or a link leads out of the claim.
        UnsupportedByBackend: this machine has no directory for the claim.
    """
    address = PvcAddress.parse(uri, field="uri")
    claim = claims / address.claim
    if not claim.is_dir():
        why = f"{uri}: the claim {address.claim} is no directory on this machine (looked in {claims})"
        advice = "run this where the claim is mounted, or read the file in a job or pod that mounts it"
        raise UnsupportedByBackend.of("uri", f"{why}; {advice}")
    path = claim / address.path
    if not path.resolve().is_relative_to(claim.resolve()):
        raise InvalidSpec.of("uri", uri, f"a link leads out of the claim; allowed: paths inside {claim}")
    return path
