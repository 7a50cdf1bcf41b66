"""The bugs of scripts/planted_bugs.py can be planted, and each kind of part has one."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "planted_bugs.py"))
PLANTS = SCRIPT["read_plants"]()


def test_each_bug_can_be_planted() -> None:
    """Its old text is once in the function, and what results is Python."""
    for plant in PLANTS:
        _, text = SCRIPT["planted"](plant, ROOT / "src")
        ast.parse(text)


def test_what_must_find_them_exists() -> None:
    """The tests that the table names."""
    for plant in PLANTS:
        if plant.finder == "tests":
            file, name = plant.by.split("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_each_kind_of_part_has_one() -> None:
    """Also each simulation."""
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)
    assert {plant.kind for plant in PLANTS} == {
        "raft", "log", "replication", "controller", "groups", "transactions", "share",
        "clients", "security",
    }  # fmt: skip
    assert {plant.finder for plant in PLANTS} == {"tests", *SCRIPT["SIMULATIONS"]}
