"""The resources that have a configuration.

Kafka: org.apache.kafka.common.config.ConfigResource.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


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
