"""Request context and topic lookups that the coordinator needs in addition to the request.

Kafka: AuthorizableRequestContext; MetadataCache for the names of topics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from ottla.coordinator.group.config import ShareGroupConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.coordinator.group.config import ConsumerGroupConfig, StreamsGroupConfig
    from ottla.types import Uuid


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
    may_describe_topic says which topics a pattern finds.
    """

    client_id: str
    client_host: str
    api_version: int
    may_describe_topic: Callable[[str], bool] = allow_all


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
