"""The topics in which coordinators keep their state.

Kafka: org.apache.kafka.common.internals.Topic, GroupCoordinatorService.groupMetadataTopicConfigs,
TransactionCoordinator.transactionStateTopicConfigs, ShareCoordinatorService.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.config.broker import BrokerConfig

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})

REPLICATION_FACTORS: Mapping[str, str] = MappingProxyType(
    {
        OFFSETS_TOPIC: "offsets.topic.replication.factor",
        TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
        SHARE_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
    }
)
"""The settings of their replication factors."""


class InternalTopicDefinition(NamedTuple):
    """How an internal topic is created."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


def internal_topic_settings(name: str, config: BrokerConfig) -> InternalTopicDefinition | None:
    """Return how to create an internal topic; None for the name of another topic.

    A Metadata request may create it before a coordinator needs it.
    """
    make = _SETTINGS.get(name)
    return None if make is None else make(config)


def _offsets(config: BrokerConfig) -> InternalTopicDefinition:
    return InternalTopicDefinition(
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
    )


def _transaction_state(config: BrokerConfig) -> InternalTopicDefinition:
    return InternalTopicDefinition(
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
    )


def _share_state(config: BrokerConfig) -> InternalTopicDefinition:
    return InternalTopicDefinition(
        config.share_coordinator_state_topic_num_partitions,
        config.share_coordinator_state_topic_replication_factor,
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            "retention.ms": "-1",
        },
    )


_SETTINGS: Mapping[str, Callable[[BrokerConfig], InternalTopicDefinition]] = MappingProxyType(
    {
        OFFSETS_TOPIC: _offsets,
        TRANSACTION_STATE_TOPIC: _transaction_state,
        SHARE_STATE_TOPIC: _share_state,
    }
)
