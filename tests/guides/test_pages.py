"""The pages: each is found from where one starts, and each link leads somewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from guide_pages import DOCS
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

ROOT = DOCS.parent
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md")]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
ARCHITECTURE = DOCS / "architecture.md"
NAMED = re.compile(r"((?:\w[\w.-]*/)+(?:[\w.-]+\.(?:py|md|yaml|mod)|Dockerfile)?(?!\w)|\w+\.py)((?:::\w+)*)")
"""A file or a folder, `core/spec/`, with what is in it, `core/runner.py::follow`."""

CITED = re.compile(r"\b(?:\w[\w-]*/)*\w[\w-]*\.md\b")
"""`docs/kinds.md`, and not the call `hashlib.md5(`."""

ROOTS = (ROOT / "ptjob_provider", ROOT)
SOURCES = ("ptjob_provider", "tests", "benchmarks", "scripts", "demo", "dags", "pipelines", "docker")


def anchors(page: Path) -> set[str]:
    """Return what a link may name of a page, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_row("page", sorted(DOCS.glob("*.md")))
def test_the_readme_leads_to_a_page(page: Path) -> None:
    """Nobody looks into a folder for what he does not know to be there; who works on it starts elsewhere."""
    starts = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()

    assert f"(docs/{page.name})" in starts


@each_row("page", PAGES)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of this repository, and to a heading where one is named."""
    for name, anchor in LINK.findall(page.read_text()):
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


def test_all_that_the_architecture_names_is_there() -> None:
    """Each path, below the package or the repository, and each name that stands behind it, in that file."""
    named = [(found[1], found[2].split("::")[1:]) for found in NAMED.finditer(ARCHITECTURE.read_text())]
    files = {name: next((root / name for root in ROOTS if (root / name).exists()), None) for name, _ in named}
    texts = {name: file.read_text() for name, file in files.items() if file is not None and file.is_file()}

    assert len(texts) > 100
    assert [name for name, file in files.items() if file is None] == []
    assert [(name, word) for name, words in named for word in words if not re.search(rf"\b{word}\b", texts[name])] == []


def test_the_architecture_has_a_sentence_for_each_folder() -> None:
    """And none for a folder that is not there any more."""
    packages = (ROOT / "ptjob_provider").glob("**/__init__.py")
    folders = {f"{file.parent.relative_to(ROOT / 'ptjob_provider')}/" for file in packages}
    table = ARCHITECTURE.read_text().partition("## Folders")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == folders - {"./"}


def test_no_source_cites_a_document_that_is_not_here() -> None:
    """Whoever reads the code has this repository and no other notes."""
    files = [file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")]
    places = [ROOT, DOCS, ROOT / "docker", ROOT / "tests"]
    cited = [(file, name) for file in files for name in CITED.findall(file.read_text())]

    assert {name for _, name in cited} > {"docs/kinds.md", "promises.md"}
    assert [
        f"{file.relative_to(ROOT)}: {name}"
        for file, name in cited
        if not any((place / name).exists() for place in places)
    ] == []


def test_the_page_of_pipelines_names_what_a_steps_environment_may_set() -> None:
    """Every option that is read where a job is made, but those of one machine, which are told of below."""
    read = re.findall(r"self\.(?:text|_document)\(\"(\w+)\"\)", (ROOT / "ptjob_provider/core/options.py").read_text())
    said = (DOCS / "kubeflow-pipelines.md").read_text()

    assert "job_template" in read
    wanted = {f"`PTJOB_{name.upper()}`" for name in read if name != "backend" and not name.startswith("local_")}
    assert {name for name in wanted if name not in said} == set()
