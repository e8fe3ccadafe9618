"""Add pages of files outside docs/ to the site, and replace diagrams with pictures.

A hook of MkDocs (mkdocs.yml). Links in docs/ lead to files of the repository, so that they work in a repository
browser. This module replaces each with a link to the file's page on the site, or with its text if there is no page.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

import merm
import reference
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
EXAMPLES = "reference/examples"
PAGES = {
    "CHANGELOG.md": "project/changelog",
    "CONTRIBUTING.md": "project/contributing",
    "DECISIONS.md": "project/decisions",
    "README.md": "index",
    "SECURITY.md": "project/security-policy",
    "deploy/README.md": "how-to/deploy",
    "docker/README.md": "how-to/images",
}
"""Files of the repository, and their pages on the site without the suffix."""

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COLOURS = merm.Theme(
    node_fill="var(--md-code-bg-color)",
    node_stroke="var(--md-primary-fg-color)",
    node_text_color="var(--md-default-fg-color)",
    text_color="var(--md-default-fg-color)",
    edge_stroke="var(--md-default-fg-color--light)",
    edge_label_bg="var(--md-default-bg-color)",
    background_color="none",
    font_family="inherit",
)
CODE_IN_CELL = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
CELL = re.compile(r"(?<=</td>\n)<td[ >].*?</td>", re.DOTALL)
"""A cell of a table, except the first one of a row: the names there are not broken."""

NO_BREAK = "\ue000"
"""Replaces each space in a diagram's label, because the renderer would break lines even if they fit into the box."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    texts = {page: with_links((ROOT / source).read_text(), source, page) for source, page in PAGES.items()}
    texts |= {EXAMPLES: examples(), **reference.pages()}
    for page, text in texts.items():
        if page != "index":
            files.append(File.generated(config, f"{page}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs
    """Return a page's text with links of the site and with pictures instead of diagrams."""
    uri = page.file.src_uri
    text = markdown if page.file.generated_by else with_links(markdown, f"docs/{uri}", uri)
    return MERMAID.sub(lambda block: picture(block[1]), text)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - MkDocs
    """Allow browsers to break long names in tables after `.`, `_`, `/`, `=` and `::`, and nowhere else."""

    def breakable(code: re.Match[str]) -> str:
        return re.sub(r"(?<=\w)([._/=]|::)(?=\w)", r"\1<wbr>", code[0])

    return CELL.sub(lambda cell: CODE_IN_CELL.sub(breakable, cell[0]), output)


def with_links(text: str, source: str, uri: str) -> str:
    """Return a file's text with links between repository files turned into links between pages."""
    parts, end = [], 0
    for fenced in FENCED.finditer(text):
        parts += [LINK.sub(lambda link: site_link(link, source, uri), text[end : fenced.start()]), fenced[0]]
        end = fenced.end()
    return "".join(parts) + LINK.sub(lambda link: site_link(link, source, uri), text[end:])


def site_link(link: re.Match[str], source: str, uri: str) -> str:
    """Return the link for the site, or its text if the target has no page there."""
    image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    if not target:
        return link[0]
    page, anchor = place_of(posixpath.normpath(posixpath.join(posixpath.dirname(source), target)), anchor)
    if not page:
        return text
    return f"{image}[{text}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{anchor})"


def place_of(path: str, anchor: str) -> tuple[str, str]:
    """Return page and anchor on the site for a file of the repository; the page is "" if there is none."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/"), anchor
    if path in {"dags", "pipelines"}:
        return f"{EXAMPLES}.md", f"#{path}"
    if path in {source for source, _ in example_files()}:
        return f"{EXAMPLES}.md", f"#{Path(path).stem}"
    if path in PAGES:
        return f"{PAGES[path]}.md", anchor
    page = PAGES.get(f"{path.partition('/')[0]}/README.md")
    return f"{page}.md" if page else "", ""


def example_files() -> list[tuple[str, str]]:
    """Return path and source of each example."""
    paths = sorted([*(ROOT / "dags").glob("*.py"), *(ROOT / "pipelines").glob("*.py")])
    return [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]


def examples() -> str:
    """Return the page with all example DAGs and pipelines."""
    lines = ["# Examples", "", "The tests run each of these files as it stands here."]
    folder = ""
    for path, source in example_files():
        name = Path(path)
        if folder != name.parent.name:
            folder = name.parent.name
            lines += ["", f"## {'DAGs' if folder == 'dags' else 'Pipelines'}"]
        summary = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0].replace("\n", " ")
        lines += ["", f"### {name.stem}", "", summary, "", f"`{path}`", ""]
        lines += ["```python", source.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def picture(diagram: str) -> str:
    """Return a diagram as an SVG picture in the colours of the page."""
    whole = re.sub(r'"[^"]*"', lambda label: label[0].replace(" ", NO_BREAK).replace("<br>", "<br/>"), diagram)
    svg = re.sub(r">\s+<", "><", merm.render_diagram(whole, theme=COLOURS).replace(NO_BREAK, " "))
    return f'<div class="diagram">{svg}</div>'
