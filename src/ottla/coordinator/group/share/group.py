"""A share group: replayed state in timelines.

Kafka: org.apache.kafka.coordinator.group.modern.share.{ShareGroup, ShareGroupMember}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.group.member_group import MemberGroup, add_counts
from ottla.timeline import LATEST_EPOCH, TimelineDict, TimelineObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.timeline import SnapshotRegistry
    from ottla.types import Uuid

SHARE_PROTOCOL_TYPE: Final = "share"


class ShareGroupState(StrEnum):
    """States in Kafka's spelling."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member: topics are sorted, partitions by topic id rise; replaced as a whole on a change."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: tuple[str, ...] = ()
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assigned: Mapping[Uuid, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicParts:
    """Partitions of a topic, with its name and the time of the record."""

    name: str
    partitions: frozenset[int]
    timestamp_ms: int = 0


class InProgress(NamedTuple):
    """A share partition whose state is begun, or with partition -1 a topic whose states end."""

    topic_id: Uuid
    partition: int = -1


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Which share partitions the share coordinator knows, begins to know, or forgets.

    since has the offset of the record with which that began. An answer of a share coordinator is
    for what began at its own record or before, not for what a group of the same name has begun
    later. After a load it is the offset of the newest record, so that what was asked before the
    load is asked again.
    """

    initializing: Mapping[Uuid, TopicParts] = field(default_factory=dict)
    initialized: Mapping[Uuid, TopicParts] = field(default_factory=dict)
    deleting: frozenset[Uuid] = frozenset()
    since: Mapping[InProgress, int] = field(default_factory=dict)


class ShareGroup(MemberGroup[ShareMember, "Mapping[Uuid, tuple[int, ...]]"]):
    """Adds the share partitions.

    Soft, so that a heartbeat without news examines no topic: assigned_at, the epochs and the share
    partitions at which all that was initialised was found in the target; initialized_at, the group
    epoch and the share partitions at which no subscribed partition was missing.
    """

    group_type = "Share"
    has_offsets = False
    protocol_type: str | None = SHARE_PROTOCOL_TYPE

    def __init__(self, group_id: str, registry: SnapshotRegistry) -> None:
        super().__init__(group_id, registry)
        self.assigned_at: tuple[int, int, StatePartitions] | None = None
        self.initialized_at: tuple[int, StatePartitions | None] | None = None
        self._state_partitions: TimelineObject[StatePartitions | None] = TimelineObject(
            registry, None
        )
        self._topic_counts: TimelineDict[str, int] = TimelineDict(registry)

    # ---------------------------------------------------------------- queries

    @property
    def state_partitions(self) -> StatePartitions | None:
        """The share partitions; None before the first of them."""
        return self._state_partitions.value

    def state_partitions_at(self, epoch: int) -> StatePartitions:
        """Return the share partitions in a state of the log."""
        return self._state_partitions.at(epoch) or StatePartitions()

    def state_at(self, epoch: int = LATEST_EPOCH) -> ShareGroupState:
        """Return the group's state."""
        return ShareGroupState.STABLE if self.members.at(epoch) else ShareGroupState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic."""
        return topic in self._topic_counts

    def reads_any(self, names: frozenset[str]) -> bool:
        """Whether a member subscribes to one of these topics."""
        return not self._topic_counts.keys().isdisjoint(names)

    def subscribed_topics(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> set[str]:
        """Return the topics of all members after a member's topics have changed."""
        counts = dict(self._topic_counts.items())
        add_counts(counts, removed, -1)
        add_counts(counts, added, 1)
        return set(counts)

    # ---------------------------------------------------------------- replay

    def put(self, member: ShareMember) -> None:
        """Add a member or replace it, with its subscription."""
        self._forget_topics(member.member_id)
        self.members[member.member_id] = member
        add_counts(self._topic_counts, member.subscribed_topics, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member; no effect for others."""
        self._forget_topics(member_id)
        self.members.pop(member_id, None)

    def _forget_topics(self, member_id: str) -> None:
        known: ShareMember | None = self.members.get(member_id)
        if known is not None:
            add_counts(self._topic_counts, known.subscribed_topics, -1)

    def set_state_partitions(self, partitions: StatePartitions | None) -> None:
        """Apply the share partitions."""
        self._state_partitions.value = partitions
