"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import CorruptMessage
from ottla.protocol.primitives import decode_uvarint, decode_varlong, encode_uvarint, encode_varint


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


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (-(2**63), "ff" * 9 + "01")],
)
def test_known_signed_values(value: int, encoded: str) -> None:
    """Signed values are zig-zag."""
    assert encode_varint(value).hex() == encoded
    assert decode_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_round_trip(value: int, before: bytes) -> None:
    """What was written is read, at any position."""
    data = before + encode_uvarint(value)
    assert decode_uvarint(data, len(before)) == (value, len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_round_trip(value: int) -> None:
    """All 64-bit values come back."""
    data = encode_varint(value)
    assert decode_varlong(data, 0) == (value, len(data))


@pytest.mark.parametrize("data", [b"\x80" * 5, b"\xff" * 5 + b"\x01"])
def test_too_long_unsigned_is_corrupt(data: bytes) -> None:
    """A sixth byte is never looked for."""
    with pytest.raises(CorruptMessage, match="too long"):
        decode_uvarint(data, 0)


def test_too_long_signed_is_corrupt() -> None:
    """An eleventh byte is never looked for."""
    with pytest.raises(CorruptMessage, match="too long"):
        decode_varlong(b"\x80" * 10 + b"\x01", 0)


@pytest.mark.parametrize("decode", [decode_uvarint, decode_varlong])
def test_the_end_within_a_number_is_an_index_error(decode: object) -> None:
    """The codec turns it into CorruptMessage."""
    with pytest.raises(IndexError):
        decode(b"\x80", 0)  # type: ignore[operator] # both take the same arguments
