"""An auth manager of Airflow: the user `guest` may see all DAGs except `hidden`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser


class OneDagHidden(SimpleAuthManager):
    """Airflow's simple manager, which has roles only, with one rule about one DAG."""

    def is_authorized_dag(
        self, *, user: SimpleAuthManagerUser, details: DagDetails | None = None, **request: Any
    ) -> bool:
        if user.username == "guest" and details is not None and details.id == "hidden":
            return False
        return super().is_authorized_dag(user=user, details=details, **request)
