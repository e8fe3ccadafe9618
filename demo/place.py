"""Where the jobs of a demonstration run, as far as the rest of it has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from ptjob_provider.core.backend import Backend


class Place(Protocol):
    """One place: what Airflow is told of it, and what a person finds there afterwards."""

    @property
    def title(self) -> str:
        """The place in a few words."""

    @property
    def command(self) -> str:
        """How a person starts the demonstration there."""

    @property
    def namespace(self) -> str:
        """The namespace of the jobs."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Airflow's environment: nothing else differs between two places, the DAG file included."""

    def backend(self) -> Backend:
        """Return the back-end that Airflow uses there."""

    def prepare(self) -> None:
        """Have everything there that the jobs expect."""

    def model(self, model: Mapping[str, Any]) -> tuple[str, str]:
        """Return where a result's model is and who has checked it."""

    def curves(self, tfevents: Mapping[str, Any]) -> str:
        """Return where a result's tfevents are."""

    def tables(self) -> list[Table]:
        """Return what else there is to see of the jobs."""

    def hints(self) -> list[tuple[str, str]]:
        """Return what to look at and how."""
