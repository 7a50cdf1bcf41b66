"""Uuids and names of topics are read as Kafka reads them, with its error texts."""

from __future__ import annotations

import re

import pytest

from ottla.types import Uuid, is_topic_name

TOO_LONG = "is too long to be decoded as a base64 UUID"
SIZE = "bytes, which is not equal to the expected 16 bytes of a base64-encoded UUID"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("AAAAAAAAAAAAAAAAAAAA-_", "AAAAAAAAAAAAAAAAAAAA-w"),  # unused last bits may be set
        ("AAAAAAAAAAAAAAAAAAAAAA==", "AAAAAAAAAAAAAAAAAAAAAA"),
    ],
)
def test_it_parses(text: str, shown: str) -> None:
    """It accepts padding and set trailing bits, as Java does."""
    assert str(Uuid.parse(text)) == shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"Input string `` decoded as 0 {SIZE}"),
        ("AB", f"Input string `AB` decoded as 1 {SIZE}"),
        (
            "A" * 28,
            f"Input string with prefix `{'A' * 24}` is too long to be decoded as a base64 UUID",
        ),
        ("A", "Input byte[] should at least have 2 bytes for base64 bytes"),
        ("A" * 21, "Last unit does not have enough valid bits"),
        ("*" + "A" * 22, "Illegal base64 character 2a"),
        ("+" + "A" * 21, "Illegal base64 character 2b"),
        ("AA " + "A" * 19, "Illegal base64 character 20"),
        ("\N{EURO SIGN}" + "A" * 21, "Illegal base64 character 3f"),
        ("A" * 22 + "=", "Input byte array has wrong 4-byte ending unit"),
    ],
)
def test_wrong_texts(text: str, message: str) -> None:
    """The messages are those of Kafka 4.3.0's Uuid.fromString."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Uuid.parse(text)


@pytest.mark.parametrize("name", ["a", "...", "..a", "a.b_c-D9", "x" * 249])
def test_names_of_topics(name: str) -> None:
    """Letters, digits, dots, underscores and dashes."""
    assert is_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a/b", "a\n", "..\n", "a b", "\u00e4", "\u0661", "a\0"]
)
def test_names_that_no_topic_has(name: str) -> None:
    """No separator of paths and no line break is in one, and none is a directory's own name."""
    assert not is_topic_name(name)
