"""The part of `compat` that only triggers and hooks need, so that DAG files do not load Airflow's triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from asgiref.sync import sync_to_async

from ptjob_provider.airflow.compat import AIRFLOW

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from pydantic import JsonValue

__all__ = ["SharedStreamProducer", "amask_secret", "get_async_connection", "get_async_extra_dejson"]

# Needed until the minimum is 3.3.
if AIRFLOW >= (3, 3):
    from airflow.sdk.log import amask_secret
    from airflow.triggers.shared_stream import SharedStreamProducer
else:
    from airflow.sdk.log import mask_secret

    class SharedStreamProducer:  # type: ignore[no-redef]
        """Empty base class; an older Airflow has no shared streams, and calls each trigger's `run` instead."""

    async def amask_secret(secret: JsonValue, name: str | None = None) -> None:
        """Mask a secret in a thread, because sending it to the supervisor needs the event loop."""
        await sync_to_async(mask_secret)(secret, name)


try:
    from airflow.providers.common.compat.connection import get_async_connection, get_async_extra_dejson
except ImportError:  # the providers of Airflow 3.1's and 3.2's own constraints

    async def get_async_connection(conn_id: str) -> Connection:  # type: ignore[misc]
        """Return a connection without blocking the event loop."""
        return await sync_to_async(BaseHook.get_connection)(conn_id)

    async def get_async_extra_dejson(conn: Connection) -> dict[str, Any]:
        """Return a connection's extras without blocking the event loop."""
        return await sync_to_async(lambda: conn.extra_dejson)()
