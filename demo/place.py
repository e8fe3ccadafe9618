"""Interface to the place where a demonstration's jobs run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from ptjob_provider.core.backend import Backend


class Place(Protocol):
    """One place: its settings for Airflow, and its outputs for people."""

    @property
    def title(self) -> str:
        """Short description of the place."""

    @property
    def command(self) -> str:
        """The command that starts the demonstration there."""

    @property
    def namespace(self) -> str:
        """The namespace of the jobs."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Airflow's environment: nothing else differs between two places, not even the DAG file."""

    def backend(self) -> Backend:
        """Return the back-end that Airflow uses there."""

    def prepare(self) -> None:
        """Create everything that the jobs need."""

    def model(self, model: Mapping[str, Any]) -> tuple[str, str]:
        """Return a result's model address, and how it was verified."""

    def curves(self, tfevents: Mapping[str, Any]) -> str:
        """Return the address of a result's tfevents."""

    def tables(self) -> list[Table]:
        """Return further tables about the jobs."""

    def hints(self) -> list[tuple[str, str]]:
        """Return topics with commands to inspect them."""
