"""The log of a coordinator's topic as the runtime needs it; the broker implements it.

Kafka: org.apache.kafka.coordinator.common.runtime.PartitionWriter and CoordinatorLoader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.types import Buffer


class CoordinatorLog(Protocol):
    """The partitions of one internal topic that this broker leads."""

    def append(self, partition: int, batch: bytearray, leader_epoch: int) -> int:
        """Append one batch as leader of leader_epoch; return the offset behind its last record.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE,
        KAFKA_STORAGE_ERROR … and then nothing was appended. It may report a new high watermark
        before it returns.
        """

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Return whole batches from offset on, at least one however large; empty at the end."""

    def max_batch_bytes(self, partition: int) -> int:
        """Return how large a batch may be."""

    def start_offset(self, partition: int) -> int:
        """Return the first offset."""

    def end_offset(self, partition: int) -> int:
        """Return the offset behind the last record."""

    def high_watermark(self, partition: int) -> int:
        """Return the offset up to which records are committed."""
