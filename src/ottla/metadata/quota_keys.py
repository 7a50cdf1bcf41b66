"""Names of quota keys, quota entity types, and the form of a quota entity.

Kafka: org.apache.kafka.server.config.QuotaConfig, org.apache.kafka.common.quota.ClientQuotaEntity.
"""

from __future__ import annotations

from typing import Final, TypeAlias

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
