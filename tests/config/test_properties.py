"""Java's properties files, read and written."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.properties import (
    PropertiesError,
    parse_properties,
    read_properties,
    write_properties,
)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\nb=2", {"a": "1", "b": "2"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1\nb 2\nc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("# note\n! note\n\n   \na=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=\\u00e9\\t\\n\\q", {"a": "é\t\nq"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("a==1", {"a": "=1"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=\\\n# not a note", {"a": "# not a note"}),
        ("  a=1", {"a": "1"}),
    ],
)
def test_reading(text: str, settings: dict[str, str]) -> None:
    """Separators, comments, continued lines and escapes follow Java's rules."""
    assert parse_properties(text) == settings


def test_lines_are_counted_from_one() -> None:
    """A setting knows the line it begins on, for messages about it."""
    found = list(read_properties("# x\na=1\\\n 2\nb=3"))
    assert [(one.name, one.line) for one in found] == [("a", 2), ("b", 4)]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "a=\\u+123"])
def test_a_broken_escape_is_named_with_its_line(text: str) -> None:
    """A half unicode escape is an error that says where."""
    with pytest.raises(PropertiesError, match="line 1"):
        parse_properties(text)


def test_writing() -> None:
    """Names and values are escaped so that Java reads the same again; comments come first."""
    text = write_properties({"a b": " x y", "é": "1=2:3#\n"}, comments=["made today"])
    assert text == "#made today\na\\ b=\\ x y\n\\u00E9=1\\=2\\:3\\#\\n\n"


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_what_is_written_is_read_again(settings: dict[str, str]) -> None:
    """Any names and texts survive a round trip."""
    assert parse_properties(write_properties(settings)) == settings


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text breaks the reader in another way than its own error."""
    with suppress(PropertiesError):
        parse_properties(text)
