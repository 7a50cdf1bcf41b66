"""Values of another type than a serde's are errors, never other bytes."""

from __future__ import annotations

import pytest

from ottla.streams import Serdes
from ottla.streams.errors import SerializationException


@pytest.mark.parametrize("value", [5, "text", 2**70, [1, 2]])
def test_bytes_are_no_numbers(value: object) -> None:
    """Python makes five zeros of `bytes(5)`."""
    with pytest.raises(SerializationException, match="the bytes serde cannot write"):
        Serdes.bytes().serialize(value)


@pytest.mark.parametrize("value", [b"ab", bytearray(b"ab"), memoryview(b"ab")])
def test_bytes_are_kept(value: object) -> None:
    """In any of Python's types."""
    assert Serdes.bytes().serialize(value) == b"ab"
