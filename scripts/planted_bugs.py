#!/usr/bin/env python3
"""Re-introduce known bugs of other systems one at a time and check that their tests fail.

    .venv/bin/python scripts/planted_bugs.py [--only 7,22] [--sample 12] [--verbose] [--file FILE]

`tests/planted_bugs.toml` lists for each bug of docs/reliability.md the edits of src/ottla that
plant it (an exact old text and a new one) and the test that must catch it. The sources are copied
to a temporary directory once; there one bug after the other is planted, its test is run alone, and
the file is restored. Before that, all tests must pass on the unchanged copy.

Prints a table (number, test, result, seconds) and finally `N of 86 caught`. A bug counts as caught
if all its plants are caught by a failing test, not by code that cannot be imported or run. Exits
with 1 if a bug is missed, an old text is not found exactly once, or a test fails without a plant.

`--sample` takes that many plants by a hash of their text, the same ones in every run, as CI does.

Kafka: none.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib.machinery
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parents[1]
PLANTS = ROOT / "tests" / "planted_bugs.toml"
ALL_BUGS = 86
TEST_LIMIT_S = 60
"""Time limit of a test; a bug may be an endless loop."""
BROKEN_PLANT = re.compile(
    r"(ImportError|ModuleNotFoundError|SyntaxError|IndentationError|NameError|UnboundLocalError)\b"
)
"""Failures that mean that the planted code is invalid, not that a test caught it."""


class Edit(NamedTuple):
    """One change of a source file, whose name is relative to src/ottla."""

    file: str
    old: str
    new: str


class Plant(NamedTuple):
    """One way to re-introduce a bug, and the test that must fail."""

    number: int
    what: str
    test: str
    edits: tuple[Edit, ...]


class Result(NamedTuple):
    """The result of a plant; `why` is the first line of the failure, or the error."""

    plant: Plant
    is_caught: bool
    why: str
    took_s: float


class PlantError(Exception):
    """A plant that cannot be tested: the sources have changed, or a test fails without it."""


def read_plants(path: Path = PLANTS) -> list[Plant]:
    """Return all plants of the data file, in order of their numbers."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    plants = [
        Plant(
            bug["number"],
            bug["what"],
            bug["test"],
            tuple(Edit(edit["file"], edit["old"], edit["new"]) for edit in bug["edit"]),
        )
        for bug in data["bug"]
    ]
    return sorted(plants, key=lambda plant: plant.number)


def sample(plants: list[Plant], count: int) -> list[Plant]:
    """Return `count` plants, chosen by a hash of number and text and thus in every run the same."""

    def digest(plant: Plant) -> bytes:
        return hashlib.sha256(f"{plant.number} {plant.what}".encode()).digest()

    return sorted(sorted(plants, key=digest)[:count], key=lambda plant: plant.number)


def copy_sources(plants: list[Plant], target: Path) -> Path:
    """Copy src, without compiled modules if a plant concerns one of them.

    Compiled modules depend on each other's layout, so all or none are copied. Byte code is checked
    by source hashes, so that a planted file is never mistaken for the old one.
    """
    sources = target / "src"
    shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    planted = [sources / "ottla" / edit.file for plant in plants for edit in plant.edits]
    if any(module.with_suffix(suffix).exists() for module in planted):
        for compiled in sources.rglob("*" + suffix):
            compiled.unlink()
    compileall.compile_dir(
        sources, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
    )
    return sources


def environment(sources: Path) -> dict[str, str]:
    """Return the environment in which tests import Ottla from the copy only."""
    return {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}


