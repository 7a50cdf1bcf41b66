"""CRC-32C: google-crc32c and Ottla's tables agree, at once and in pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.records.crc32c import crc32c
from tests.records.plain import IDS, SCANS

CHECK = 0xE3069283  # of "123456789", as every description of the polynomial gives it


def test_the_wheel_knows_the_check_value() -> None:
    """The well-known value, over every kind of buffer."""
    for data in (b"123456789", bytearray(b"123456789"), memoryview(b"x123456789")[1:]):
        assert crc32c(data) == CHECK


@pytest.mark.parametrize("scan", SCANS, ids=IDS)
def test_our_tables_agree(scan: Any) -> None:
    """Our own tables give the same for all lengths, and can go on where they stopped."""
    assert scan.crc32c(b"123456789") == CHECK
    rng = random.Random(1)
    for size in (*range(20), 100, 1001):
        data = rng.randbytes(size)
        assert scan.crc32c(memoryview(data)) == crc32c(data)
        assert scan.crc32c(data[5:], crc32c(data[:5])) == crc32c(data)
