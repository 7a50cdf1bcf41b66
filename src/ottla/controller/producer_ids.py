"""Allocates unique blocks of producer ids to brokers.

Kafka: org.apache.kafka.controller.ProducerIdControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.protocol.records.metadata import ProducerIdsRecord
from ottla.timeline import TimelineObject

if TYPE_CHECKING:
    from ottla.timeline import SnapshotRegistry

BLOCK_SIZE: Final = 1000
_MAX_LONG: Final = (1 << 63) - 1


class ProducerIdControl:
    """The next producer id that is not allocated."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._next: TimelineObject[int] = TimelineObject(registry, 0)

    def replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        """Record an allocated block; a lower id would allocate ids twice."""
        if record.next_producer_id < self._next.value:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Next Producer ID from replayed record ({record.next_producer_id}) is not "
                f"greater than current next Producer ID in block ({self._next.value})",
            )
        self._next.value = record.next_producer_id

    def allocate(
        self, broker_id: int, broker_epoch: int
    ) -> ControllerResult[AllocateProducerIdsResponse]:
        """Allocate the next block to a broker whose epoch was checked."""
        first = self._next.value
        if first > _MAX_LONG - BLOCK_SIZE:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "Exhausted all producerIds as the next block's end producerId has exceeded the "
                "int64 type limit",
            )
        record = ProducerIdsRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
        )
        response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
        return ControllerResult([MessageAndVersion(record, 0)], response)