def check_imports(plants: list[Plant], sources: Path) -> None:
    """Check that Python imports every planted module from the copy, as source."""
    files = sorted({edit.file for plant in plants for edit in plant.edits})
    modules = ["ottla." + file.removesuffix(".py").replace("/", ".") for file in files]
    code = "import sys, importlib.util as u; [print(u.find_spec(n).origin) for n in sys.argv[1:]]"
    found = subprocess.run(
        [sys.executable, "-c", code, *modules],
        env=environment(sources),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if found != [str(sources / "ottla" / file) for file in files]:
        raise PlantError(f"the copy in {sources} is not what gets imported: {found}")


def run_tests(tests: list[str], sources: Path) -> list[str]:
    """Run tests on the copy; return the first lines of failures. Raises PlantError."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        plugins = [
            option for name in ("cacheprovider", "randomly") for option in ("-p", f"no:{name}")
        ]
        command = [sys.executable, "-m", "pytest", "-q", *plugins, f"--timeout={TEST_LIMIT_S}"]
        done = subprocess.run(
            [*command, f"--junitxml={report.name}", *tests],
            env=environment(sources),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            raise PlantError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}")
        cases = list(ET.parse(report.name).getroot().iter("testcase"))
    failures = [
        (failure.get("message") or "failed").partition("\n")[0]
        for case in cases
        for failure in (*case.findall("failure"), *case.findall("error"))
    ]
    if not cases or (done.returncode == 1) != bool(failures):
        raise PlantError(f"no test ran, or it did not say what failed: {done.stdout[-2000:]}")
    return failures


def with_plant(plant: Plant, sources: Path) -> dict[Path, str]:
    """Return the planted files. Raises PlantError unless each old text occurs exactly once."""
    texts: dict[Path, str] = {}
    for edit in plant.edits:
        path = sources / "ottla" / edit.file
        text = texts.get(path) or path.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise PlantError(f"{edit.file} contains {text.count(edit.old)} times: {edit.old!r}")
        texts[path] = text.replace(edit.old, edit.new)
    return texts


def run_plant(plant: Plant, sources: Path) -> Result:
    """Plant one bug, run its test, restore the files."""
    began = time.monotonic()
    try:
        texts = with_plant(plant, sources)
        before = {path: path.read_text(encoding="utf-8") for path in texts}
        try:
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
            failures = run_tests([plant.test], sources)
        finally:
            for path, text in before.items():
                path.write_text(text, encoding="utf-8")
    except PlantError as error:
        return Result(plant, False, str(error), time.monotonic() - began)
    is_caught = bool(failures) and not any(map(BROKEN_PLANT.match, failures))
    why = failures[0] if failures else "the test passes"
    return Result(plant, is_caught, why, time.monotonic() - began)


def show(results: list[Result], console: Console) -> None:
    """Print the table, and the reason of each miss."""
    table = Table("no.", "test", "", "seconds", box=None)
    for one in results:
        name = one.plant.test.rpartition("::")[2]
        word = "caught" if one.is_caught else "[bold red]MISSED[/]"
        table.add_row(str(one.plant.number), name, word, f"{one.took_s:.1f}")
    console.print(table)
    for one in results:
        if not one.is_caught:
            console.print(f"{one.plant.number} ({one.plant.what}): {one.why}", markup=False)


def main() -> int:
    """Test all plants and print the results; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--file", type=Path, default=PLANTS, help="the plants")
    parser.add_argument("--only", metavar="NUMBERS", help="only these bugs, as 7,22")
    parser.add_argument("--sample", metavar="COUNT", type=int, help="only so many plants")
    parser.add_argument("--verbose", action="store_true", help="also print how each bug was caught")
    options = parser.parse_args()
    plants = read_plants(options.file)
    if options.only:
        numbers = {int(number) for number in options.only.split(",")}
        plants = [plant for plant in plants if plant.number in numbers]
    if options.sample:
        plants = sample(plants, options.sample)
    console = Console(width=max(100, Console().width))
    with tempfile.TemporaryDirectory() as directory:
        sources = copy_sources(plants, Path(directory))
        check_imports(plants, sources)
        failures = run_tests(sorted({plant.test for plant in plants}), sources)
        if failures:
            raise PlantError(f"tests fail without a plant: {failures}")
        progress = Console(stderr=True)
        results = [run_plant(one, sources) for one in track(plants, "planting", console=progress)]
    show(results, console)
    if options.verbose:
        for one in results:
            console.print(f"{one.plant.number}: {one.why}", markup=False, soft_wrap=True)
    missed = {one.plant.number for one in results if not one.is_caught}
    caught = {one.plant.number for one in results} - missed
    is_whole = options.file == PLANTS and not options.sample
    print(f"{len(caught)} of {ALL_BUGS if is_whole else len(caught | missed)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PlantError as error:
        sys.exit(f"planted_bugs: {error}")
