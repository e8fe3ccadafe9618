"""The pages: each is found from where one starts, each link leads somewhere, lists and headings are whole."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from guide_pages import DOCS

if TYPE_CHECKING:
    from pathlib import Path

ROOT = DOCS.parent
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md")]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
LISTED = re.compile(r"(- [^\n]*\n)\n(?=- )")


def anchors(page: Path) -> set[str]:
    """Return what a link may name of a page, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: str(page.name))
def test_the_readme_leads_to_a_page(page: Path) -> None:
    """Nobody looks into a folder for what he does not know to be there; who works on it starts elsewhere."""
    starts = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()

    assert f"(docs/{page.name})" in starts


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of this repository, and to a heading where one is named."""
    for name, anchor in LINK.findall(page.read_text()):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_lists_have_no_gaps_and_headings_have_room(page: Path) -> None:
    """A blank line in a list makes another list of it; a heading without one above belongs to what is above."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)

    assert LISTED.findall(text) == []
    assert re.findall(r"[^\n]\n(## [^\n]*)", text) == []


def test_a_change_is_told_once() -> None:
    """No two entries of the changelog begin alike: one would be an older text of the other."""
    entries = re.findall(r"^- (.{60})", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert [entry for entry, count in Counter(entries).items() if count > 1] == []


def test_the_page_of_pipelines_names_what_a_steps_environment_may_set() -> None:
    """Every option that is read where a job is made, but those of one machine, which are told of below."""
    read = re.findall(r"self\.(?:text|_document)\(\"(\w+)\"\)", (ROOT / "ptjob_provider/core/options.py").read_text())
    said = (DOCS / "kubeflow-pipelines.md").read_text()

    assert "job_template" in read
    wanted = {f"`PTJOB_{name.upper()}`" for name in read if name != "backend" and not name.startswith("local_")}
    assert {name for name in wanted if name not in said} == set()
