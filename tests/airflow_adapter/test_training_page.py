"""Tests of how Airflow gets at the Training page: the button, the tab, the files and their policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from airflow_adapter.stand_ins import StandInTaskInstance
from ptjob_provider.airflow import training_page
from ptjob_provider.airflow.links import PyTorchJobTrainingLink
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.airflow.plugin import TrainingPagePlugin

if TYPE_CHECKING:
    from pathlib import Path

OPERATOR = PyTorchJobOperator(task_id="train", image="digits")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that is served, with a page."""
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "index.html").write_text("<title>Training</title>")
    (tmp_path / "secret.txt").write_text("not served")
    monkeypatch.setattr(training_page, "_BUILT", folder)
    return folder


@pytest.fixture(autouse=True)
def forget() -> Any:
    """Look for the files anew in each test."""
    training_page._files.cache_clear()
    yield
    training_page._files.cache_clear()


async def answer(path: str) -> httpx.Response:
    """Return the answer of a server that mounts the page as Airflow's does."""
    app = Starlette(routes=[Mount(training_page.PREFIX, training_page.training_page)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://airflow") as client:
        return await client.get(f"{training_page.PREFIX}{path}")


def test_the_button_names_the_task_whatever_is_in_its_ids() -> None:
    """It names no server: Airflow may be below a path, and the worker need not know its address."""
    ids = {"dag_id": "team.digits", "run_id": "manual__2026-11-27T02:00:00+00:00/a b&c=d#e%", "task_id": "Ä?"}
    ti = StandInTaskInstance(**ids, map_index=3)

    link = urlsplit(PyTorchJobTrainingLink().get_link(OPERATOR, ti_key=ti))

    assert (link.scheme, link.netloc, link.path, link.fragment) == ("", "", "ptjob/training/", "")
    assert {name: value for name, (value,) in parse_qs(link.query).items()} == {**ids, "map_index": "3"}


async def test_every_file_has_the_policy(built: Path) -> None:
    page = await answer("/")

    assert (page.status_code, page.text) == (200, "<title>Training</title>")
    rules = {rule.strip() for rule in page.headers.get("content-security-policy", "").split(";")}
    assert rules >= {
        *(f"{kind} 'none'" for kind in ("default-src", "base-uri", "form-action", "trusted-types")),
        *(f"{kind} 'self'" for kind in ("script-src", "style-src", "connect-src", "img-src", "frame-ancestors")),
        "require-trusted-types-for 'script'",
    }
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/../secret.txt", "/%2e%2e/secret.txt", "//secret.txt", "/other.js"])
async def test_nothing_else_is_served(built: Path, path: str) -> None:
    assert (await answer(path)).status_code == 404


async def test_a_source_tree_without_npm_says_how_to_build_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_page, "_BUILT", tmp_path / "built")

    page = await answer("/")

    assert (page.status_code, "make page" in page.text) == (503, True)
    assert "content-security-policy" in page.headers


def test_the_tab_is_there_only_if_it_is_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow would show it on every task."""
    assert TrainingPagePlugin.external_views == []

    monkeypatch.setenv("AIRFLOW__PTJOB__TRAINING_TAB", "True")

    (tab,) = TrainingPagePlugin.external_views
    assert tab["destination"] == "task_instance"
    assert tab["href"].startswith("ptjob/training/?dag_id={DAG_ID}&run_id={RUN_ID}&")
