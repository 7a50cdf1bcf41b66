"""The fenced snippets of README.md and docs/, and which of them are not run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^##{1,2} ", re.MULTILINE)
ADDRESS = "localhost:9092"
OWN_TESTS = {
    "docs/connect.md": "tests/connect/test_standalone.py",
    "docs/directory.md": "tests/connect/directory/test_sink.py",
    "docs/generator.md": "tests/connect/generator/test_document.py",
    "docs/jdbc.md": "tests/connect/jdbc/test_document.py",
    "docs/mirroring.md": "tests/connect/mirror/test_mirror_flows.py",
    "docs/security.md": "tests/server/security/test_document.py",
    "docs/spark.md": "tests/spark/test_document.py",
    "docs/streams.md": "tests/streams/test_document.py",
    "docs/migration.md": "tests/testing/test_migration.py",
    "docs/tables.md": "tests/tables/test_document.py",
    "docs/testing.md": "tests/testing/test_document.py",
    "docs/tutorial.md": "tests/testing/test_migration.py",
}
"""Pages that another test runs."""
NOT_RUN = {
    "pip install '.[spark]' && ottla quickstart": (
        "installs from an index; tests/cli/commands/test_quickstart.py runs the second command"
    ),
    "scripts/setup && scripts/test": "this very run",
    "pip install --force-reinstall --no-deps .": "replaces the installation that runs the tests",
    "docker build -f packaging/container/Containerfile -t ottla .": (
        "needs a container daemon; tests/packaging/test_container.py runs what the image starts"
    ),
    "sudo useradd --system --home-dir /var/lib/ottla ottla": (
        "changes users and services; tests/packaging/test_systemd.py verifies and runs the unit"
    ),
    "scrape_configs:": (
        "a part of Prometheus' file; tests/conformance/test_prometheus.py runs a whole one"
    ),
}
"""First lines of snippets that no test runs, with the reason."""


def section(page: str, title: str) -> list[Snippet]:
    """Return the snippets below a heading, up to the next one of its level or above."""
    text = (ROOT / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n### {title}\n")
    return [Snippet(*one) for one in BLOCK.findall(HEADING.split(rest)[0])]


class Snippet(NamedTuple):
    """A fenced block."""

    kind: str
    text: str


def snippets(page: str) -> list[Snippet]:
    """Return the snippets of a page that are run."""
    found = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return [Snippet(*one) for one in found if one[1].partition("\n")[0] not in NOT_RUN]


class Printed(BaseException):
    """A program printed its first line, which ends it: some of them never end by themselves."""


def first_printed(text: str, bootstrap: str, **names: object) -> str:
    """Run a program until it prints; return the line."""

    def show(*values: object) -> None:
        raise Printed(" ".join(map(str, values)))

    program = compile(text.replace(ADDRESS, bootstrap), "<snippet>", "exec")
    with pytest.raises(Printed) as printed:
        exec(program, {"__name__": "snippet", "print": show, **names})
    return str(printed.value)
