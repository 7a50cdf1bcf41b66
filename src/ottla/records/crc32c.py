"""CRC-32C (Castagnoli) of any buffer without a copy, from google-crc32c or our own tables.

Hot path: one call per batch. docs/decisions/0002-crc32c.md has the measurements.

Kafka: org.apache.kafka.common.utils.Crc32C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.records import scan

if TYPE_CHECKING:
    from ottla.types import Buffer


class Checksum(Protocol):
    """Computes a checksum, continuing from the value of the preceding bytes."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """Return the checksum."""


crc32c: Checksum
try:
    from crc32c import crc32c
except ImportError:  # no wheel for this platform: our own tables, compiled or not
    crc32c = scan.crc32c

__all__ = ["crc32c"]
