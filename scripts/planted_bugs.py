#!/usr/bin/env python3
"""Plant bugs one at a time and check that a simulation or a test finds each.

    .venv/bin/python scripts/planted_bugs.py [--by tests|quorum|replicas|cluster] [--only NAME,NAME]
        [--max-events COUNT]

`tests/planted_bugs.toml` lists them: `at` names a function or class of src/ottla, `old` a text
there and `new` its replacement. Texts are compared token by token: line breaks, indents, comments
and the module are free. The sources are copied to a temporary directory; there each bug is planted,
and what `by` names must find it: a test must fail, or a seed 0, 1, 2 … of the simulation within
`--max-events`. Before that, the tests must pass on the unchanged copy. Code that cannot be imported
or run is no find.

Prints each bug with its failure and finally `N of M found`. Exits with 1 unless all are found.

Kafka: none.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import importlib.machinery
import io
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
import tomllib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PLANTS = ROOT / "tests" / "planted_bugs.toml"
SIMULATIONS = {"quorum": "quorum_seeds", "replicas": "replica_seeds", "cluster": "cluster_seeds"}
MAX_EVENTS = 10_000_000
MIN_TIME_LIMIT_S = 1200
SLOWEST_EVENTS_PER_SECOND = 3000
TEST_LIMIT_S = 60
"""Time limit of a test; a bug may be an endless loop."""
BROKEN_PLANT = re.compile(
    r"(ImportError|ModuleNotFoundError|SyntaxError|IndentationError|NameError|UnboundLocalError)\b"
)
"""Failures that mean that the planted code is invalid, not that something caught it."""
FAILED_SEED = re.compile(
    r"^seed (?P<seed>\d+), event \d+: (?P<why>[^\n]*).*?after (?P<count>[\d,]+) ",
    re.DOTALL | re.MULTILINE,
)
DEFINED = re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.MULTILINE)
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Plant(NamedTuple):
    """A bug, where and how it is planted, and what must find it."""

    name: str
    kind: str
    what: str
    at: str
    old: str
    new: str
    by: str

    @property
    def finder(self) -> str:
        """The name of the simulation, or "tests"."""
        return self.by if self.by in SIMULATIONS else "tests"


class PlantError(Exception):
    """A plant that cannot be tested: the sources have changed, or a test fails without it."""


def read_plants() -> list[Plant]:
    """Return all plants of the data file."""
    return [Plant(**bug) for bug in tomllib.loads(PLANTS.read_text(encoding="utf-8"))["bug"]]


def tokens_of(text: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of code, also of a part of a statement, without layout."""
    tokens: list[tokenize.TokenInfo] = []
    with suppress(tokenize.TokenError, IndentationError):  # the text ends inside of brackets
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in LAYOUT:
                if token.string in ")]}" and tokens and tokens[-1].string == ",":
                    tokens.pop()  # a trailing comma comes and goes with line breaks
                tokens.append(token)
    return tokens


@cache
def read(path: Path) -> str:
    """Read a file once."""
    return path.read_text(encoding="utf-8")


@cache
def definitions(path: Path) -> dict[str, tuple[int, int]]:
    """Return the first and the last line, decorators included, of functions and classes by name."""
    lines: dict[str, tuple[int, int]] = {}

    def enter(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min((one.lineno for one in child.decorator_list), default=child.lineno)
                lines[prefix + child.name] = first, child.end_lineno or first
                enter(child, f"{prefix}{child.name}.")

    enter(ast.parse(read(path)), "")
    return lines


@cache
def modules(sources: Path) -> dict[str, list[Path]]:
    """Return the modules of the product that define a name, by names."""
    named: dict[str, list[Path]] = {}
    for path in sorted((sources / "ottla").rglob("*.py")):
        for name in set(DEFINED.findall(read(path))):
            named.setdefault(name, []).append(path)
    return named


def matches(plant: Plant, sources: Path) -> Iterator[tuple[Path, tuple[int, int], tuple[int, int]]]:
    """Give module, begin and end of each old text in a function or class of the plant's name."""
    old = [token.string for token in tokens_of(plant.old)]
    for path in modules(sources).get(plant.at.rpartition(".")[2], []):
        if any(word not in read(path) for word in old) or plant.at not in definitions(path):
            continue
        first, last = definitions(path)[plant.at]
        tokens = tokens_of("".join(read(path).splitlines(keepends=True)[first - 1 : last]))
        texts = [token.string for token in tokens]
        for start in range(len(texts) - len(old) + 1):
            if texts[start : start + len(old)] == old:
                (row, column), end = tokens[start].start, tokens[start + len(old) - 1].end
                yield path, (row + first - 1, column), (end[0] + first - 1, end[1])


def planted(plant: Plant, sources: Path) -> tuple[Path, str]:
    """Return the module and its text with the bug. Raises PlantError unless one place matches."""
    places = list(matches(plant, sources))
    if len(places) != 1:
        raise PlantError(f"{plant.name}: {len(places)} places of {plant.at} are {plant.old!r}")
    path, (row, column), (last_row, last_column) = places[0]
    lines = read(path).splitlines(keepends=True)
    indent = " " * column
    new = plant.new.strip("\n").replace("\n", "\n" + indent)
    end = lines[last_row - 1][last_column:]
    text = "".join([*lines[: row - 1], lines[row - 1][:column], new, end, *lines[last_row:]])
    return path, text


def copy_sources(target: Path, *, is_compiled: bool) -> Path:
    """Copy src; compiled modules depend on each other's layout, so all or none are copied.

    Byte code is checked by source hashes, so that a planted file is never mistaken for the old one.
    """
    sources = target / "src"
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    left_out = ("__pycache__",) if is_compiled else ("__pycache__", "*" + suffix)
    shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns(*left_out))
    compileall.compile_dir(
        sources, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
    )
    return sources


