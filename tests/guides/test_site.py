"""Tests of the documentation site: a strict build, working links, and no resources from other servers."""

from __future__ import annotations

import inspect
import os
import posixpath
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from guide_pages import DOCS
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.cli import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROOT = DOCS.parent
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


@dataclass
class Built(HTMLParser):
    """Links, loaded resources, code and anchors of a page."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    codes: set[str] = field(default_factory=set)
    is_code: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links, resources and anchors of a tag."""
        given = {name: value for name, value in attrs if value}
        self.is_code = tag == "code"
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loaded.append(given[LOADED[tag]])

    def handle_data(self, data: str) -> None:
        """Collect the text of code."""
        if self.is_code:
            self.codes.add(data)

    def handle_endtag(self, tag: str) -> None:
        self.is_code = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site and return its folder; a warning of MkDocs fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def built(site: Path) -> Mapping[str, Built]:
    """Return the parsed pages of the site by path."""
    pages = {}
    for file in site.rglob("*.html"):
        page = Built()
        page.feed(file.read_text())
        pages[file.relative_to(site).as_posix()] = page
    return pages


def test_every_link_of_the_site_leads_to_a_page_and_a_heading(site: Path, built: Mapping[str, Built]) -> None:
    """This includes generated pages and the navigation."""
    broken = []
    for name, page in built.items():
        for link in page.links:
            path, _, anchor = link.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if ":" in path or name == "404.html":
                continue
            if not (site / target).is_file() or (anchor and anchor not in built[target].ids):
                broken.append(f"{name}: {link}")

    assert len(built) > 20
    assert broken == []


def test_no_page_loads_anything_from_another_server(site: Path, built: Mapping[str, Built]) -> None:
    """No font, script, style or image; links to other servers are allowed."""
    loaded = {address for page in built.values() for address in page.loaded}
    styles = [file.read_text() for file in site.rglob("*.css")]

    assert [address for address in loaded if "//" in address] == []
    assert [style for style in styles if "url(http" in style or "url(//" in style or "@import" in style] == []


def test_no_page_needs_the_script_that_draws_diagrams(site: Path) -> None:
    """Material would load it from another server for a diagram in text form."""
    assert [file.name for file in site.rglob("*.html") if 'class="mermaid"' in file.read_text()] == []


def test_the_reference_has_every_argument_and_every_command(built: Mapping[str, Built]) -> None:
    """Arguments of the operator are in its table or are fields of the job."""
    arguments = set(inspect.signature(PyTorchJobOperator.__init__).parameters) - {"self", "kwargs"}
    table = {code for code in built["reference/operators.html"].codes if code in arguments}
    commands = {name for section in SECTIONS.values() for name in section}

    assert len(table) > 15
    assert arguments - table - built["reference/fields.html"].ids == set()
    assert {f"ptjob-{name}" for name in commands} - built["reference/cli.html"].ids == set()
