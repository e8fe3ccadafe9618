"""Error for the infrastructure of a test or demonstration: a boot, a build, an install, a server that must run."""

from __future__ import annotations


class InfrastructureFailed(RuntimeError):
    """Something outside the product did not start; the message names it, and ends with its output."""
