"""Tests for ottla.native uncompiled; tests of the modules that use it cover its C functions."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ottla import native
from ottla.types import Uuid


class _Pair(NamedTuple):
    first: int
    second: str


@pytest.mark.parametrize("width", [2, 4, 8])
def test_a_number_that_is_put_is_found_again(width: int) -> None:
    """Big-endian, signed, and nothing else is written."""
    data = bytearray(b"\x55" * 12)
    largest = (1 << (8 * width - 1)) - 1
    for value in (0, 1, -1, largest, -largest - 1):
        native.put_at(memoryview(data), 2, width, value)
        assert native.int_at(native.bytes_of(data), 2, width) == value
        assert data[:2] == b"\x55\x55"
        assert data[2 + width :] == b"\x55" * (10 - width)
        assert data[2 : 2 + width] == value.to_bytes(width, "big", signed=True)


def test_objects_are_made_of_bytes_and_values() -> None:
    """Text that is no UTF-8 is replaced; a subclass comes without its constructor."""
    data = memoryview(b"__caf\xc3\xa9\xff__")
    assert (
        native.text_at(data, 2, 6)
        == "caf\N{LATIN SMALL LETTER E WITH ACUTE}\N{REPLACEMENT CHARACTER}"
    )
    made = native.new_bytes(Uuid, memoryview(bytes(range(20))), 2, 16)
    assert type(made) is Uuid
    assert made == Uuid(bytes(range(2, 18)))
    pair = native.new_tuple(_Pair, (1, "a"))
    assert (type(pair), pair.first, pair.second) == (_Pair, 1, "a")


def test_a_checksum_and_a_copy() -> None:
    """CRC-32C of the register, as the standard's check value; bytes go where they should."""
    assert not native.has_crc32c()
    data = b"__123456789__"
    assert native.crc32c(data, 2, 11, 0xFFFFFFFF) ^ 0xFFFFFFFF == 0xE3069283
    target = bytearray(6)
    native.copy_bytes(target, 1, data, 2, 3)
    assert target == b"\x00123\x00\x00"


def test_readonly_views_are_told_from_others() -> None:
    """Batches in them are copied before they are changed."""
    assert native.is_readonly(memoryview(b"a"))
    assert not native.is_readonly(memoryview(bytearray(b"a")))
