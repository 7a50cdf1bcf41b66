"""The edits of scripts/planted_bugs.py match the sources, the tests and the documents."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (\d+) \|.*`(tests/[\w/]+\.py)` `(test_\w+)` \|$", re.MULTILINE)


def bugs(name: str = "planted_bugs.toml") -> list[dict[str, Any]]:
    """Return a data file's bugs."""
    text = (ROOT / "tests" / name).read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["bug"]
    return found


@cache
def text_of(path: Path) -> str:
    """Read a file once."""
    return path.read_text(encoding="utf-8")


def test_each_old_text_occurs_once() -> None:
    """The old text of every edit occurs exactly once in the sources."""
    simulated = [
        *bugs("planted_security_bugs.toml"),
        *bugs("simulation/planted_quorum_bugs.toml"),
        *bugs("simulation/planted_replica_bugs.toml"),
        *bugs("simulation/planted_cluster_bugs.toml"),
        *bugs("simulation/planted_independent_bugs.toml"),
        *bugs("simulation/planted_share_bugs.toml"),
    ]
    all_bugs = [*bugs(), *simulated]
    wrong = [
        (bug["what"], edit["file"], edit["old"])
        for bug in all_bugs
        for edit in bug["edit"]
        if text_of(ROOT / "src" / "ottla" / edit["file"]).count(edit["old"]) != 1
        or edit["old"] == edit["new"]
    ]
    assert not wrong


def test_each_test_exists_and_the_table_names_it() -> None:
    """The tests that docs/reliability.md names for bugs are those of the edits."""
    rows = set(ROW.findall(text_of(ROOT / "docs" / "reliability.md")))
    assert len(rows) > 40
    named = {(str(bug["number"]), *bug["test"].split("::")) for bug in bugs()}
    assert named == rows
    for _, file, name in named:
        functions = ast.parse(text_of(ROOT / file)).body
        assert name in {one.name for one in functions if isinstance(one, ast.FunctionDef)}


def test_the_documents_count_is_right() -> None:
    """The published count is the number of bugs with an edit; the script verifies them."""
    count = len({bug["number"] for bug in bugs()})
    assert f"{count} of 86 caught" in text_of(ROOT / "docs" / "reliability.md")
