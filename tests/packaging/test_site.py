"""What `scripts/docs` puts into the site; the build itself is part of CI."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import ottla
from ottla import spark, streams
from ottla.config.broker import BrokerConfig
from ottla.config.client import ConsumerConfig
from ottla.testing import Cluster

ROOT = Path(__file__).parents[2]
DOCUMENTS = ROOT / "docs"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write the reference; return its pages."""
    directory = tmp_path_factory.mktemp("reference")
    script = ROOT / "scripts" / "write_reference.py"
    subprocess.run([sys.executable, script, directory], check=True)
    return {path.stem: path.read_text(encoding="utf-8") for path in directory.iterdir()}


def listed() -> set[str]:
    """Return the pages in the toctrees of the index."""
    text = (DOCUMENTS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
    lines = (line for tree in trees for line in tree.splitlines())
    return {line for line in lines if line and not line.startswith(":")}


def test_every_document_is_in_the_contents(reference: dict[str, str]) -> None:
    """A document that docs/index.md does not list would not be found, and fails the build.

    The plan of open work, while there is one, is no page of the site.
    """
    written = {path.stem for path in DOCUMENTS.glob("*.md")} - {"index", "plan"}
    assert listed() == written | {f"reference/{name}" for name in reference} | {"decisions/index"}


def test_the_readme_links_every_guide() -> None:
    """The table of the README has each document, but those that include others."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    included = {"index", "examples", "limits", "changelog", "contributing", "security", "plan"}
    names = {path.stem for path in DOCUMENTS.glob("*.md")} - included
    assert not sorted(name for name in names if f"(docs/{name}.md)" not in text)


def test_the_reference_has_every_setting_and_name(reference: dict[str, str]) -> None:
    """It is written from the definitions."""
    for name, key in BrokerConfig.keys.items():
        assert key.internal or f"\n| `{name}` | " in reference["broker-settings"]
    for name, key in ConsumerConfig.keys.items():
        assert key.internal or f"\n| `{name}` | " in reference["client-settings"]
    names = [name for name in ottla.__all__ if not name.startswith("_")]
    shown = set(re.findall(r"^(?:### |\| `)(\w+)", reference["api"], re.MULTILINE))
    assert not {*names, *streams.__all__, *spark.__all__} - shown
    for facade in (ottla.Producer, ottla.Consumer, ottla.Admin, ottla.ShareConsumer):
        section = reference["api"].partition(f"\n### {facade.__name__}\n")[2].partition("\n### ")[0]
        methods = set(re.findall(r"^- `(?:await )?(\w+)", section, re.MULTILINE))
        public = {name for name in vars(facade) if not name.startswith("_")}
        assert not public - methods


def test_the_front_pages_diagram_fits_a_narrow_window() -> None:
    """The theme shows some 80 columns in a window of 1280 pixels, and cuts what is wider."""
    for page in (DOCUMENTS / "index.md", ROOT / "README.md"):
        for block in re.findall(r"```text\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            if "◄" in block:
                assert max(map(len, block.splitlines())) <= 78


def test_the_reference_has_every_metric_of_a_node(reference: dict[str, str]) -> None:
    """Both spellings of what a node serves."""
    config = {"metrics.listener": "127.0.0.1:0", "metrics.names": "both"}
    with Cluster(config=config) as cluster, urllib.request.urlopen(cluster.metrics_url) as answer:
        served = set(re.findall(r"^# TYPE (\S+)", answer.read().decode(), re.MULTILINE))
    assert len(served) > 100
    shown = set(re.findall(r"`([a-z_]+)`", reference["metrics"]))
    assert not {name for name in served if name.removesuffix("_total") not in shown} - shown


def test_pages_are_there_as_markdown(reference: dict[str, str]) -> None:
    """The files that llms.txt names have what a page includes; each link leads to a file."""
    markdown = runpy.run_path(str(DOCUMENTS / "conf.py"))["markdown"]
    pages = {name: markdown(DOCUMENTS, name) for name in listed() if "/" not in name}
    assert "\n## 0.1.0\n" in pages["changelog"]
    assert "worker.py" in pages["examples"]
    assert "client.quota.callback.class" in pages["limits"]
    assert "## Broker" not in pages["limits"]
    for name, text in pages.items():
        assert "{include}" not in text
        prose = re.sub(r"(?s)```.*?```|`[^`\n]*`", "", text)
        links = re.findall(r"\]\((?!https?:)([^)#\s]+)", prose)
        places = (DOCUMENTS, ROOT / "examples")
        lost = [link for link in links if not any((place / link).exists() for place in places)]
        assert not [
            link for link in lost if link.removeprefix("reference/")[:-3] not in reference
        ], name
