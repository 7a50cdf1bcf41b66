"""Every warning and error of a node says what to do next."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import ottla

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(ottla.__file__).parent
PARTS = ("controller", "coordinator", "metadata", "network", "quota", "raft", "server", "storage")
LEVELS = {"warning", "error", "exception", "critical"}
ALARM = re.compile(rf"\b_?log\.({'|'.join(LEVELS)})\(")
STEP_IS_AN_ARGUMENT = {
    "'listener %s: %s'",
    "NOT_COMPILED",
    "f'log directory {log_dir.path} is offline: {log_dir.offline_reason}'",
}
"""Texts made elsewhere: ports.port_taken, records.compiled, maintenance's offline text."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield place and text of each call of a logger, also when the text has a name."""
    for part in PARTS:
        for path in sorted((PACKAGE / part).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if not ALARM.search(source):
                continue
            tree = ast.parse(source)
            named = [
                (target.id, one.lineno, one.value)
                for one in ast.walk(tree)
                if isinstance(one, ast.Assign)
                for target in one.targets
                if isinstance(target, ast.Name)
            ]
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and is_alarm(call.func):
                    text = call.args[0]
                    if isinstance(text, ast.Name):
                        before = [v for n, at, v in named if n == text.id and at < call.lineno]
                        text = max(before, key=lambda one: one.lineno) if before else text
                    yield f"{path.relative_to(PACKAGE)}:{call.lineno}", ast.unparse(text)


def is_alarm(function: ast.expr) -> bool:
    """Whether it is `log.warning`, or one of a higher level."""
    return (
        isinstance(function, ast.Attribute)
        and function.attr in LEVELS
        and isinstance(function.value, ast.Name)
        and function.value.id in {"log", "_log"}
    )


def test_warnings_and_errors_end_with_the_next_step() -> None:
    """`what happened; what to do`: an operator at night needs both."""
    found = list(texts())
    assert len(found) > 25
    without = [
        f"{place} {text}"
        for place, text in found
        if "; " not in text and text not in STEP_IS_AN_ARGUMENT
    ]
    assert not without
