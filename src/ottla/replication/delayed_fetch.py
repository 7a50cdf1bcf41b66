"""A fetch that waits until enough bytes can be read, something changes, or its time is over.

Kafka: kafka.server.DelayedFetch. Hot path: benchmarks/against_kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.purgatory.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.replication.partition import Partition
    from ottla.storage.log.partition_log import PartitionLog


class DelayedFetch(DelayedOperation):
    """Watches partitions, each from the offset at which it reads."""

    def __init__(
        self,
        deadline_ms: int,
        partitions: dict[Partition, int],
        missing_bytes: int,
        answer: Callable[[], None],
    ) -> None:
        super().__init__(deadline_ms)
        self.partitions = partitions
        self._missing_bytes = missing_bytes
        self._answer = answer
        self._sizes = {partition: partition.log.size_bytes for partition in partitions}

    def try_complete(self) -> bool:
        """Complete when a partition is led elsewhere or failed, or the missing bytes have come.

        Also when one reads a segment that will not grow: the rest of it is all there will be.
        """
        return self._is_ready() and self.force_complete()

    def _is_ready(self) -> bool:
        grown_bytes = 0
        for partition, fetch_offset in self.partitions.items():
            log = partition.log
            if not partition.is_leader or log.failure is not None:
                return True
            if log.high_watermark > fetch_offset:
                if _is_in_older_segment(log, fetch_offset):
                    return True
                grown_bytes += max(1, log.size_bytes - self._sizes[partition])
                if grown_bytes >= self._missing_bytes:
                    return True
        return False

    def on_complete(self) -> None:
        """Read again and answer with what is there."""
        self._answer()


def _is_in_older_segment(log: PartitionLog, offset: int) -> bool:
    """Whether the high watermark lies in a later segment than the offset."""
    segments = log.segments
    return offset < segments.active.base_offset and segments.number_for(
        offset
    ) < segments.number_for(log.high_watermark)
