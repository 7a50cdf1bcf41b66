"""The next producer id that is not allocated to a broker.

Kafka: org.apache.kafka.image.{ProducerIdsImage, ProducerIdsDelta}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.records.metadata import ProducerIdsRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.delta import MetadataDelta


class ProducerIdsImage:
    """-1 before the first block is allocated."""

    __slots__ = ("next_producer_id",)

    def __init__(self) -> None:
        self.next_producer_id = -1

    def replay_producer_ids(self, record: ProducerIdsRecord, delta: MetadataDelta) -> None:
        """Record the allocation of a block."""
        delta.producer_ids_changed = True
        self.next_producer_id = record.next_producer_id

    def records(self) -> Iterator[MessageAndVersion]:
        """Yield the record that makes this state."""
        if self.next_producer_id >= 0:
            record = ProducerIdsRecord(
                broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id
            )
            yield MessageAndVersion(record, 0)
