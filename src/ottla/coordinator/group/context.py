"""The coordinator's settings, and the request context and topic lookups that it needs.

Kafka: AuthorizableRequestContext; MetadataCache for the names of topics;
org.apache.kafka.coordinator.group.GroupCoordinatorConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.types import Uuid


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


PartitionCheck: TypeAlias = "Callable[[str, int, Uuid], None]"
"""Raises for a partition (topic, number, topic id) that a member may not commit."""
MEMBER_EPOCH_VERSION: Final = 9
"""The first version of OffsetCommit with member epochs."""


def allow_all(_name: str) -> bool:
    """Allow every group or topic: the filter without an authorizer."""
    return True


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The client of a request and the API version.

    client_host is the peer's address as Java prints it, with a slash in front: "/127.0.0.1".
    may_describe_topic says which topics a pattern finds; connection_id is the name of the
    connection, which no other one of this broker has.
    """

    client_id: str
    client_host: str
    api_version: int
    may_describe_topic: Callable[[str], bool] = allow_all
    connection_id: str = ""


class TopicNames(Protocol):
    """Lookups of topics in the metadata image."""

    def topic_id(self, name: str) -> Uuid | None:
        """Return the id of a topic; None when there is no such topic."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the name of a topic; None when there is no such topic."""

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic exists and has that partition."""

    def partition_count(self, name: str) -> int | None:
        """Return how many partitions a topic has; None when there is no such topic."""

    @property
    def metadata_offset(self) -> int:
        """The offset of the metadata image."""

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def partition_racks(self, name: str) -> list[list[str]]:
        """Return the racks of each partition's replicas; an empty list without such a topic."""


def default_share_settings(_group_id: str) -> ShareGroupConfig:
    """Return Kafka's defaults for every share group."""
    return ShareGroupConfig()


class GroupDependencies(NamedTuple):
    """What the groups of all shards share: topics, settings by group, ids for members."""

    topics: TopicNames
    settings: Callable[[str], ConsumerGroupConfig]
    new_member_id: Callable[[], str]
    streams_settings: Callable[[str], StreamsGroupConfig]
    share_settings: Callable[[str], ShareGroupConfig] = default_share_settings
