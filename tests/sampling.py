"""Which modules of conformance tests a run of CI takes: what changed, one of each kind, a share.

All of them take three quarters of an hour, too long for each commit. A run takes the modules whose
subjects have changed since the last run of all (`scripts/conformance --all`), one module of each
directory, and one share of the rest. The commit chooses, so that a commit has one result and the
next ones take other shares.
"""

from __future__ import annotations

import ast
import json
import subprocess
from functools import cache
from typing import TYPE_CHECKING

from tests.source_trees import PACKAGE, ROOT, SOURCES, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SHARES = 6  # a sixth takes some six minutes of the ten that a run has for conformance
FULL_RUN = ROOT / "tests" / "conformance" / "full_run.json"


def last_full_run() -> dict[str, str]:
    """Return the commit, the date and the closing counts of the last run of all tests."""
    record: dict[str, str] = json.loads(FULL_RUN.read_text(encoding="utf-8"))
    return record


def changed_since(commit: str) -> frozenset[Path] | None:
    """Return the files that differ from a commit; None if this repository lacks the commit."""
    command = ("git", "diff", "--name-only", commit, "--")
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        return None
    return frozenset(ROOT / name for name in result.stdout.splitlines())


def sample(
    modules: Iterable[Path], commit: str, changed: frozenset[Path] | None
) -> frozenset[Path]:
    """Choose the modules that a run at a commit takes.

    Parameters:
        modules: all modules that have conformance tests.
        commit: hexadecimal name of the commit; it chooses the share.
        changed: files that changed since the last run of all; None takes every module.
    """
    ordered = sorted(set(modules))
    if changed is None:
        return frozenset(ordered)
    turn = int(commit[:12], 16)
    kinds: dict[Path, list[Path]] = {}
    for module in ordered:
        kinds.setdefault(module.parent, []).append(module)
    chosen = {members[turn % len(members)] for members in kinds.values()}
    chosen.update(ordered[turn % SHARES :: SHARES])
    chosen.update(module for module in ordered if changed & subjects(module))
    return frozenset(chosen)


@cache
def subjects(module: Path) -> frozenset[Path]:
    """Return a test module, the test support that it imports, and the sources these import."""
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if SOURCES not in path.parents:  # what a source imports is another test's subject
            waiting += _imports(path)
    return frozenset(found)


def _imports(path: Path) -> Iterator[Path]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if file := _file_of(name):
                yield file


def _file_of(name: str) -> Path | None:
    top, *parts = name.split(".")
    base = {"ottla": PACKAGE, "tests": ROOT / "tests"}.get(top)
    if base is None or not parts:
        return None
    file = base.joinpath(*parts).with_suffix(".py")
    return file if file.is_file() else None
