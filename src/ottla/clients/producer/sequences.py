"""Sequence numbers of batches, which wrap around to zero, and the settings that enable them.

Kafka: org.apache.kafka.clients.producer.internals.{TxnPartitionEntry, ProducerBatch},
DefaultRecordBatch.incrementSequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.clients.producer.batches import PartitionQueue, ProducerBatch
    from ottla.clients.settings import ValidatedSettings

SEQUENCE_MASK: Final = 0x7FFF_FFFF
_HALF_OF_SEQUENCES: Final = 0x4000_0000


def is_of_current_epoch(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Whether the batch's sequence belongs to the partition's current producer epoch."""
    now = (queue.producer_id, queue.producer_epoch)
    return batch.base_sequence >= 0 and (batch.producer_id, batch.producer_epoch) == now


def following(batch: ProducerBatch) -> int:
    """Return the sequence number after the batch's last."""
    return (batch.base_sequence + batch.record_count) & SEQUENCE_MASK


def is_before(sequence: int, other: int) -> bool:
    """Whether a sequence precedes another one; sequences wrap around to zero."""
    return 0 < (other - sequence) & SEQUENCE_MASK < _HALF_OF_SEQUENCES


def is_idempotent(settings: ValidatedSettings) -> bool:
    """Whether sequences are used; ConfigError for settings that exclude it.

    As in Kafka, acks other than all and zero retries disable it, unless it is enabled explicitly.
    """
    requested = "enable.idempotence" in settings.given or settings.transactional_id is not None
    if not settings.enable_idempotence:
        return False
    conflicts = [
        text
        for broken, text in (
            (settings.acks != -1, "acks=all"),
            (settings.max_in_flight_requests_per_connection > 5, "at most 5 requests in flight"),
            (settings.retries == 0, "retries above 0"),
        )
        if broken
    ]
    if not conflicts:
        return True
    if requested or "at most 5 requests in flight" in conflicts:
        raise ConfigError(f"enable.idempotence needs {' and '.join(conflicts)}")
    return False
