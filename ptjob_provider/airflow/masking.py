"""Takes the secrets that Airflow knows out of texts, on every way that does not lead through Airflow's own log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.log import mask_secret, redact  # type: ignore[attr-defined]  # Airflow exports it without saying so

from ptjob_provider.core.spec.code import is_credential

if TYPE_CHECKING:
    from ptjob_provider.core.spec import TrainingJob


def mask_credentials(job: TrainingJob) -> None:
    """Have Airflow mask, from now on, the credentials for code that a job has among its variables."""
    for owner in (job, job.master, job.worker):
        for variable in (owner.env if owner else None) or ():
            if variable.value and is_credential(variable.name) and not variable.name.endswith("USERNAME"):
                mask_secret(variable.value)


def masked(text: str) -> str:
    """Return the text with the values of connections, sensitive variables and local secrets as `***`."""
    return str(redact(text))
