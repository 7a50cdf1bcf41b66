"""The interface to the log of a coordinator's topic; the broker implements it.

Kafka: org.apache.kafka.coordinator.common.runtime.PartitionWriter and CoordinatorLoader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.types import Buffer


class CoordinatorLog(Protocol):
    """The partitions of one internal topic that this broker leads."""

    def append(
        self,
        partition: int,
        batch: bytearray,
        leader_epoch: int,
        *,
        verification: object = None,
        transaction_version: int = -1,
    ) -> int:
        """Append one batch as leader of leader_epoch; return the new log end offset.

        A batch of a transaction comes with its verification, a marker with the version (KIP-1228).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE,
        KAFKA_STORAGE_ERROR …; then no record was appended. It may report a new high watermark
        before it returns.
        """

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Return batches from offset on; empty at the end.

        The first one is complete, however large; the last one may be cut after max_bytes.
        """

    def max_batch_bytes(self, partition: int) -> int:
        """Return the maximum size of a batch."""

    def start_offset(self, partition: int) -> int:
        """Return the first offset."""

    def end_offset(self, partition: int) -> int:
        """Return the log end offset."""

    def high_watermark(self, partition: int) -> int:
        """Return the offset up to which records are committed."""
