"""The broker's configuration: 340 public names and 20 internal ones, split by subject.

Kafka: kafka.server.KafkaConfig, org.apache.kafka.server.config.AbstractKafkaConfig.
"""

from __future__ import annotations

from ottla.config.broker.config import BrokerConfig
from ottla.config.broker.endpoints import (
    HostAndPort,
    ListenerEndpoint,
    SecurityProtocol,
    StaticVoter,
)
from ottla.config.broker.rules import parse_broker_config

__all__ = [
    "BrokerConfig",
    "HostAndPort",
    "ListenerEndpoint",
    "SecurityProtocol",
    "StaticVoter",
    "parse_broker_config",
]
