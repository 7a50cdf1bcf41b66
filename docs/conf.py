"""Settings of the site: Sphinx, MyST, furo. `scripts/docs` builds it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Ottla"
author = "The Ottla project"
project_copyright = "2026, The Ottla project"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "examples/*", "plan.md"]
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
INCLUDE = re.compile(r"^```\{include\} (\S+)\n((?::.*\n)*)```$", re.MULTILINE)
OPTION = re.compile(r'^:([\w-]+): "?(.*?)"?$', re.MULTILINE)


def link_documents(_app: Sphinx, name: str, content: list[str]) -> None:
    """Make links of the documents that a page names."""
    content[0] = with_links(name, content[0])


def link_included(_app: Sphinx, _path: Path, _name: str, content: list[str]) -> None:
    """Make links of the documents that an included text names."""
    content[0] = MENTION.sub(r"[\1](/\1.md)", content[0])


def with_links(name: str, text: str) -> str:
    """Return a page's text with links to the documents that it names."""
    up = "../" * name.count("/")
    linked = MENTION.sub(rf"[\1]({up}\1.md)", text)
    return README.sub(f"]({up}limits.md)", linked)


def markdown(directory: Path, name: str) -> str:
    """Return a page as Markdown, with the documents that it includes."""
    path = directory / f"{name}.md"

    def included(found: re.Match[str]) -> str:
        options = dict(OPTION.findall(found[2]))
        text = (path.parent / found[1]).read_text(encoding="utf-8")
        text = text[text.find(options.get("start-after", "")) :]
        text = text.removeprefix(options.get("start-after", ""))
        end = text.find(options["end-before"]) if "end-before" in options else len(text)
        return text[:end].replace(f"]({options.get('relative-docs', '')}", "](").strip()

    return with_links(name, INCLUDE.sub(included, path.read_text(encoding="utf-8")))


def write_markdown(app: Sphinx, error: Exception | None) -> None:
    """Write every page as Markdown, and llms.txt, which lists them in the order of the toctrees."""
    if error is not None:
        return
    titles = app.env.titles
    lines = [f"# {project}", "", f"> {SUMMARY}", "", "## Pages", ""]
    for name in pages(app):
        Path(app.outdir, f"{name}.md").write_text(markdown(Path(app.srcdir), name), "utf-8")
        lines.append(f"- [{titles[name].astext()}]({name}.md)")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copytree(Path(app.srcdir, "examples"), Path(app.outdir, "examples"), dirs_exist_ok=True)


def pages(app: Sphinx, name: str = "index") -> list[str]:
    """Return a page and those below it."""
    below = app.env.toctree_includes.get(name, ())
    return [name, *(one for child in below for one in pages(app, child))]


def setup(app: Sphinx) -> None:
    """Connect them."""
    app.connect("source-read", link_documents)
    app.connect("include-read", link_included)
    app.connect("build-finished", write_markdown)
