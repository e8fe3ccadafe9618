"""Error for infrastructure of a test or demonstration that failed: a boot, a build, an installation, a server."""

from __future__ import annotations


class InfrastructureFailed(RuntimeError):
    """Something outside the product did not start; the message names it and ends with its output."""
