"""The resources that have a configuration, and the entities that have quotas.

Kafka: org.apache.kafka.common.config.ConfigResource; org.apache.kafka.server.config.QuotaConfig,
org.apache.kafka.common.quota.ClientQuotaEntity.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias


class ConfigResourceType(IntEnum):
    """Numbers as on the wire and in ConfigRecord."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfiguredResource(NamedTuple):
    """One resource with settings; a BROKER without a name stands for all brokers."""

    type: int
    name: str

    def __str__(self) -> str:
        return f"ConfigResource(type={ConfigResourceType(self.type).name}, name='{self.name}')"


CLUSTER_DEFAULT = ConfiguredResource(ConfigResourceType.BROKER, "")


USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(entity type, name or None for the default), sorted by type."""
