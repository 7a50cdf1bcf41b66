"""Client quotas by entity.

Kafka: org.apache.kafka.image.{ClientQuotasImage, ClientQuotasDelta}.
"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING

from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.records.metadata import ClientQuotaRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.quota_keys import QuotaEntity


def entity_of(record: ClientQuotaRecord) -> QuotaEntity:
    """Return the entity of a record."""
    return tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))


class QuotasImage:
    """Limits by entity and key."""

    __slots__ = ("by_entity",)

    def __init__(self) -> None:
        self.by_entity: dict[QuotaEntity, dict[str, float]] = {}

    def replay_client_quota(self, record: ClientQuotaRecord, delta: MetadataDelta) -> None:
        """Set or remove one limit."""
        entity = entity_of(record)
        delta.quotas_changed[entity] = None
        limits = self.by_entity.setdefault(entity, {})
        if record.remove:
            limits.pop(record.key, None)
        else:
            limits[record.key] = record.value
        if not limits:
            del self.by_entity[entity]

    def records(self) -> Iterator[MessageAndVersion]:
        """Return the records of the current state; later changes do not affect them."""
        stored = [
            (entity, key, value)
            for entity, limits in self.by_entity.items()
            for key, value in limits.items()
        ]
        return starmap(_record, stored)


def _record(entity: QuotaEntity, key: str, value: float) -> MessageAndVersion:
    parts = [
        ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
    ]
    return MessageAndVersion(ClientQuotaRecord(entity=parts, key=key, value=value, remove=False), 0)
