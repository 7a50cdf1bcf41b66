"""Where a fork ends: by time, by offset, or everything.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.storage.batches import BatchHeader
    from ottla.types import TopicPartition

ALWAYS_MS: Final = 1 << 62
ALL_OFFSETS: Final = 1 << 62


class ForkPoint(NamedTuple):
    """The first batch of a partition that is later than any limit ends its fork."""

    until_ms: int = ALWAYS_MS
    """By the largest timestamp of a batch, inclusive."""
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    """The end offsets of some partitions; a batch that contains one is left out."""

    @property
    def is_now(self) -> bool:
        """Whether nothing is left out."""
        return self == ForkPoint()

    def limit_of(self, partition: TopicPartition) -> int:
        """Return the end offset of a partition's fork."""
        return dict(self.offsets).get(partition, ALL_OFFSETS)

    def prefix(
        self, partition: TopicPartition, headers: Iterable[BatchHeader], base_offset: int
    ) -> tuple[int, int]:
        """Return the bytes and the end offset of the batches of a segment before the point."""
        limit, end, next_offset = self.limit_of(partition), 0, base_offset
        for header in headers:
            if header.last_offset >= limit or header.max_timestamp > self.until_ms:
                break
            end, next_offset = header.position + header.size, header.last_offset + 1
        return end, next_offset
