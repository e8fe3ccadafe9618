"""Buttons on the task's page: the Training page, and the pages configured in `[ptjob]`, none without configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from ptjob_provider.airflow.config import option
from ptjob_provider.airflow.training_page import address

if TYPE_CHECKING:
    from typing import Any

    from airflow.sdk import BaseOperator

JOB_NAME, JOB_NAMESPACE, JOB_UID = "job_name", "job_namespace", "job_uid"
"""XCom keys of the task's job, pushed before the task waits for it."""

TENSORBOARD_URL = "tensorboard_url"
"""XCom key of the address of the job's TensorBoard, if it has one."""


class PyTorchJobLink(BaseOperatorLink):
    """Link to the job: `[ptjob] job_url`."""

    name = "Job"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; empty if none is configured or no job is known yet."""
        return _address("job_url", ti_key)


class PyTorchJobLogsLink(BaseOperatorLink):
    """Link to the job's log outside Airflow: `[ptjob] log_url`."""

    name = "Job log"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; empty if none is configured or no job is known yet."""
        return _address("log_url", ti_key)


class PyTorchJobTensorBoardLink(BaseOperatorLink):
    """Link to the job's TensorBoard: `[ptjob] tensorboard_url`, else the address of its Service."""

    name = "TensorBoard"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the address; empty if no TensorBoard is known."""
        url = ti_key.xcom_pull(key=TENSORBOARD_URL)
        return (_address("tensorboard_url", ti_key) or str(url)) if url else ""


class PyTorchJobTrainingLink(BaseOperatorLink):
    """Link to the Training page itself: in a frame of Airflow's page its links would not open."""

    name = "Training"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return the page's address, relative to Airflow's."""
        return address(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)


def _address(name: str, ti: Any) -> str:
    template = option(name)
    if not template:
        return ""
    identity = {key: ti.xcom_pull(key=key) for key in (JOB_NAMESPACE, JOB_NAME, JOB_UID)}
    if not all(identity.values()):
        return ""
    values = {key.removeprefix("job_"): quote(str(value), safe="") for key, value in identity.items()}
    return template.format(**values)
