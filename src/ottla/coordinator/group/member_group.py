"""What consumer, share and streams groups have in common: members, epochs, a target assignment.

Kafka: org.apache.kafka.coordinator.group.modern.ModernGroup, and the same in
streams.StreamsGroup; org.apache.kafka.coordinator.group.Group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.timeline import TimelineDict, TimelineObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping
    from collections.abc import Set as AbstractSet
    from enum import StrEnum

    from ottla.timeline import SnapshotRegistry


D = TypeVar("D")


class Group(Protocol):
    """A group of any kind."""

    @property
    def group_id(self) -> str:
        """The group's name."""

    @property
    def group_type(self) -> str:
        """The kind of the group, in Kafka's spelling: Classic, Consumer, Share, Streams."""

    @property
    def has_offsets(self) -> bool:
        """Whether its members commit offsets."""

    @property
    def protocol_type(self) -> str | None:
        """What its members do, as ListGroups reports it; None for groups with offsets only."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted."""

    @property
    def members(self) -> Mapping[str, Any]:
        """The members by id."""

    def state_at(self, epoch: int = ...) -> StrEnum:
        """Return the state in the log's state of an epoch."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic, so that its offsets stay."""


@dataclass(frozen=True, slots=True)
class Description(Generic[D]):
    """The description of a group, whose members are still to be described and added.

    `members` refers only to immutable state.
    """

    group: Any
    members: Iterable[Any] = ()


M = TypeVar("M")
T = TypeVar("T")
K = TypeVar("K")

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
FIRST_EPOCH: Final = 1
"""The epochs of a new group, before its first change."""


class Owners(TimelineDict[K, tuple[str, ...]]):
    """The members that have each partition, task or instance id, sorted by their ids.

    A function of the members alone, whatever the order of their records: of a compacted log the
    record of a new owner may be replayed before that with which the old one gave it up. A single
    owner for each key would be overwritten by the one and then removed by the other.
    """

    __slots__ = ()

    def move(self, member_id: str, old: AbstractSet[K], new: AbstractSet[K]) -> None:
        """Replace what a member has."""
        for key in old - new:
            remaining = tuple(owner for owner in self[key] if owner != member_id)
            if remaining:
                self[key] = remaining
            else:
                del self[key]
        alone = (member_id,)
        for key in new - old:
            others = self.get(key)
            self[key] = alone if others is None else tuple(sorted((*others, member_id)))


class MemberGroup(ABC, Generic[M, T]):
    """A group of members M, each of which has a target assignment T; replayed state in timelines.

    fresh_epoch is soft: the group epoch in which the metadata hash was last compared with the
    metadata; None requests another comparison.
    """

    group_type: ClassVar[str]
    """The name of the kind."""
    has_offsets: ClassVar[bool] = True
    protocol_type: str | None

    def __init__(self, group_id: str, registry: SnapshotRegistry) -> None:
        self.group_id = group_id
        self.fresh_epoch: int | None = None
        self._epoch: TimelineObject[int] = TimelineObject(registry, FIRST_EPOCH)
        self._metadata_hash: TimelineObject[int] = TimelineObject(registry, 0)
        self._assignment_epoch: TimelineObject[tuple[int, int]] = TimelineObject(
            registry, (FIRST_EPOCH, 0)
        )
        self.members: TimelineDict[str, M] = TimelineDict(registry)
        self.target: TimelineDict[str, T] = TimelineDict(registry)

    # ---------------------------------------------------------------- members

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    def member(self, member_id: str) -> M:
        """Return a member; raises UNKNOWN_MEMBER_ID."""
        member: M | None = self.members.get(member_id)
        if member is None:
            raise self._unknown(member_id)
        return member

    def member_at(self, member_id: str | None, epoch: int) -> M:
        """Return a member in the log's state of an epoch; raises UNKNOWN_MEMBER_ID."""
        member = self.members.get_at(member_id or "", epoch)
        if member is None:
            raise self._unknown(member_id)
        return member

    def _unknown(self, member_id: str | None) -> KafkaError:
        text = f"Member {member_id} is not a member of group {self.group_id}."
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)

    # ---------------------------------------------------------------- epochs

    @property
    def epoch(self) -> int:
        """The group epoch: it rises with every change of subscriptions or metadata."""
        return self._epoch.value

    @property
    def metadata_hash(self) -> int:
        """The hash of the topics' metadata at the group epoch."""
        return self._metadata_hash.value

    @property
    def assignment_epoch(self) -> int:
        """The group epoch for which the target assignment was computed."""
        return self._assignment_epoch.value[0]

    @property
    def assignment_timestamp_ms(self) -> int:
        """The time at which the target assignment was computed; 0 when unknown."""
        return self._assignment_epoch.value[1]

    @property
    def is_fresh(self) -> bool:
        """Whether the metadata hash was compared in the group's epoch."""
        return self.fresh_epoch is not None and self.epoch >= self.fresh_epoch

    def epochs_at(self, epoch: int) -> tuple[int, int]:
        """Return group epoch and assignment epoch in the log's state of an epoch."""
        return self._epoch.at(epoch), self._assignment_epoch.at(epoch)[0]

    @abstractmethod
    def state_at(self, epoch: int = ...) -> StrEnum:
        """Return the state in the log's state of an epoch."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int, epoch: int) -> None:
        """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH; requests without a member pass."""
        if not self.has_offsets or (member_id is None and member_epoch < 0):
            return
        member: Any = self.member_at(member_id, epoch)
        if member_epoch != member.member_epoch:
            raise self.stale(
                member,
                f"The received {self.epoch_name(member)} {member_epoch} does not match the "
                f"expected member epoch {member.member_epoch}.",
            )

    def epoch_name(self, _member: M) -> str:
        """Return the name of what members send as their epoch."""
        return "member epoch"

    def stale(self, _member: M, text: str) -> KafkaError:
        """Return the error of a member that has another epoch."""
        return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, text)

    @abstractmethod
    def reads_any(self, names: frozenset[str]) -> bool:
        """Whether the metadata of one of these topics is part of the group's metadata hash."""

    # ---------------------------------------------------------------- replay

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        """Apply a group epoch."""
        self._epoch.value = epoch
        self._metadata_hash.value = metadata_hash

    def set_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Apply the epoch of a target assignment."""
        self._assignment_epoch.value = (epoch, timestamp_ms)

    def set_target(self, member_id: str, target: T | None) -> None:
        """Apply a member's target assignment; None removes it."""
        if target is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = target


def add_counts(counts: MutableMapping[str, int], names: Iterable[str], change: int) -> None:
    """Change the count of each name; names without a count are removed."""
    for name in names:
        count = counts.get(name, 0) + change
        if count:
            counts[name] = count
        else:
            counts.pop(name, None)
