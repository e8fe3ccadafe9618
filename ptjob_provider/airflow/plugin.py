"""Add the Training page to Airflow's API server; every Airflow process imports this module, so it imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from ptjob_provider.airflow.training_page import PREFIX, training_page

if TYPE_CHECKING:
    from typing import Any

_IDS = ("dag_id", "run_id", "task_id", "map_index")


class _Tab:
    """The tab that shows the page in Airflow's, if `[ptjob] training_tab` says so; Airflow reads it when asked."""

    def __get__(self, plugin: Any, owner: type) -> list[dict[str, str]]:
        from ptjob_provider.airflow.config import training_tab  # noqa: PLC0415 - only the API server shows tabs

        query = "&".join(f"{name}={{{name.upper()}}}" for name in _IDS)
        tab = {
            "name": "Training",
            "href": f"{PREFIX.removeprefix('/')}/?{query}",
            "destination": "task_instance",
            "url_route": "ptjob-training",
        }
        return [tab] if training_tab() else []


class TrainingPagePlugin(AirflowPlugin):
    """The page at `PREFIX`."""

    name = "ptjob"
    fastapi_apps = [{"name": "Training", "app": training_page, "url_prefix": PREFIX}]  # noqa: RUF012 - as in Airflow
    external_views = _Tab()
