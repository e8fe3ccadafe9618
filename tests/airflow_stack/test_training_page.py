"""Tests of the Training page: a real API server, a real browser, and trainings in Airflow's database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pytest

import airflow_versions
import browser as chromium
import postgresql
import training_xcoms as trainings
from airflow_stack.training_server import BELOW, training_server
from cluster.fixtures import skip_because
from installed import unbuilt_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_stack.training_server import TrainingServer
    from browser import Browser, Page


RUN = "manual__2026-11-27T02:00:00+00:00"
"""A run id as Airflow makes them: its `+` must not become a space."""

HURRY = 25
"""How many times faster the page's timers run where a test waits for them."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[TrainingServer]:
    skip_because(unbuilt_page() or chromium.unmet())
    root = tmp_path_factory.mktemp("training-page")
    with postgresql.database_if_possible(tell) as address, training_server(root, address) as server:
        server.put(RUN, trainings.LIVE)
        server.put("failed", trainings.FAILED, state="failed")
        server.put("retried", {}, state="failed")
        server.api.clear("digits", "retried", "train")
        server.put("retried", trainings.RETRIED, try_number=2)
        server.put("old", trainings.OLD, state="success")
        server.put("hostile", trainings.HOSTILE_ONE)
        server.put("odd", trainings.ODD)
        server.put("full", trainings.FULL)
        server.put(RUN, trainings.LIVE, dag_id="hidden")
        server.put("mapped", {**trainings.LIVE, "progress": trainings.progress(step=77)}, task_id="sweep", map_index=1)
        yield server


@pytest.fixture(scope="module")
def browser(tell: Callable[[str], None]) -> Iterator[Browser]:
    skip_because(chromium.unmet())
    with chromium.browser(tell) as browser:
        yield browser


@pytest.fixture
def page(server: TrainingServer, browser: Browser) -> Iterator[Page]:
    """Open an empty page whose visitor is signed in to Airflow as its administrator."""
    with browser.page(cookies=server.cookies()) as page:
        yield page


def curves_are_drawn(page: Page) -> bool:
    """Return whether each plot in the page has pixels of more than one colour."""
    drawn = """[...document.querySelectorAll(".plot canvas")].map((canvas) => new Set(new Uint32Array(
        canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size > 3)"""
    return {*page.run(drawn)} == {True}


def asks_nothing_more(page: Page) -> bool:
    """Return whether no request is sent in several times the interval, after those that were under way."""
    pause = "new Promise((done) => setTimeout(done, 20_000))"
    page.run(pause)
    asked = len(page.requests)
    page.run(pause)
    return len(page.requests) == asked


def test_the_page_shows_what_the_visitor_may_see_and_airflows_own_refusal_of_anything_else(
    server: TrainingServer, browser: Browser
) -> None:
    with browser.page(cookies=server.cookies("guest")) as page:
        page.open(server.page("digits", RUN), until="4,500 of 12,000")
        page.open(server.page("hidden", RUN), until="Airflow answers 403 Forbidden")
        for secret in ("4,500", "team-vision", "loss"):
            assert secret not in page.text

    with browser.page() as page:
        page.open(server.page("digits", RUN), until="Airflow answers 401 Unauthorized: Not authenticated")
        page.run("document.querySelector('#status a').click()")
        page.wait_for("Sign in")
        assert "next=" in page.run("location.href")


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (800, True)], ids=["wide", "narrow and dark"])
@pytest.mark.parametrize(
    ("run_id", "shown"),
    [
        (RUN, ("Running", "4,500 of 12,000 (37 %)", "3 of 8", "Time left", "worker-2", "gpu-node-2", "Log of try 1")),
        ("failed", ("Failed", trainings.MESSAGE, trainings.ADVICE, "failed first", "exit code 137", "2 restarts")),
        (
            "retried",
            (
                *("node_lost", "3,000 to 4,500", "50 to 2,950", trainings.RESUMED),
                *("Log of try 1 (failed)", "Log of try 2 (running)"),
            ),
        ),
        ("old", ("Succeeded", "pvc://models/digits/model.pt", "43.03 MiB", trainings.DIGEST, "accuracy 0.981")),
    ],
)
def test_each_training_is_shown_at_both_widths_and_in_both_themes(
    run_id: str, shown: tuple[str, ...], *, width: int, dark: bool, server: TrainingServer, page: Page
) -> None:
    page.look(width=width, dark=dark)
    page.open(server.page("digits", run_id), until=shown[0])

    text = page.text
    assert [each for each in shown if each not in text] == []
    assert run_id == "old" or curves_are_drawn(page)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)"
    )
    assert page.complaints == []
    assert {urlsplit(url).netloc for url in page.requests} == {urlsplit(server.url).netloc}


