"""Masks the secrets that Airflow knows in texts that do not pass through Airflow's own log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.log import mask_secret, redact  # type: ignore[attr-defined]  # Airflow re-exports it implicitly

from ptjob_provider.core.spec.code import is_credential

if TYPE_CHECKING:
    from ptjob_provider.core.spec import TrainingJob

_FREE_TEXTS = {"summary", "log_tail", "message", "detail", "waiting", "waits", "advice"}


def mask_credentials(job: TrainingJob) -> None:
    """Make Airflow mask, from now on, the credentials for fetching code in a job's environment variables."""
    for owner in (job, job.master, job.worker):
        for variable in (owner.env if owner else None) or ():
            if variable.value and is_credential(variable.name) and not variable.name.endswith("USERNAME"):
                mask_secret(variable.value)


def masked(text: str) -> str:
    """Return the text with the values of connections, sensitive variables and local secrets as `***`."""
    return str(redact(text))


def with_texts_masked(value: Any) -> Any:
    """Mask the texts of programs and back-ends at any depth; names and keywords stay unchanged."""
    if isinstance(value, dict):
        return {
            name: _masked_texts(part) if name in _FREE_TEXTS else with_texts_masked(part)
            for name, part in value.items()
        }
    return [with_texts_masked(each) for each in value] if isinstance(value, list) else value


def _masked_texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_masked_texts(each) for each in value]
    return masked(value) if isinstance(value, str) else value
