"""The topics in which coordinators keep their state.

Kafka: org.apache.kafka.common.internals.Topic, GroupCoordinatorService.groupMetadataTopicConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})


class InternalTopic(NamedTuple):
    """How an internal topic is created."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


def internal_topic_settings(name: str, config: BrokerConfig) -> InternalTopic | None:
    """Return how to create an internal topic; None for a name that is none."""
    if name != OFFSETS_TOPIC:
        return None
    return InternalTopic(
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
    )