def test_a_live_training_is_read_anew_and_only_while_it_is_seen(server: TrainingServer, page: Page) -> None:
    page.hurry(HURRY)
    page.open(server.page("digits", "full"), until="4,500 of 12,000")
    server.set_xcom("full", "progress", trainings.progress(step=4600))
    page.wait_for("4,600 of 12,000")

    page.run("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.run("document.dispatchEvent(new Event('visibilitychange'))")
    assert asks_nothing_more(page)

    server.set_xcom("full", "progress", trainings.progress(step=4700))
    page.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for("4,700 of 12,000")


def test_an_ended_training_is_read_once(server: TrainingServer, page: Page) -> None:
    page.hurry(HURRY)
    page.open(server.page("digits", "old"), until="Succeeded")

    assert asks_nothing_more(page)


def test_names_and_messages_of_a_training_are_shown_as_text(server: TrainingServer, page: Page) -> None:
    page.open(server.page("digits", "hostile"), until="Elsewhere")

    assert page.text.count(trainings.HOSTILE) > 10
    assert page.run("document.querySelectorAll('img, main script, [onerror]').length") == 0
    assert page.run("[...document.querySelectorAll('a')].every((link) => /^https?:/.test(link.href))") is True
    assert page.run("document.title") not in {"1", "2"}
    assert page.complaints == []


def test_values_of_other_types_than_promised_are_shown_as_far_as_they_go(server: TrainingServer, page: Page) -> None:
    page.open(server.page("digits", "odd"), until="4,500 of 12,000")

    page.wait_for("Elsewhere")
    assert page.complaints == []


def test_a_mapped_task_has_a_page_of_its_own(server: TrainingServer, page: Page) -> None:
    page.open(server.page("digits", "mapped", "sweep", 1), until="77 of 12,000")

    assert "digits · sweep [1]" in page.text


def test_a_run_id_that_airflow_did_not_escape_is_read_as_well(server: TrainingServer, page: Page) -> None:
    """Airflow 3.1 puts ids into a tab's address as they are."""
    page.open(
        f"{server.url}/ptjob/training/?dag_id=digits&run_id={RUN}&task_id=train&map_index={{MAP_INDEX}}", until="4,500"
    )


def test_the_button_in_airflow_leads_to_the_page(server: TrainingServer, page: Page) -> None:
    page("Page.navigate", url=f"{server.url}/dags/digits/runs/{quote(RUN)}/tasks/train/details")
    page.wait_for("Training")
    link, target = page.run(
        "(({href, target}) => [href, target])([...document.links].find((a) => a.innerText === 'Training'))"
    )

    assert link == server.page("digits", RUN)
    assert urlsplit(link).path == f"{BELOW}/ptjob/training/"
    assert target == ("_self" if airflow_versions.OPENS_OWN_LINKS_IN_PLACE else "_blank")


def test_the_page_can_be_used_by_the_keyboard(server: TrainingServer, page: Page) -> None:
    page.open(server.page("digits", RUN), until="Elsewhere")
    seen = []
    while "SUMMARY" not in seen:
        page.press("Tab")
        seen.append(page.run("document.activeElement.tagName"))
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter")

    page.wait_for("Lowest")


@pytest.mark.soak
def test_a_stored_curve_is_drawn_in_half_a_second(
    server: TrainingServer, page: Page, tell: Callable[[str], None]
) -> None:
    """From the answer with the largest curve that an XCom may have, until all its plots are on the screen."""
    server.set_xcom("full", "progress", trainings.FULL["progress"])
    watch = """new MutationObserver((_, observer) => {
        if (document.querySelectorAll(".plot canvas").length < 16) return;
        observer.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => { window.drawnAt = performance.now(); }));
    }).observe(document, {childList: true, subtree: true})"""
    page("Page.addScriptToEvaluateOnNewDocument", source=watch)
    page.open(server.page("digits", "full"), until="metric_15")
    answered = (
        "performance.getEntriesByType('resource').find(({name}) => name.includes('xcomEntries/progress')).responseEnd"
    )
    took = page.run(f"window.drawnAt - {answered}")
    tell(f"16 plots of {len(json.dumps(trainings.FULL['progress']))} bytes were drawn in {took:.0f} ms")

    assert took < 500
