"""Takes the secrets that Airflow knows out of texts, on every way that does not lead through Airflow's own log."""

from __future__ import annotations

from airflow.sdk.log import redact  # type: ignore[attr-defined]  # Airflow exports it without saying so


def masked(text: str) -> str:
    """Return the text with the values of connections, sensitive variables and local secrets as `***`."""
    return str(redact(text))
