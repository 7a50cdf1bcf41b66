"""A consumer group and its members: replayed state in timelines.

Kafka: org.apache.kafka.coordinator.group.modern.{ModernGroup, consumer.ConsumerGroup};
org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember, modern.MemberState;
ConsumerGroup.{computeSubscribedTopicNames, subscriptionType}.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.coordinator.group.member_group import MemberGroup, Owners, add_counts
from ottla.errors import ErrorCode, KafkaError
from ottla.timeline import LATEST_EPOCH, TimelineDict, TimelineObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.timeline import SnapshotRegistry
    from ottla.types import Uuid


TopicPartitions: TypeAlias = "Mapping[Uuid, tuple[int, ...]]"
"""Partitions by topic id, rising."""
EpochsByPartition: TypeAlias = "Mapping[Uuid, Mapping[int, int]]"
"""Partitions by topic id, each with the epoch in which it was assigned (KIP-1251)."""


class MemberState(IntEnum):
    """Progress of a member towards its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> MemberState:
        return cls.UNKNOWN  # of a later release


class ClassicMetadata(NamedTuple):
    """What a member that uses the classic protocol has sent when it joined.

    protocols holds name and subscription of each, in the member's order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol of the member's assignments."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member; the mappings are never changed in place. classic: it uses the classic protocol."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = ""
    server_assignor: str | None = None
    assigned: EpochsByPartition = field(default_factory=dict)
    pending_revocation: EpochsByPartition = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has reached the target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def moved(
        self,
        state: MemberState,
        epoch: int,
        assigned: EpochsByPartition,
        pending_revocation: EpochsByPartition,
    ) -> ConsumerMember:
        """Return the member with another state and assignment; its epoch becomes the previous."""
        return replace(
            self,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Return the epoch in which a partition was assigned; None if it is not the member's."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch


def without_epochs(assignment: EpochsByPartition) -> dict[Uuid, tuple[int, ...]]:
    """Return the partitions alone."""
    return {topic_id: tuple(sorted(one)) for topic_id, one in assignment.items()}


def topics_of(group: ConsumerGroup, member: ConsumerMember) -> tuple[str, ...]:
    """Return the topics of a member's subscription, by name and by pattern."""
    pattern = member.subscribed_regex
    resolved = group.resolved.get(pattern) if pattern else None
    if resolved is None:
        return member.subscribed_topics
    return tuple(dict.fromkeys((*member.subscribed_topics, *resolved.topics)))


def subscribed_topics(
    group: ConsumerGroup,
    added: Iterable[ConsumerMember] = (),
    removed: Iterable[ConsumerMember] = (),
) -> set[str]:
    """Return all topics of the group's subscriptions after members were added and removed."""
    names = dict(group.topic_counts.items())
    patterns = dict(group.regex_counts.items())
    for members, change in ((removed, -1), (added, 1)):
        for member in members:
            for name in member.subscribed_topics:
                names[name] = names.get(name, 0) + change
            if member.subscribed_regex:
                pattern = member.subscribed_regex
                patterns[pattern] = patterns.get(pattern, 0) + change
    topics = {name for name, count in names.items() if count > 0}
    for pattern, count in patterns.items():
        resolved = group.resolved.get(pattern)
        if count > 0 and resolved is not None:
            topics.update(resolved.topics)
    return topics


CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class ConsumerState(StrEnum):
    """States in Kafka's spelling."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that match a regular expression, as of a version of the metadata."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


class ConsumerGroup(MemberGroup[ConsumerMember, "TopicPartitions"]):
    """Adds static members, the owners of partitions, patterns, and members of the classic protocol.

    Kafka: ConsumerGroup.
    """

    group_type = "Consumer"
    protocol_type: str | None = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, registry: SnapshotRegistry) -> None:
        super().__init__(group_id, registry)
        self.static_members: Owners[str] = Owners(registry)
        self.partition_owners: Owners[tuple[Uuid, int]] = Owners(registry)
        self.topic_counts: TimelineDict[str, int] = TimelineDict(registry)
        self.regex_counts: TimelineDict[str, int] = TimelineDict(registry)
        self.resolved: TimelineDict[str, ResolvedRegex] = TimelineDict(registry)
        self.classic_count: TimelineObject[int] = TimelineObject(registry, 0)
        self.classic_protocols: TimelineDict[str, int] = TimelineDict(registry)
        self.has_partition_metadata: TimelineObject[bool] = TimelineObject(registry, False)

    # ---------------------------------------------------------------- queries

    def state_at(self, epoch: int = LATEST_EPOCH) -> ConsumerState:
        """Return the group's state."""
        members = self.members.at(epoch)
        group_epoch, assignment_epoch = self.epochs_at(epoch)
        if not members:
            return ConsumerState.EMPTY
        if group_epoch > assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(assignment_epoch) for member in members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def epoch_name(self, member: ConsumerMember) -> str:
        """Return the name of what members send as their epoch."""
        return "member epoch" if member.classic is None else "generation id"

    def stale(self, member: ConsumerMember, text: str) -> KafkaError:
        """Return the error of a member that has another epoch."""
        is_classic = member.classic is not None
        code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
        return KafkaError(code, text)

    def reads_any(self, names: frozenset[str]) -> bool:
        """Whether one of these topics is, or may be by pattern, part of the metadata hash."""
        return bool(self.regex_counts) or not self.topic_counts.keys().isdisjoint(names)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member with an instance id; None if there is none."""
        member_id = self.static_member_id(instance_id)
        return None if member_id is None else self.member(member_id)

    def static_member_id(self, instance_id: str) -> str | None:
        """Return the id of the member with an instance id; None if there is none."""
        owners: tuple[str, ...] = self.static_members.get(instance_id, (None,))
        return owners[0]

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic, by name or by pattern."""
        return topic in self.topic_counts or any(
            topic in resolved.topics for resolved in self.resolved.values()
        )

    def target_of(self, member_id: str, instance_id: str | None) -> TopicPartitions:
        """Return the target assignment of a member, for a static one of its instance id."""
        if instance_id is not None:
            member_id = self.static_member_id(instance_id) or ""
        target: TopicPartitions = self.target.get(member_id, {})
        return target

    def preferred_assignor_at(
        self, epoch: int = LATEST_EPOCH, replaced: Mapping[str, ConsumerMember] | None = None
    ) -> str | None:
        """Return the assignor that most members name; replaced overrides members by id."""
        members = {**self.members.at(epoch), **(replaced or {})}
        named = [member.server_assignor for member in members.values() if member.server_assignor]
        votes = Counter(sorted(named))
        return max(votes, key=votes.__getitem__) if votes else None

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether all members of the classic protocol support one of these protocols."""
        count = self.classic_count.value
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self.classic_protocols.get(name, 0) == count for name, _ in protocols
        )

    def is_classic_without(self, members: Iterable[ConsumerMember]) -> bool:
        """Whether all other members use the classic protocol."""
        leaving = tuple(members)
        classic = self.classic_count.value - sum(member.classic is not None for member in leaving)
        return classic == len(self.members) - len(leaving)

    def waits_for_partitions(self, member: ConsumerMember) -> bool:
        """Whether other members still own partitions of a member's target."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            index not in member.assigned.get(topic_id, {})
            and (topic_id, index) in self.partition_owners
            for topic_id, indexes in self.target.get(member.member_id, {}).items()
            for index in indexes
        )

    # ---------------------------------------------------------------- replay

    def put(self, member: ConsumerMember) -> None:
        """Add a member or replace it, with its partitions and subscriptions."""
        self._replace(member.member_id, member)
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Remove a member; no effect for others."""
        self._replace(member_id, None)
        self.members.pop(member_id, None)

    def _replace(self, member_id: str, new: ConsumerMember | None) -> None:
        old: ConsumerMember | None = self.members.get(member_id)
        self._count(old, -1)
        self._count(new, 1)
        self.partition_owners.move(member_id, _partitions(old), _partitions(new))
        self.static_members.move(member_id, _instance(old), _instance(new))

    def _count(self, member: ConsumerMember | None, change: int) -> None:
        if member is None:
            return
        add_counts(self.topic_counts, member.subscribed_topics, change)
        if member.subscribed_regex:
            add_counts(self.regex_counts, (member.subscribed_regex,), change)
        if member.classic is not None:
            self.classic_count.value += change
            names = dict.fromkeys(name for name, _ in member.classic.protocols)
            add_counts(self.classic_protocols, names, change)


def _instance(member: ConsumerMember | None) -> set[str]:
    return set() if member is None or member.instance_id is None else {member.instance_id}


def _partitions(member: ConsumerMember | None) -> set[tuple[Uuid, int]]:
    if member is None:
        return set()
    assignments: tuple[EpochsByPartition, ...] = (member.assigned, member.pending_revocation)
    return {
        (topic_id, partition)
        for assignment in assignments
        for topic_id, partitions in assignment.items()
        for partition in partitions
    }
