"""Lines as records."""

from __future__ import annotations

import pytest

from ottla.cli.commands.console_producer import LineError, LineReader, Message


def read(text: str, **properties: str) -> list[Message]:
    """Read lines under some properties (`_` for `.`)."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return list(LineReader(named).read(text.splitlines(keepends=True)))


def test_a_line_is_a_value() -> None:
    """Without properties the whole line is the value, an empty line an empty one."""
    assert read("a\tb\n\nlast") == [
        Message(None, b"a\tb", ()),
        Message(None, b"", ()),
        Message(None, b"last", ()),
    ]


def test_keys_and_headers() -> None:
    """Headers, key and value have this order and are divided by their separators."""
    assert read("h:1,i:2\tk\tv\n", parse_key="true", parse_headers="TRUE") == [
        Message(b"k", b"v", (("h", b"1"), ("i", b"2")))
    ]
    assert read("k=v=w", parse_key="true", key_separator="=") == [Message(b"k", b"v=w", ())]


def test_a_marker_stands_for_null() -> None:
    """Key, value, header value or all headers may be null."""
    found = read("NULL\tNULL\tNULL", parse_key="true", parse_headers="true", null_marker="NULL")
    assert found == [Message(None, None, ())]
    (one,) = read("h:NULL\tv", parse_headers="true", null_marker="NULL")
    assert one.headers == (("h", None),)


def test_a_line_that_does_not_fit_is_named() -> None:
    """The error says which separator is missing, where, and shows the line."""
    with pytest.raises(LineError, match="No key separator found on line number 2: 'oops'"):
        read("k\tv\noops", parse_key="true")
    with pytest.raises(LineError, match="No headers delimiter found on line number 1"):
        read("oops", parse_headers="true")
    with pytest.raises(LineError, match="No header key separator found in pair 'h'"):
        read("h\tv", parse_headers="true")


def test_errors_can_be_ignored() -> None:
    """Then the whole line is the value."""
    assert read("oops", parse_key="true", ignore_error="true") == [Message(None, b"oops", ())]


@pytest.mark.parametrize(
    "properties",
    [
        {"headers_delimiter": ","},
        {"headers_delimiter": ":"},
        {"headers_separator": ":"},
        {"null_marker": "\t"},
    ],
)
def test_separators_must_differ(properties: dict[str, str]) -> None:
    """Equal separators are refused."""
    with pytest.raises(LineError, match="may not be equal"):
        read("", **properties)


def test_a_header_needs_a_name() -> None:
    """The null marker is refused as a header key; trailing separators begin no header."""
    with pytest.raises(LineError, match="Header keys should not be equal to the null marker 'N'"):
        read("N:1\tv", parse_headers="true", null_marker="N")
    (one,) = read("h:1,,\tv", parse_headers="true")
    assert one.headers == (("h", b"1"),)


@pytest.mark.parametrize("name", ["headers_separator", "headers_key_separator"])
def test_the_marker_of_null_is_no_separator(name: str) -> None:
    """Each of the four separators must differ from it."""
    with pytest.raises(LineError, match=r"null\.marker and headers\..*separator may not be equal"):
        read("", null_marker="#", **{name: "#"})
