"""The one error for what stands around a test or demonstration: a boot, a build, an install, a server that must run."""

from __future__ import annotations


class InfrastructureFailed(RuntimeError):
    """Something that is no part of the product did not come up; the text says what, and ends with what it said."""