def run(command: list[str], sources: Path, limit_s: float | None = None) -> str:
    """Run Python, which imports Ottla from the copy only; return what it prints."""
    paths = {"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            env={**os.environ, **paths},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {limit_s} s"
    return done.stdout + done.stderr


def failure_of_tests(tests: list[str], sources: Path) -> str:
    """Run tests; return the first line of a failure, or "". Raises PlantError if none ran."""
    plugins = [option for name in ("cacheprovider", "randomly") for option in ("-p", f"no:{name}")]
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        limits = [f"--timeout={TEST_LIMIT_S}", f"--junitxml={report.name}"]
        shown = run(["-m", "pytest", "-q", *plugins, *limits, *tests], sources)
        written = Path(report.name).read_text(encoding="utf-8")
    if "<testcase" not in written:
        raise PlantError(f"no test ran: {shown[-2000:]}")
    failures = ET.fromstring(written).iterfind(".//testcase/*[@message]")
    messages = [one.get("message", "") for one in failures if one.tag in ("failure", "error")]
    messages.sort(key=lambda message: not BROKEN_PLANT.match(message))
    return (messages[0].partition("\n")[0] or "failed") if messages else ""


def failure_of_seeds(simulation: str, sources: Path, max_events: int) -> str:
    """Run seeds until one fails; return it with its failure, or ""."""
    module = f"tests.simulation.{SIMULATIONS[simulation]}"
    limit_s = max(MIN_TIME_LIMIT_S, max_events // SLOWEST_EVENTS_PER_SECOND)
    seeds = ["--seeds", "0-999999", "--max-events", str(max_events)]
    failure = FAILED_SEED.search(run(["-m", module, *seeds], sources, limit_s))
    if failure is None or BROKEN_PLANT.match(failure["why"]):
        return ""
    return f"{failure['why']} (seed {failure['seed']}, {failure['count']} events)"


def is_found(plant: Plant, sources: Path, max_events: int) -> bool:
    """Plant a bug, look for it, restore the module; print and return whether it is found."""
    began_s = time.monotonic()
    path, text = planted(plant, sources)
    before = read(path)
    path.write_text(text, encoding="utf-8")
    try:
        if plant.finder == "tests":
            failure = failure_of_tests([plant.by], sources)
        else:
            failure = failure_of_seeds(plant.by, sources, max_events)
    finally:
        path.write_text(before, encoding="utf-8")
    is_failure = bool(failure) and not BROKEN_PLANT.match(failure)
    shown = failure[:150] if is_failure else f"MISSED: {plant.what} {failure}"
    print(f"{plant.name:30} {time.monotonic() - began_s:5.1f} s  {shown}", flush=True)
    return is_failure


def main() -> int:
    """Plant the chosen bugs and print the results; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--by", choices=["tests", *SIMULATIONS], help="only what this finds")
    parser.add_argument("--only", metavar="NAMES", help="only these bugs")
    parser.add_argument("--max-events", metavar="COUNT", type=int, default=MAX_EVENTS)
    options = parser.parse_args()
    plants = [plant for plant in read_plants() if options.by in (None, plant.finder)]
    if options.only:
        plants = [plant for plant in plants if plant.name in options.only.split(",")]
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    results = []
    for is_compiled in (True, False):
        chosen = [
            plant
            for plant in plants
            if planted(plant, ROOT / "src")[0].with_suffix(suffix).exists() is not is_compiled
        ]
        with tempfile.TemporaryDirectory() as directory:
            if not chosen:
                continue
            sources = copy_sources(Path(directory), is_compiled=is_compiled)
            if str(sources) not in run(["-c", "import ottla; print(ottla.__file__)"], sources):
                raise PlantError(f"the copy in {sources} is not what gets imported")
            tests = sorted({plant.by for plant in chosen if plant.finder == "tests"})
            failure = failure_of_tests(tests, sources) if tests else ""
            if failure:
                raise PlantError(f"a test fails without a plant: {failure}")
            results += [is_found(plant, sources, options.max_events) for plant in chosen]
    print(f"{sum(results)} of {len(results)} found")
    return 0 if all(results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PlantError as error:
        sys.exit(f"planted_bugs: {error}")
