"""The interface to the log of a coordinator's topic; the broker implements it.

Kafka: org.apache.kafka.coordinator.common.runtime.PartitionWriter and CoordinatorLoader.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.types import Buffer


class TransactionSupport(Enum):
    """What a producer understands of transactions, by the version of its request (KIP-890)."""

    DEFAULT = 0
    """Neither TRANSACTION_ABORTABLE nor implicit adding of partitions."""
    ABORTABLE = 1
    """TRANSACTION_ABORTABLE: Produce 11, TxnOffsetCommit 4."""
    ADDS_PARTITIONS = 2
    """Transaction version 2: Produce 12, TxnOffsetCommit 5."""


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

    def verify_transaction(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        support: TransactionSupport,
    ) -> Pending[object]:
        """Return the verification to append a transaction's batch with, or fail with KafkaError."""

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

    def first_unstable_offset(self, partition: int) -> int:
        """Return where the first open transaction begins; the log end offset without one.

        The high watermark does not bound it.
        """
