"""Every example of docs/testing.md is run, section by section, and the test of README.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.testing import Cluster
from tests.waits import WAIT_S

README = Path(__file__).parents[2] / "README.md"
DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "localhost:9092"


class Example(NamedTuple):
    """Files of one section, the command that runs them, and what it prints."""

    files: dict[str, str]
    command: str
    output: str


def examples() -> dict[str, list[Example]]:
    """Return the examples by section; a file that comes again begins another."""
    found: dict[str, list[Example]] = {}
    for section in re.split(r"^## ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE):
        title = section.partition("\n")[0]
        for kind, text in BLOCK.findall(section):
            listed = found.setdefault(title, [])
            if kind != "python":
                last = listed[-1]
                listed[-1] = last._replace(
                    **{"sh": {"command": text}, "text": {"output": text}}[kind]
                )
                continue
            name = text.partition("\n")[0].removeprefix("# ")
            if not listed or name in listed[-1].files:
                listed.append(Example({}, "pytest", ""))
            listed[-1].files[name] = text
    return found


def only(title: str) -> Example:
    """Return the single example of a section."""
    (example,) = examples()[title]
    return example


def example_of_the_readme() -> Example:
    """Return the test that README.md shows."""
    (text,) = (text for kind, text in BLOCK.findall(README.read_text("utf-8")) if "kafka)" in text)
    return Example({"test_readme.py": text}, "pytest", "")


def plain() -> list[tuple[str, Example]]:
    """Return the examples that `pytest` without options runs, with the titles of their sections."""
    return [
        (title, example)
        for title, listed in examples().items()
        for example in listed
        if example.command == "pytest" and not example.output
    ]


def write(directory: Path, example: Example) -> None:
    """Write the files of an example."""
    directory.mkdir(exist_ok=True)
    for name, text in example.files.items():
        shorter = text.replace(
            ".within(2).exactly(", ".within(0.5).exactly("
        )  # waits for all of it
        (directory / name).write_text(shorter, encoding="utf-8")


def run(directory: Path, *arguments: str) -> tuple[dict[str, int], str]:
    """Run pytest in a process of its own; return the number of each outcome, and the output."""
    options: tuple[str, ...] = ("--import-mode=importlib",)
    for plugin in ("randomly", "cacheprovider", "hypothesispytest", "anyio"):  # slow to load
        options += ("-p", f"no:{plugin}")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
        check=False,
    )
    summary = ran.stdout.splitlines()[-1]
    found = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", summary)}
    kinds = ("passed", "failed", "error", "skipped")
    outcomes = {kind: found[kind] for kind in kinds if kind in found}
    return outcomes or {ran.stderr: 1}, ran.stdout


def count(examples: list[Example]) -> int:
    """Return the number of tests."""
    return sum(text.count("def test_") for one in examples for text in one.files.values())


@pytest.mark.conformance
def test_examples_without_a_conftest_pass(tmp_path: Path) -> None:
    """All in one run of two processes, each in a directory of its own."""
    parallel = only("Several processes")
    chosen = [example for _, example in plain() if "conftest.py" not in example.files]
    assert len(chosen) == 11
    chosen.append(example_of_the_readme())
    for number, example in enumerate([*chosen, parallel]):
        write(tmp_path / f"example{number}", example)
    outcomes, output = run(tmp_path, *shlex.split(parallel.command)[1:])
    assert outcomes == {"passed": count(chosen) + 4}, output
    assert "2 workers" in output


@pytest.mark.conformance
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=f"{title.replace(' ', '-')}-{number}")
        for number, (title, example) in enumerate(plain())
        if "conftest.py" in example.files
    ],
)
def test_examples_with_a_conftest_pass(tmp_path: Path, example: Example) -> None:
    """Each in a run of its own, because its conftest.py changes the node that tests share."""
    write(tmp_path, example)
    outcomes, output = run(tmp_path)
    assert outcomes == {"passed": count([example])}, output


@pytest.mark.conformance
def test_tests_run_against_a_given_broker(tmp_path: Path) -> None:
    """Those that need a broker of their own are skipped; tests/conformance takes real Kafka."""
    example = only("The same tests on real Kafka")
    write(tmp_path, example)
    with Cluster() as cluster:
        address = cluster.bootstrap
        command = example.command.replace(ADDRESS, address)
        outcomes, output = run(tmp_path, *shlex.split(command)[1:], "-rs")
    assert outcomes == {"passed": 1, "skipped": 1}, output
    assert f"\nottla: tests run against {address}\n" in output
    assert f"needs a broker of its own, but --ottla-url names {address}" in output


@pytest.mark.conformance
def test_a_failing_test_shows_what_the_document_says(tmp_path: Path) -> None:
    """The line of the test, the content of the topic, and a section of the report."""
    example = only("What a failing test shows")
    write(tmp_path, example)
    outcomes, output = run(tmp_path)
    assert outcomes == {"failed": 1}, output
    pattern = re.escape(example.output).replace("…", r"[\w-]+")
    assert re.search(pattern, re.sub(r" +\n", "\n", output)), output
    for text in ("- kafka -", "\nbroker 127.0.0.1:", "\ntopic orders-1-"):
        assert text in output
    assert "src/ottla" not in output
