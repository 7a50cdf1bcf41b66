"""Stored settings by resource, and client quotas by entity.

Settings that no resource of their type has are left out, as in Kafka (KAFKA-19851): a cluster that
was upgraded may have some that were removed since.

Kafka: org.apache.kafka.image.{ConfigurationsImage, ConfigurationsDelta},
org.apache.kafka.server.config.DefaultSupportedConfigChecker;
org.apache.kafka.image.{ClientQuotasImage, ClientQuotasDelta}.
"""

from __future__ import annotations

from itertools import starmap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ottla.config.group import ClientMetricsConfig, GroupConfig
from ottla.config.topic_settings import TopicSettings
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.protocol.records.metadata import ClientQuotaRecord, ConfigRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.resources import QuotaEntity


_NOTHING: Mapping[str, str] = MappingProxyType({})
_TABLES: Final = MappingProxyType(
    {
        int(ConfigResourceType.TOPIC): TopicSettings,
        int(ConfigResourceType.CLIENT_METRICS): ClientMetricsConfig,
        int(ConfigResourceType.GROUP): GroupConfig,
    }
)


def is_supported(resource_type: int, name: str) -> bool:
    """Whether resources of a type have a setting of this name; brokers may have any."""
    if resource_type == ConfigResourceType.BROKER:
        return True
    table = _TABLES.get(resource_type)
    return table is not None and name in table.keys


class ConfigsImage:
    """Settings by resource; a resource without settings has no entry."""

    __slots__ = ("by_resource",)

    def __init__(self) -> None:
        self.by_resource: dict[ConfiguredResource, dict[str, str]] = {}

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return what is stored for one resource; do not change it."""
        key: Any = (resource_type, name)  # equal to a ConfiguredResource, and made faster
        return self.by_resource.get(key, _NOTHING)

    def topic(self, name: str) -> Mapping[str, str]:
        """Return a topic's own settings."""
        return self.of(ConfigResourceType.TOPIC, name)

    def broker(self, name: str) -> Mapping[str, str]:
        """Return what is stored for a broker id, or for all brokers by the empty name."""
        return self.of(ConfigResourceType.BROKER, name)

    def replay_config(self, record: ConfigRecord, delta: MetadataDelta) -> None:
        """Set or (null) remove one setting."""
        if not is_supported(record.resource_type, record.name):
            return
        resource = ConfiguredResource(record.resource_type, record.resource_name)
        settings = self.by_resource.get(resource)
        old = None if settings is None else settings.get(record.name)
        delta.configs_changed.setdefault(resource, {}).setdefault(record.name, old)
        if record.value is not None:
            if settings is None:
                settings = self.by_resource[resource] = {}
            settings[record.name] = record.value
        elif settings is not None:
            settings.pop(record.name, None)
            if not settings:
                del self.by_resource[resource]

    def topic_removed(self, name: str) -> None:
        """Remove a deleted topic's settings: no record of their own does it."""
        self.by_resource.pop(ConfiguredResource(ConfigResourceType.TOPIC, name), None)

    def records(self) -> Iterator[MessageAndVersion]:
        """Return the records of the current state; later changes do not affect them."""
        return _records([(resource, dict(some)) for resource, some in self.by_resource.items()])


def _records(
    stored: list[tuple[ConfiguredResource, dict[str, str]]],
) -> Iterator[MessageAndVersion]:
    for resource, settings in stored:
        for name, value in settings.items():
            record = ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
            yield MessageAndVersion(record, 0)


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
