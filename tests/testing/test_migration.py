"""Every Python example of docs/tutorial.md and docs/migration.md is run, section by section."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import Admin
from ottla.testing import Cluster

DOCUMENTS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "localhost:9092"


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
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("library", ["confluent-kafka", "aiokafka", "kafka-python"])
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


def test_the_programs_of_the_tutorial_print_what_it_shows() -> None:
    """The producer's records are those that the consumer reads."""
    programs = [one for examples in blocks("tutorial.md").values() for one in examples]
    assert len(programs) == 2
    with Cluster() as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("orders", 3)
        printed = [run(one, cluster.bootstrap) for one in programs]
    assert printed == ["", "[1, 2, 3]\n"]
    shown = (DOCUMENTS / "tutorial.md").read_text(encoding="utf-8")
    assert f"\n```text\n{printed[-1]}```\n" in shown
