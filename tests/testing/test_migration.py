"""Every example of docs/tutorial.md and docs/migration.md is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import Admin
from ottla.testing import Cluster
from tests.soaks import with_soaks
from tests.waits import WAIT_S

DOCUMENTS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "localhost:9092"
SHELL = """
import os, subprocess, sys
paths = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
subprocess.run(
    ["bash", "-ec", {!r}], stderr=subprocess.STDOUT, check=True, env={{**os.environ, "PATH": paths}}
)
"""


def blocks(document: str) -> dict[str, list[str]]:
    """Return the examples of a document by section."""
    text = (DOCUMENTS / document).read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    found = {section.partition("\n")[0]: BLOCK.findall(section) for section in sections}
    return {title: examples for title, examples in found.items() if examples}


def run(example: str, bootstrap: str) -> str:
    """Run an example in a process of its own, and return what it prints."""
    assert ADDRESS in example
    ran = subprocess.run(
        [sys.executable, "-c", example.replace(ADDRESS, bootstrap)],
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("library", with_soaks(["confluent-kafka", "aiokafka", "kafka-python"]))
def test_both_versions_of_a_program_print_the_same(library: str) -> None:
    """The second one sends another record, so that its offset is one more."""
    before, after = blocks("migration.md")[library]
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("orders", 1)
        first = run(before, cluster.bootstrap)
        second = run(after, cluster.bootstrap)
    assert "stored at 0\n" in first
    assert second == first.replace("stored at 0", "stored at 1")


@pytest.mark.soak
def test_the_tutorial_prints_what_it_shows() -> None:
    """Its commands and programs run in order on one node; the installation is left out."""
    text = (DOCUMENTS / "tutorial.md").read_text(encoding="utf-8")
    steps = re.findall(r"^```(python|bash|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in steps] == ["bash", "text", "python", "python", "text", "bash"]
    printed = ""
    with Cluster() as cluster:
        for kind, step in steps:
            if kind == "text":
                assert printed.endswith(step)
            elif kind == "python":
                printed = run(step, cluster.bootstrap)
            else:
                printed = run(SHELL.format(step), cluster.bootstrap)
    assert re.findall(r"^billing +orders +\d +(\d+) +\1 +0 ", printed, re.MULTILINE)
