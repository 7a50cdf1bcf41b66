"""Log lines: what values and errors hold forges no line."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from ottla.server.logging.lines import JsonFormatter, KeyValueFormatter

FORGED = "2026-01-01T00:00:00.000Z ERROR ottla.x forged"
LINE_ENDS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]


def failed_record(text: str) -> logging.LogRecord:
    """Return the record of an error with this text."""
    try:
        raise ValueError(text)
    except ValueError:
        return logging.LogRecord("ottla.x", logging.ERROR, "f", 1, "m %s", (text,), sys.exc_info())


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_a_traceback_forges_no_line(line_end: str) -> None:
    """Only the event itself begins a line, whichever character a reader splits at."""
    told = KeyValueFormatter().format(failed_record(f"bad{line_end}{FORGED}"))
    first, *traced = told.splitlines()
    assert " ERROR ottla.x m bad" in first
    assert traced[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in traced)
    assert len(traced) == (5 if line_end.endswith("\n") else 4)


def test_a_traceback_steers_no_terminal() -> None:
    """Control characters of an error are written as escapes."""
    told = KeyValueFormatter().format(failed_record("bad \x1b[2J\x00\x7f"))
    assert told.endswith(r"  ValueError: bad \x1b[2J\x00\x7f")
    assert told.replace("\n", "").isprintable()


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_a_traceback_is_one_field_of_json(line_end: str) -> None:
    """JSON escapes for itself: one line, and the text comes back."""
    text = f"bad{line_end}{FORGED}"
    told = JsonFormatter().format(failed_record(text))
    assert told.isascii()
    assert told.isprintable()
    assert json.loads(told)["traceback"].endswith(text)
