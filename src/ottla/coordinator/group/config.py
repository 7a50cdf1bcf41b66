"""The settings of the group coordinator, with Kafka's defaults.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """The settings of a consumer group (KIP-848): the broker's, or the group's own."""

    assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors
    max_size: int = 2**31 - 1  # group.consumer.max.size
    session_timeout_ms: int = 45_000  # consumer.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # consumer.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # consumer.assignment.interval.ms
    regex_refresh_interval_ms: int = 600_000  # group.consumer.regex.refresh.interval.ms


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """The settings of a streams group (KIP-1071): the broker's, or the group's own."""

    max_size: int = 2**31 - 1  # group.streams.max.size
    session_timeout_ms: int = 45_000  # streams.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # streams.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # streams.assignment.interval.ms
    initial_rebalance_delay_ms: int = 3_000  # streams.initial.rebalance.delay.ms
    standby_replicas: int = 0  # streams.num.standby.replicas


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Each field's comment is its name in the broker's configuration; times in milliseconds."""

    offsets_topic_num_partitions: int = 50  # offsets.topic.num.partitions
    offsets_retention_ms: int = 10_080 * _MINUTE_MS  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    offset_metadata_max_bytes: int = 4096  # offset.metadata.max.bytes
    offset_commit_timeout_ms: int = 5_000  # offset.commit.timeout.ms
    load_buffer_bytes: int = 5_242_880  # offsets.load.buffer.size
    group_min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    group_max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    group_initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    group_max_size: int = 2**31 - 1  # group.max.size
    group_consumer_migration_policy: str = "bidirectional"  # group.consumer.migration.policy
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS  # no setting in Kafka either
    max_pending_members: int = 10_000  # ours: ids handed out and not used yet, a group

    @property
    def is_upgrade_enabled(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.group_consumer_migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def is_downgrade_enabled(self) -> bool:
        """Whether a consumer group may become a classic one with its last consumer member."""
        return self.group_consumer_migration_policy.lower() in ("downgrade", "bidirectional")


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """The settings of a share group (KIP-932): the broker's, or the group's own (KIP-1240)."""

    max_size: int = 200  # group.share.max.size
    session_timeout_ms: int = 45_000  # share.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # share.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # share.assignment.interval.ms
    initialize_retry_interval_ms: int = 30_000  # group.share.initialize.retry.interval.ms
