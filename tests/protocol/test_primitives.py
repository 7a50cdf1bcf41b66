"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import CorruptMessage
from ottla.protocol.primitives import decode_uvarint, encode_uvarint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (4096, "8020"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_known_unsigned_values(value: int, encoded: str) -> None:
    """Seven bits a byte, least significant first."""
    assert encode_uvarint(value).hex() == encoded
    assert decode_uvarint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_round_trip(value: int, before: bytes) -> None:
    """What was written is read, at any position."""
    data = before + encode_uvarint(value)
    assert decode_uvarint(data, len(before)) == (value, len(data))


@pytest.mark.parametrize("data", [b"\x80" * 5, b"\xff" * 5 + b"\x01"])
def test_too_long_unsigned_is_corrupt(data: bytes) -> None:
    """A sixth byte is never looked for."""
    with pytest.raises(CorruptMessage, match="too long"):
        decode_uvarint(data, 0)


@pytest.mark.parametrize("decode", [decode_uvarint])
def test_the_end_within_a_number_is_an_index_error(decode: object) -> None:
    """The codec turns it into CorruptMessage."""
    with pytest.raises(IndexError):
        decode(b"\x80", 0)  # type: ignore[operator] # both take the same arguments
