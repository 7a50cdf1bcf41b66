"""The group coordinator's settings from the broker's.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.config import GroupCoordinatorConfig

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_MINUTE_MS = 60_000


def group_coordinator_config(config: BrokerConfig) -> GroupCoordinatorConfig:
    """Return the settings of the group coordinator."""
    return GroupCoordinatorConfig(
        offsets_topic_num_partitions=config.offsets_topic_num_partitions,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offset_commit_timeout_ms=config.offsets_commit_timeout_ms,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
    )
