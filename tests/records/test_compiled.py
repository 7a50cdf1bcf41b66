"""The note of an install whose hot modules are not compiled."""

from __future__ import annotations

import ast
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.records import compiled
from ottla.records.compiled import COMPILED_MODULES, NOT_COMPILED, warn_not_compiled

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]


def test_the_modules_are_those_that_are_built() -> None:
    """The list is the one of setup.py."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (built,) = (
        ast.literal_eval(one.value)
        for one in tree.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "COMPILED"
    )
    assert tuple(f"ottla.{name.replace('/', '.')}" for name in built) == COMPILED_MODULES


def test_producers_say_once_that_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in a process, whatever the number of producers."""
    monkeypatch.setattr(compiled, "uncompiled_modules", lambda: ("ottla.records.scan",))
    warn_not_compiled.cache_clear()
    with caplog.at_level(logging.WARNING, "ottla.clients"):
        for _ in range(3):
            warn_not_compiled()
    warn_not_compiled.cache_clear()
    lines = [one.getMessage() for one in caplog.records if one.name == "ottla.clients"]
    assert lines == [NOT_COMPILED]
    assert "; install a C compiler, then Ottla again" in NOT_COMPILED
