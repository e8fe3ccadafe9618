"""Buttons on the task's page, which lead to pages that the installation has and `[ptjob]` names; none without."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from ptjob_provider.airflow.config import option

if TYPE_CHECKING:
    from typing import Any

    from airflow.sdk import BaseOperator

JOB_NAME, JOB_NAMESPACE, JOB_UID = "job_name", "job_namespace", "job_uid"
"""The XCom keys under which a task tells which job is its, before it waits for it."""

TENSORBOARD_URL = "tensorboard_url"
"""The same for the TensorBoard beside it, if it has one."""


class PyTorchJobLink(BaseOperatorLink):
    """Leads to the job: `[ptjob] job_url`."""

    name = "Job"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; empty where none is configured or no job is known yet."""
        return _address("job_url", ti_key)


class PyTorchJobLogsLink(BaseOperatorLink):
    """Leads to the job's log outside Airflow: `[ptjob] log_url`."""

    name = "Job log"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; empty where none is configured or no job is known yet."""
        return _address("log_url", ti_key)


class PyTorchJobTensorBoardLink(BaseOperatorLink):
    """Leads to the TensorBoard beside the job: `[ptjob] tensorboard_url`, else the address of its Service."""

    name = "TensorBoard"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; empty where no TensorBoard is known."""
        found = ti_key.xcom_pull(key=TENSORBOARD_URL)
        return (_address("tensorboard_url", ti_key) or str(found)) if found else ""


def _address(name: str, ti: Any) -> str:
    template = option(name)
    if not template:
        return ""
    found = {key: ti.xcom_pull(key=key) for key in (JOB_NAMESPACE, JOB_NAME, JOB_UID)}
    if not all(found.values()):
        return ""
    values = {key.removeprefix("job_"): quote(str(value), safe="") for key, value in found.items()}
    return template.format(**values)
