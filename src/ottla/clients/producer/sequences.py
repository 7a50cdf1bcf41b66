"""Sequence numbers of batches: they wrap around to zero.

Kafka: org.apache.kafka.clients.producer.internals.{TxnPartitionEntry, ProducerBatch},
DefaultRecordBatch.incrementSequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.clients.producer.batches import PartitionQueue, ProducerBatch

SEQUENCE_MASK: Final = 0x7FFF_FFFF
_HALF_OF_SEQUENCES: Final = 0x4000_0000


def counts(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Whether the batch's sequence belongs to the partition's current producer epoch."""
    now = (queue.producer_id, queue.producer_epoch)
    return batch.base_sequence >= 0 and (batch.producer_id, batch.producer_epoch) == now


def following(batch: ProducerBatch) -> int:
    """Return the sequence number after the batch's last."""
    return (batch.base_sequence + batch.record_count) & SEQUENCE_MASK


def is_before(sequence: int, other: int) -> bool:
    """Whether a sequence precedes another one; sequences wrap around to zero."""
    return 0 < (other - sequence) & SEQUENCE_MASK < _HALF_OF_SEQUENCES
