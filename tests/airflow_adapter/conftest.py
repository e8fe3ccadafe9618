"""Fixtures that replace Airflow's components: an empty Airflow home, a fake supervisor and a scripted back-end."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ScriptedBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_adapter.stand_ins import FakeComms

if importlib.util.find_spec("airflow") is None:
    collect_ignore_glob = ["*"]
elif "AIRFLOW_HOME" not in os.environ:  # Airflow reads it, and writes a configuration there, when it is imported
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-adapter-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)


@pytest.fixture(autouse=True)
def _instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the installation's name: without a fake supervisor there is no Airflow to read its id from."""
    monkeypatch.setenv("AIRFLOW__PTJOB__INSTANCE", "tests")


@pytest.fixture
def comms() -> Iterator[FakeComms]:
    """Install a fake supervisor in the same way as Airflow's in-process runs."""
    from airflow.sdk.execution_time.supervisor import set_supervisor_comms  # noqa: PLC0415 - not without Airflow

    from airflow_adapter.stand_ins import FakeComms  # noqa: PLC0415 - not without Airflow

    fake = FakeComms()
    with set_supervisor_comms(fake):
        yield fake
    fake.release.set()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Return a function that sets the back-end, whatever connection a task names."""
    from ptjob_provider.airflow.config import SECTION_OPTIONS  # noqa: PLC0415 - not without Airflow
    from ptjob_provider.airflow.connection import ConnectionArgs, ResolvedConnection  # noqa: PLC0415 - not without Airflow

    def set_backend(scripted: Any) -> None:
        def resolve(args: ConnectionArgs) -> ResolvedConnection:
            timeout = SECTION_OPTIONS.api_error_timeout()
            return ResolvedConnection(backend=scripted, namespace=None, args=args, api_error_timeout=timeout)

        async def async_resolve(args: ConnectionArgs) -> ResolvedConnection:
            return resolve(args)

        # Airflow builds operators and triggers from JSON, so no argument can pass a back-end.
        monkeypatch.setattr(ConnectionArgs, "resolve", resolve)
        monkeypatch.setattr(ConnectionArgs, "async_resolve", async_resolve)

    return set_backend


@pytest.fixture
def backend(serve: Callable[[Any], None]) -> ScriptedBackend:
    """Return a back-end that follows the test's script."""
    scripted = ScriptedBackend()
    serve(scripted)
    return scripted


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use this machine as the back-end and return its root."""
    monkeypatch.setenv("AIRFLOW__PTJOB__BACKEND", "local")
    monkeypatch.setenv("AIRFLOW__PTJOB__LOCAL_ROOT", str(tmp_path / "jobs"))
    return tmp_path / "jobs"
