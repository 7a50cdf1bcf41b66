"""Bounds of log lines: whatever clients send, a second's lines have a size."""

from __future__ import annotations

import ast
import io
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ottla
from ottla.security.principal import Principal
from ottla.server.logging.lines import (
    MAX_MESSAGE_CHARACTERS,
    MAX_NODE_LINES,
    MAX_TRACEBACK_CHARACTERS,
    MAX_VALUE_CHARACTERS,
    JsonFormatter,
    KeyValueFormatter,
    LimitedHandler,
    LineLimit,
    listed,
    message_of,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

LONG = "g" * 32_000
MAX_LINE_BYTES = 12 * (
    MAX_MESSAGE_CHARACTERS + MAX_TRACEBACK_CHARACTERS + 4 * MAX_VALUE_CHARACTERS + 200
)
"""A line with all fields and a traceback, each character escaped as two surrogates."""
FORMATTERS = [KeyValueFormatter(), JsonFormatter()]


def record(text: str, *args: object, **extra: object) -> logging.LogRecord:
    """Return a record of an event."""
    made = logging.LogRecord("ottla.x", logging.INFO, "f", 1, text, args, None)
    made.__dict__.update(extra)
    return made


def test_names_are_cut_with_a_mark_and_their_length() -> None:
    """Each value for itself, so that what follows a long name is still there."""
    found = message_of(record("group %s is empty, generation %d", LONG, 7))
    assert found == f"group {'g' * 1000}… (32,000 characters) is empty, generation 7"
    assert message_of(record("%s %r", "a", ["b"])) == "a ['b']"
    assert "… (32,005 characters)" in message_of(record("%s", Principal("User", LONG)))
    assert "… (32,000 characters)" in message_of(record("%(a)s", {"a": LONG}))
    assert message_of(record("100%")) == "100%"


def test_a_list_of_names_has_its_first_ones() -> None:
    """A request may name 100,000 topics."""
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(number) for number in range(1, 20_001)]) == "1, 2, 3, 4, 5 and 19,995 more"


def test_a_text_at_the_limit_is_left_as_it_is() -> None:
    """The mark begins after it."""
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "abc… (4 characters)"


values = st.one_of(
    st.integers(-(2**63), 2**63),
    st.text(max_size=3).map(lambda text: text * 2_000),
    st.sampled_from([LONG, b"\xff" * 40_000, [LONG] * 9, "\0" * 40_000, "\U000e0001" * 9000]),
)


@pytest.mark.parametrize("formatter", FORMATTERS)
@given(
    args=st.lists(values, max_size=12),
    extra=st.dictionaries(st.sampled_from(["event", "client", "path", "user"]), values),
    error=st.one_of(st.none(), values),
)
@settings(deadline=None, max_examples=60)
def test_no_line_is_longer_than_the_limit(
    formatter: logging.Formatter, args: list[object], extra: Mapping[str, Any], error: object
) -> None:
    """Whatever its values, its fields and its error are; and it is one line but for a traceback."""
    failed = ValueError(error)
    made = record(" ".join(["%s"] * len(args)) or "x", *args, **extra)
    if error is not None:
        made.exc_info = (ValueError, failed, None)
    written = formatter.format(made)
    assert len(written.encode("utf-8", "replace")) <= MAX_LINE_BYTES
    assert all(line.startswith("  ") for line in written.splitlines()[1:])


def test_a_second_of_lines_has_a_size() -> None:
    """A client that causes one kind of line without naming itself fills no disk."""
    stream = io.StringIO()
    handler = LimitedHandler(LineLimit(lambda: 5), stream)
    handler.setFormatter(KeyValueFormatter())
    for number in range(5 * MAX_NODE_LINES):
        handler.handle(record("not created: %s", f"{number} {LONG}"))
    assert stream.getvalue().count("\n") == MAX_NODE_LINES
    assert len(stream.getvalue()) < 1200 * MAX_NODE_LINES


def test_one_place_formats_messages() -> None:
    """No other code of a node formats a record, and no line hides its values in its template.

    A worker of Connect looks for secrets in whole messages: they are not found in what is cut.
    """
    root = Path(ottla.__file__).parent
    concealing = root / "connect" / "runtime" / "secrets.py"
    found = []
    suspect = re.compile(r"\bgetMessage\b|\b(log|_log|logger)\.\w+\(\s*[fF]")
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)) if suspect.search(text) else ():
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            place = f"{path.relative_to(root)}:{call.lineno}"
            if call.func.attr == "getMessage" and path != concealing:
                found.append(place)
            target = call.func.value
            is_log = isinstance(target, ast.Name) and target.id in {"log", "_log", "logger"}
            if is_log and call.args and isinstance(call.args[0], ast.JoinedStr):
                found.append(place)
    assert not found
