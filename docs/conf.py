"""Settings of the site: Sphinx, MyST, furo. `scripts/docs` builds it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Ottla"
author = "The Ottla project"
project_copyright = "2026, The Ottla project"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "examples/*"]
html_theme = "furo"
html_title = "Ottla"
html_show_sphinx = False
myst_heading_anchors = 3
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # JSON and shell with … in it

SUMMARY = (
    "Apache Kafka in Python: a node that Kafka clients use like Apache Kafka 4.3, native clients, "
    "the kafka-*.sh tools, pytest fixtures and a data source for Apache Spark."
)
MENTION = re.compile(r"`docs/([\w-]+)\.md`")
README = re.compile(r"\]\(\.\./README\.md\)")


def link_documents(_app: Sphinx, name: str, content: list[str]) -> None:
    """Make links of the documents that a page names."""
    up = "../" * name.count("/")
    linked = MENTION.sub(rf"[\1]({up}\1.md)", content[0])
    content[0] = README.sub(f"]({up}limits.md)", linked)


def write_index_for_models(app: Sphinx, error: Exception | None) -> None:
    """Write llms.txt: every page in the order of the toctrees, with its source as Markdown."""
    if error is not None:
        return
    titles = app.env.titles
    lines = [f"# {project}", "", f"> {SUMMARY}", "", "## Pages", ""]
    lines += [f"- [{titles[name].astext()}](_sources/{name}.md.txt)" for name in pages(app)]
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def pages(app: Sphinx, name: str = "index") -> list[str]:
    """Return a page and those below it."""
    below = app.env.toctree_includes.get(name, ())
    return [name, *(one for child in below for one in pages(app, child))]


def setup(app: Sphinx) -> None:
    """Connect both."""
    app.connect("source-read", link_documents)
    app.connect("build-finished", write_index_for_models)
