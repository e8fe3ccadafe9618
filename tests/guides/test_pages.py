"""Tests of the documentation's Markdown: links, code blocks, examples and paths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from guide_pages import DOCS
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.core.spec.job import job_template
from ptjob_provider.retraining.triggers import DataArrivalTrigger
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

ROOT = DOCS.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("deploy/*.md"), *ROOT.glob("docker/*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
ARCHITECTURE = DOCS / "explanation" / "architecture.md"
NAMED = re.compile(r"((?:\w[\w.-]*/)+(?:[\w.-]+\.(?:py|md|yaml|mod)|Dockerfile)?(?!\w)|\w+\.py)((?:::\w+)*)")
"""A file or a directory such as `core/spec/`, or a name in a file such as `core/run/follow.py::follow`."""

GENERATED = {"cli", "causes", "component", "examples", "fields", "operators", "options", "result"}
"""Pages of the reference that are generated from the code (`test_site.py` checks links to them)."""

BLOCK = re.compile(r"(?:^( *)```.*?^\1```$)|(?:(?<=\n\n)(?: {4}.*\n)+)", re.DOTALL | re.MULTILINE)
"""A code block: fenced, or indented after an empty line. Output of programs is in `text` blocks."""

MARKER = re.compile(r"<!-- (?:tested: (\S+)|not tested: (\S.*)) -->\s*\Z")
"""The test that runs the next block, or the reason why none does."""

ROOTS = (ROOT / "ptjob_provider", ROOT)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub derives them from the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_row("page", PAGES)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of this repository, with the heading if the link has one, or to a page that the site generates."""
    for name, anchor in LINK.findall(page.read_text()):
        target = (page.parent / name).resolve() if name else page
        if target.parent == DOCS / "reference" and target.stem in GENERATED:
            continue
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


@each_row("page", sorted(DOCS.rglob("*.md")))
def test_every_block_of_code_says_which_test_runs_it_or_why_none_does(page: Path) -> None:
    """In a comment before the block; the test's file has to exist."""
    text = page.read_text()
    starts = [block.start() for block in BLOCK.finditer(text) if is_code(text, block)]
    marks = [MARKER.search(text, 0, start) for start in starts]

    assert [text[start : start + 60] for start, mark in zip(starts, marks, strict=True) if mark is None] == []
    assert [mark[1] for mark in marks if mark and mark[1] and not (ROOT / mark[1]).is_file()] == []


def is_code(text: str, block: re.Match[str]) -> bool:
    """Return whether a block is code: not text, not a diagram, and not the continuation of a list item."""
    fence = block[0].lstrip()
    before = [line for line in text[: block.start()].splitlines() if line and not line.startswith(" ")]
    if fence.startswith("```"):
        return not fence.startswith(("```text", "```mermaid"))
    return not re.match(r"[-*] |\d+\. ", before[-1])


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_installations_template_of_the_page_is_one() -> None:
    """Every field is allowed in an installation's template."""
    (shown,) = blocks("how-to/kubernetes-backend.md", "yaml")

    assert job_template(yaml.safe_load(shown), field="job_template").service_account_name == "trainer"


def test_the_entries_of_the_page_on_retries_are_read() -> None:
    """The operator reads them when the DAG is parsed."""
    (shown,) = blocks("explanation/failures.md", "python")
    operator: PyTorchJobOperator = eval(shown, {"PyTorchJobOperator": PyTorchJobOperator})  # noqa: S307 - our own page

    assert operator.retries == 3


def test_the_dag_of_the_page_on_arriving_data_is_one() -> None:
    """It has a watcher for the store."""
    (shown,) = blocks("how-to/data-arrival.md", "python")
    made: dict[str, Any] = {}

    exec(shown, made)  # noqa: S102 - as above

    (watcher,) = made["incoming"].watchers
    assert isinstance(watcher.trigger, DataArrivalTrigger)


def test_every_name_in_the_architecture_page_exists() -> None:
    """Every path exists below the package or the repository, and every name exists in its file."""
    named = [(found[1], found[2].split("::")[1:]) for found in NAMED.finditer(ARCHITECTURE.read_text())]
    files = {name: next((root / name for root in ROOTS if (root / name).exists()), None) for name, _ in named}
    texts = {name: file.read_text() for name, file in files.items() if file is not None and file.is_file()}

    assert len(texts) > 100
    assert [name for name, file in files.items() if file is None] == []
    assert [(name, word) for name, words in named for word in words if not re.search(rf"\b{word}\b", texts[name])] == []


def test_the_architecture_has_a_sentence_for_each_folder() -> None:
    """It has none for folders that no longer exist."""
    packages = (ROOT / "ptjob_provider").glob("**/__init__.py")
    folders = {f"{file.parent.relative_to(ROOT / 'ptjob_provider')}/" for file in packages}
    table = ARCHITECTURE.read_text().partition("## Folders")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == folders - {"./"}


def test_the_page_of_pipelines_names_what_a_steps_environment_may_set() -> None:
    """Every option that affects a job; options of the local back-end are described elsewhere on the page."""
    read = re.findall(
        r"self\.(?:text|_document)\(\"(\w+)\"\)", (ROOT / "ptjob_provider/core/run/options.py").read_text()
    )
    said = (DOCS / "how-to" / "kubeflow-pipelines.md").read_text()

    assert "job_template" in read
    wanted = {f"`PTJOB_{name.upper()}`" for name in read if name != "backend" and not name.startswith("local_")}
    assert {name for name in wanted if name not in said} == set()
