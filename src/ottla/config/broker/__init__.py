"""The broker's configuration: 340 public names and 20 internal ones, split by subject.

Kafka: kafka.server.KafkaConfig, org.apache.kafka.server.config.AbstractKafkaConfig.
"""

from __future__ import annotations

from ottla.config.broker.config import BrokerConfig
from ottla.config.broker.endpoints import Endpoint, HostAndPort, SecurityProtocol, Voter
from ottla.config.broker.parsing import parse_broker_config

__all__ = [
    "BrokerConfig",
    "Endpoint",
    "HostAndPort",
    "SecurityProtocol",
    "Voter",
    "parse_broker_config",
]
