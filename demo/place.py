"""Interface of a place in which a demonstration's jobs run: this machine or a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from ptjob_provider.core.backend import Backend


class Place(Protocol):
    """A place in which jobs run: its settings for Airflow, and the jobs' outputs for people."""

    @property
    def title(self) -> str:
        """Return a short description of the place."""

    @property
    def command(self) -> str:
        """Return the command that starts the demonstration in this place."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the jobs."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Return Airflow's environment variables; nothing else differs between two places, not even the DAG file."""

    def backend(self) -> Backend:
        """Return the back-end that Airflow uses in this place."""

    def prepare(self) -> None:
        """Create everything that the jobs need."""

    def model(self, model: Mapping[str, Any]) -> tuple[str, str]:
        """Return the address of a result's model, and how the model was verified."""

    def curves(self, tfevents: Mapping[str, Any]) -> str:
        """Return the address of a result's tfevents."""

    def tables(self) -> list[Table]:
        """Return further tables about the jobs."""

    def hints(self) -> list[tuple[str, str]]:
        """Return commands to inspect the jobs and their outputs, each with its topic."""
