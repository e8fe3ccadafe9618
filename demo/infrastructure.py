"""Define the error of failed infrastructure of a test or demonstration: a boot, a build, an installation, a server."""

from __future__ import annotations


class InfrastructureFailed(RuntimeError):
    """Error of something outside the product that did not start; the message names it and ends with its output."""
