"""The table of docs/reliability.md names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`(tests/[\w/]+\.py)` `(test_\w+)`")


@cache
def functions_of(path: Path) -> set[str]:
    """Return the names of a module's functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_of_the_table_exists() -> None:
    """And every test of the reliability modules is in the table."""
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = set(NAMED.findall(text))
    assert len(named) > 50
    missing = [one for one in sorted(named) if one[1] not in functions_of(ROOT / one[0])]
    assert not missing
    modules = set((ROOT / "tests" / "server" / "reliability").glob("test_*.py")) - {Path(__file__)}
    unnamed = [
        name
        for module in sorted(modules)
        for name in sorted(functions_of(module))
        if name.startswith("test_") and name not in {test for _, test in named}
    ]
    assert not unnamed
