"""A kind of groups with members: its records and their replay, its target, its members' timers.

A kind is one subclass in a module of its own, `kind.py` of its package; `groups.KINDS` names all.

Kafka: the methods that GroupMetadataManager and GroupCoordinatorRecordHelpers have for each kind.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.coordinator.group import slices
from ottla.coordinator.group.member_group import FIRST_EPOCH, Description, MemberGroup
from ottla.coordinator.runtime.shard import CoordinatorRecord, Result, empty_result
from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.work import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from ottla.clock import Clock
    from ottla.coordinator.group.context import GroupCoordinatorConfig, GroupDependencies
    from ottla.coordinator.group.slices import Slices, Steps
    from ottla.coordinator.group.topic_hashes import TopicHashes
    from ottla.coordinator.runtime import ShardTimers
    from ottla.timeline import SnapshotRegistry, TimelineDict

log = logging.getLogger("ottla.groups")
_RETRY_MS: Final = 1000
"""Until the records of a member's removal are tried again that could not be written."""


class MemberTimer(Enum):
    """What a member has to do before a timer fires."""

    SESSION = "send a heartbeat"
    REBALANCE = "give up partitions or tasks"
    JOIN = "rejoin, by the classic protocol"
    SYNC = "sync, by the classic protocol"


class TargetDelay(StrEnum):
    """Why a target that is due is not computed yet: the text for members of streams groups."""

    INITIAL = "Assignment delayed due to the configured initial rebalance delay."
    COMPUTATION = "Assignment delayed because that of a large group takes time."
    INTERVAL = "Assignment delayed due to the configured assignment interval."


class Target(NamedTuple):
    """The assignment epoch of a group and the target of one of its members."""

    epoch: int
    assignment: Any
    delay: TargetDelay | None = None


class RecordType(NamedTuple):
    """A record of `__consumer_offsets`: the number of its key, the messages of key and value."""

    number: int
    key: type[Any]
    value: type[Any]


class Settings(Protocol):
    """The settings that groups of all kinds have."""

    @property
    def session_timeout_ms(self) -> int:
        """The time within which a member sends a heartbeat."""

    @property
    def assignment_interval_ms(self) -> int:
        """The time between two target assignments (KIP-1263)."""


@dataclass(frozen=True, slots=True)
class GroupEnvironment:
    """What the decisions about the groups of a shard depend on; `table` holds all of them."""

    config: GroupCoordinatorConfig
    registry: SnapshotRegistry
    timers: ShardTimers
    clock: Clock
    dependencies: GroupDependencies
    table: TimelineDict[str, Any]
    hashes: TopicHashes


G = TypeVar("G", bound=MemberGroup[Any, Any])
M = TypeVar("M")
T = TypeVar("T")
S = TypeVar("S", bound=Settings)


class GroupKind(ABC, Generic[G, M, T, S]):
    """Groups G of members M with targets T and settings S.

    The table is replayed state; timers and the number of raised epochs since the load are soft.
    """

    name: ClassVar[str]
    described_class: ClassVar[type[Any]]
    """The description of a group in the response of the kind's API."""
    undescribed_fields: ClassVar[Mapping[str, Any]] = MappingProxyType({"assignor_name": ""})
    """The fields that only this kind's descriptions have, for a group that is not described."""
    group_class: ClassVar[type[Any]]
    member_class: ClassVar[type[Any]]
    states: ClassVar[type[StrEnum]]
    epoch_record: ClassVar[RecordType]
    """Of a group's epoch, whose tombstone removes the group."""
    member_record: ClassVar[RecordType]
    target_epoch_record: ClassVar[RecordType]
    target_record: ClassVar[RecordType]
    assignment_record: ClassVar[RecordType]
    other_records: ClassVar[tuple[RecordType, ...]] = ()
    assignment_fields: ClassVar[tuple[str, ...]]
    """The fields of a member that the record of its assignment holds."""
    member_fields: ClassVar[tuple[str, ...]]
    """The fields of a member that the record of its metadata has as they are."""
    revoking_state: ClassVar[Enum | None] = None
    """The state of a member that has to give up something."""
    settings: Callable[[str], S]
    """Returns a group's settings in force: those of the broker, bounded, and the group's own."""

    def __init__(self, environment: GroupEnvironment) -> None:
        self.registry = environment.registry
        self.timers = environment.timers
        self.clock = environment.clock
        self.topics = environment.dependencies.topics
        self.hashes = environment.hashes
        self.table = environment.table
        self.rebalances = 0
        self._replays: dict[type[Any], Callable[[G, Any, Any, int], None]] = {
            self.epoch_record.key: self._apply_group,
            self.member_record.key: self._apply_member,
            self.target_epoch_record.key: self._apply_target_epoch,
            self.target_record.key: self._apply_target,
            self.assignment_record.key: self._apply_assignment,
        }
        """Replays of the records that all kinds have; `apply_other` has those of one kind."""

    @classmethod
    def record_types(cls) -> tuple[RecordType, ...]:
        """Return all records of the kind."""
        return (
            cls.epoch_record,
            cls.member_record,
            cls.target_epoch_record,
            cls.target_record,
            cls.assignment_record,
            *cls.other_records,
        )

    # ---------------------------------------------------------------- groups

    def find(self, group_id: str) -> G | None:
        """Return the group; None if there is none, or one of another kind."""
        group = self.table.get(group_id)
        return group if type(group) is self.group_class else None

    def get(self, group_id: str) -> G:
        """Return the group; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            text = f"{self.name} group {group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return group

    def to_leave(self, group_id: str) -> G:
        """Return the group of a member that leaves; raises GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def new(self, group_id: str) -> G:
        """Return an empty group; its first record adds it."""
        group: G = self.group_class(group_id, self.registry)
        return group

    def all(self) -> Iterator[G]:
        """Yield the groups of this kind."""
        return (group for group in self.table.values() if type(group) is self.group_class)

    def describe(self, group: G, epoch: int) -> Description[Any]:
        """Describe a group in the log's state of an epoch."""
        group_epoch, assignment_epoch = group.epochs_at(epoch)
        members, target = list(group.members.at(epoch).values()), dict(group.target.at(epoch))
        described = self.described_class(
            group_id=group.group_id,
            group_state=group.state_at(epoch).value,
            group_epoch=group_epoch,
            assignment_epoch=assignment_epoch,
            members=[],
            **self.described_fields(group, epoch),
        )
        return Description(
            described,
            (self.describe_member(member, target.get(member.member_id)) for member in members),
        )

    def described_fields(self, group: G, epoch: int) -> dict[str, Any]:
        """Return the fields that only this kind's descriptions have."""
        raise NotImplementedError

    def describe_member(self, member: M, target: T | None) -> Any:
        """Describe a member with its target."""
        raise NotImplementedError

    def check_deletion(self, group: G) -> None:
        """Raise NON_EMPTY_GROUP for a group that may not be deleted."""
        if not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    @classmethod
    def undescribed(cls, group_id: str, code: ErrorCode, text: str | None = None) -> Any:
        """Return the description of a group that cannot be described, with the reason."""
        return cls.described_class(
            error_code=code,
            error_message=text,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            members=[],
            **cls.undescribed_fields,
        )

    @classmethod
    def refused(cls, group_id: str, code: ErrorCode) -> Any:
        """Return the description of a group whose coordinator does not serve it."""
        return cls.undescribed(group_id, code)

    # ---------------------------------------------------------------- replay

    def replay(self, key: Any, value: Any, offset: int) -> None:
        """Apply a record of this kind.

        A record with a value adds its group; a tombstone of an unknown group has no effect. The
        tombstone of a group's epoch, the last of its records, removes the group.
        """
        group_id = key.group_id
        group = self.find(group_id)
        if group is None:
            if value is None:
                return
            group = self.table[group_id] = self.new(group_id)
        self._replays.get(type(key), self.apply_other)(group, key, value, offset)

    def _apply_group(self, group: G, _key: Any, value: Any, _offset: int) -> None:
        if value is not None:
            self.apply_epoch(group, value)
        else:
            del self.table[group.group_id]

    def apply_epoch(self, group: G, value: Any) -> None:
        """Apply a group epoch."""
        group.set_epoch(value.epoch, value.metadata_hash)

    def _apply_target(self, group: G, key: Any, value: Any, _offset: int) -> None:
        group.set_target(key.member_id, None if value is None else self.read_target(value))

    def apply_other(self, group: G, key: Any, value: Any, offset: int) -> None:
        """Apply one of the other records; a tombstone has no value."""
        raise NotImplementedError

    def _apply_member(self, group: Any, key: Any, value: Any, _offset: int) -> None:
        member_id = key.member_id
        if value is None:
            group.remove(member_id)
        else:
            known = group.members.get(member_id) or self.member_class(member_id)
            group.put(replace(known, **self.read_member(value)))

    def _apply_assignment(self, group: Any, key: Any, value: Any, _offset: int) -> None:
        """Apply a member's assignment; a tombstone resets it, as one that has just joined."""
        member_id = key.member_id
        known = group.members.get(member_id)
        if value is not None:
            known = known or self.member_class(member_id)
            group.put(replace(known, **self.read_assignment(value)))
        elif known is not None:
            fresh = self.member_class(member_id)
            group.put(
                replace(known, **{name: getattr(fresh, name) for name in self.assignment_fields})
            )

    @staticmethod
    def _apply_target_epoch(group: G, _key: Any, value: Any, _offset: int) -> None:
        """Apply the epoch of a target assignment; a tombstone resets it to that of a new group.

        The tombstone may come from before the group was removed and created again.
        """
        if value is None:
            group.set_assignment_epoch(FIRST_EPOCH, 0)
        else:
            group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)

    def read_member(self, value: Any) -> dict[str, Any]:
        """Return the fields of a member by the record of its metadata."""
        return {name: getattr(value, name) for name in self.member_fields}

    @abstractmethod
    def read_target(self, value: Any) -> T:
        """Return a target by its record."""

    @abstractmethod
    def read_assignment(self, value: Any) -> dict[str, Any]:
        """Return the fields of a member by the record of its assignment."""

    # ---------------------------------------------------------------- records

    def member_value(self, member: M) -> Any:
        """Return the value of a member's metadata."""
        same = {name: getattr(member, name) for name in self.member_fields}
        return self.member_record.value(**same, **self.written_fields(member))

    def written_fields(self, member: M) -> dict[str, Any]:
        """Return the fields of a member's metadata that have another form in the record."""
        raise NotImplementedError

    @abstractmethod
    def target_value(self, target: T) -> Any:
        """Return the value of a target."""

    @abstractmethod
    def assignment_value(self, member: M) -> Any:
        """Return the value of a member's state, epochs and assignment."""

    def group_epoch(self, group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        """Return the record of a group epoch."""
        _, key, value = self.epoch_record
        return CoordinatorRecord(
            key(group_id=group_id), value(epoch=epoch, metadata_hash=metadata_hash)
        )

    def member_metadata(self, group_id: str, member: Any) -> CoordinatorRecord:
        """Return the record of a member's metadata, its subscription included."""
        key = self.member_record.key(group_id=group_id, member_id=member.member_id)
        return CoordinatorRecord(key, self.member_value(member))

    def target_epoch(self, group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
        """Return the record of the epoch of a target assignment."""
        _, key, value = self.target_epoch_record
        return CoordinatorRecord(
            key(group_id=group_id), value(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        )

    def target_member(self, group_id: str, member_id: str, target: T) -> CoordinatorRecord:
        """Return the record of a member's target assignment."""
        key = self.target_record.key(group_id=group_id, member_id=member_id)
        return CoordinatorRecord(key, self.target_value(target))

    def current_assignment(self, group_id: str, member: Any) -> CoordinatorRecord:
        """Return the record of a member's state, epochs and assignment."""
        key = self.assignment_record.key(group_id=group_id, member_id=member.member_id)
        return CoordinatorRecord(key, self.assignment_value(member))

    def member_tombstones(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        """Return the records that remove a member: assignment, target and metadata."""
        current, target, metadata = self._tombstones(group_id, (member_id,))
        return [*current, *target, *metadata]

    def group_tombstones(
        self, group: G, renamed: Mapping[str, str] | None = None
    ) -> list[CoordinatorRecord]:
        """Return the records that remove a group with its members, in Kafka's order.

        renamed holds the new ids of members that were replaced in the same batch.
        """
        group_id = group.group_id
        names = [(renamed or {}).get(name, name) for name in group.members]
        current, target, metadata = self._tombstones(group_id, names)
        return [
            *current,
            *target,
            CoordinatorRecord(self.target_epoch_record.key(group_id=group_id)),
            *metadata,
            *self.last_tombstones(group),
        ]

    def last_tombstones(self, group: G) -> list[CoordinatorRecord]:
        """Return the records that remove a group without members and target."""
        return [CoordinatorRecord(self.epoch_record.key(group_id=group.group_id))]

    def _tombstones(
        self, group_id: str, member_ids: Sequence[str]
    ) -> Iterator[list[CoordinatorRecord]]:
        for record in (self.assignment_record, self.target_record, self.member_record):
            yield [
                CoordinatorRecord(record.key(group_id=group_id, member_id=name))
                for name in member_ids
            ]

    # ---------------------------------------------------------------- target

    def compute_target(self, group: G, members: dict[str, M]) -> Steps[Mapping[str, T]]:
        """Compute the targets of a group's members, given by id."""
        raise NotImplementedError

    def target_order(self, target: Mapping[str, T]) -> Iterable[str]:
        """Return the members of a target in the order of Kafka's records."""
        return target

    def target_records(
        self, group: G, target: Mapping[str, T], epoch: int
    ) -> list[CoordinatorRecord]:
        """Return the records of the targets that have changed, and of the assignment epoch."""
        group_id = group.group_id
        return [
            *(
                self.target_member(group_id, member_id, target[member_id])
                for member_id in self.target_order(target)
                if group.target.get(member_id) != target[member_id]
            ),
            self.target_epoch(group_id, epoch, self.clock.now_ms()),
        ]

    def members_with(self, group: G, member: Any) -> dict[str, M]:
        """Return the members of a group by id, after a change of one."""
        return {**group.members, member.member_id: member}

    def last_target(self, group: G, member: Any) -> Any:
        """Return the target that was computed last for a member."""
        return group.target.get(member.member_id, {})

    def update_target(
        self, group: G, group_epoch: int, member: Any, output: list[CoordinatorRecord]
    ) -> Target:
        """Return the target of a member, computed again where it is due; add its records to output.

        That of a large group is begun in slices, unless it is the group's first: until it is
        written its members have the last one.
        """
        epoch, last = group.assignment_epoch, self.last_target(group, member)
        if group_epoch <= epoch:
            return Target(epoch, last)
        timestamp_ms = group.assignment_timestamp_ms
        interval_ms = self.settings(group.group_id).assignment_interval_ms
        if not slices.is_due(timestamp_ms, interval_ms, self.clock.now_ms()):
            return Target(epoch, last, TargetDelay.INTERVAL)
        if timestamp_ms and slices.is_large(group):
            self.begin_target(group.group_id)
            return Target(epoch, last, TargetDelay.COMPUTATION)
        target = finish(self.compute_target(group, self.members_with(group, member)))
        output += self.target_records(group, target, group_epoch)
        return Target(group_epoch, target.get(member.member_id, {}))

    def target_key(self, group_id: str) -> Hashable:
        """Return the key of the target that is computed in slices."""
        return f"{self.name.lower()}-target", group_id

    def begin_target(self, group_id: str) -> None:
        """Compute the target of a group in slices, unless that has begun."""
        self.timers.write_all(self.target_key(group_id), self._target_slices(group_id))

    def _target_slices(self, group_id: str) -> Slices[None]:
        group = self.find(group_id)
        if group is not None and group.epoch > group.assignment_epoch:
            steps = self.compute_target(group, dict(group.members))
            yield from self.write_target(group, steps)

    def write_target(self, group: G, steps: Steps[Mapping[str, T]]) -> Slices[None]:
        """Compute the target of a group at its present epoch, and write it.

        The assignment epoch is not written where a member of the target has left since: the target
        is incomplete then. Nothing is written of a group that was removed. The assignment has the
        time of its begin: the assignment interval does not grow by the time that the slices take.
        """
        group_id, epoch, begin_ms = group.group_id, group.epoch, self.clock.now_ms()
        target = yield from slices.without_records(steps)
        is_complete = True
        names = iter(target)
        while part := list(islice(names, slices.SLICE)):
            if self.find(group_id) is not group:
                return
            output = []
            for name in part:
                is_complete &= name in group.members
                if name in group.members and group.target.get(name) != target[name]:
                    output.append(self.target_member(group_id, name, target[name]))
            yield output
        if self.find(group_id) is not group:
            return  # a record of it would bring the group back
        if is_complete or group.epoch > epoch:
            yield [self.target_epoch(group_id, epoch, begin_ms)]

    # ---------------------------------------------------------------- members' timers

    def expect(
        self,
        what: MemberTimer,
        group_id: str,
        member_id: str,
        delay_ms: int,
        otherwise: Callable[[], Result[None]],
    ) -> None:
        """Run an operation after a delay, unless the timer is cancelled: the member has acted."""
        self.timers.schedule(
            self._key(what, group_id, member_id), delay_ms, otherwise, retry_ms=_RETRY_MS
        )

    def expects(self, what: MemberTimer, group_id: str, member_id: str) -> bool:
        """Whether this timer of the member is running."""
        return self._key(what, group_id, member_id) in self.timers

    def cancel(self, what: MemberTimer, group_id: str, member_id: str) -> None:
        """End a timer of a member."""
        self.timers.cancel(self._key(what, group_id, member_id))

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """Cancel the timers of a member that is removed or changes its protocol.

        Session and revocation go on, and find no member: its tombstones may be refused.
        """
        for what in (MemberTimer.JOIN, MemberTimer.SYNC):
            self.cancel(what, group_id, member_id)

    def _key(
        self, what: MemberTimer, group_id: str, member_id: str
    ) -> tuple[str, str, MemberTimer, str]:
        return self.name, group_id, what, member_id

    def start_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """Remove the member unless another heartbeat comes within its session."""
        if timeout_ms is None:
            timeout_ms = self.settings(group_id).session_timeout_ms
        key = self._key(MemberTimer.SESSION, group_id, member_id)
        if not self.timers.postpone(key, timeout_ms):
            reason = "the member session expired."
            self.fence_after(MemberTimer.SESSION, group_id, member_id, timeout_ms, reason)

    def restart(self, group: G) -> Iterator[None]:
        """Start the timers of all members, after the log was loaded, in steps."""
        for member_id in list(group.members):
            member = group.members.get(member_id)
            if member is not None:  # it may have left between two steps
                self.follow(group.group_id, member)
            yield

    def stalls(self, group: G, *, is_writing: bool) -> Iterator[str]:
        """Yield the members that nothing removes when they are silent, or give nothing up."""
        group_id = group.group_id
        for member_id, member in group.members.items():
            if not self.expects(MemberTimer.SESSION, group_id, member_id):
                yield f"member {member_id} of {group_id} has no session"
            if self.is_classic(member):
                continue  # its next heartbeat gives it a deadline to rejoin
            is_revoking = self.revoking_state is not None and member.state is self.revoking_state
            if is_revoking and not self.expects(MemberTimer.REBALANCE, group_id, member_id):
                yield f"member {member_id} of {group_id} revokes without a deadline"
            for what in (MemberTimer.JOIN, MemberTimer.SYNC):
                if not is_writing and self.expects(what, group_id, member_id):
                    yield f"member {member_id} of {group_id} can no longer {what.value}"

    def is_classic(self, _member: M) -> bool:
        """Whether a member speaks the classic protocol."""
        return False

    def follow(self, group_id: str, member: Any, *, has_moved: bool = True) -> None:
        """Restart the session; start the revocation's time where the member moved.

        It is not ended where the member has revoked: its records may be refused, and the member
        revokes as before. Kafka cancels it, and the member may keep its partitions.
        """
        self.start_session(group_id, member.member_id)
        if has_moved and self.revoking_state is not None and member.state is self.revoking_state:
            self._await_revocation(group_id, member)

    def _await_revocation(self, group_id: str, member: Any) -> None:
        """Remove a member that does not complete its revocation within its rebalance timeout."""
        member_id, epoch = member.member_id, member.member_epoch

        def expire() -> Result[None]:
            group = self.find(group_id)
            known: Any = None if group is None else group.members.get(member_id)
            if known is None or known.state is not member.state:
                return empty_result()
            if known.member_epoch != epoch:  # the records of the step to this epoch were refused
                self._await_revocation(group_id, known)
                return empty_result()
            reason = "the member failed to transition from epoch within its rebalance timeout."
            return self._fence(group_id, member_id, reason)

        self.expect(MemberTimer.REBALANCE, group_id, member_id, member.rebalance_timeout_ms, expire)

    def fence_after(
        self, what: MemberTimer, group_id: str, member_id: str, timeout_ms: int, reason: str
    ) -> None:
        """Remove the member for a reason, unless it acts in time."""
        self.expect(
            what,
            group_id,
            member_id,
            timeout_ms,
            lambda: self._fence(group_id, member_id, reason),
        )

    def _fence(self, group_id: str, member_id: str, reason: str) -> Result[None]:
        group = self.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return empty_result()
        log.info(
            "member %s of %s group %s is fenced: %s",
            member_id,
            self.name.lower(),
            group_id,
            reason,
            extra={"event": "member.fenced"},
        )
        return self.remove(group, member)

    @abstractmethod
    def remove(self, group: G, member: M) -> Result[None]:
        """Remove a member whose time is over."""


def with_epochs(
    partitions: Sequence[int], epochs: Sequence[int] | None, member_epoch: int
) -> dict[int, int]:
    """Return partitions with their assignment epochs, rising.

    Records of earlier releases have no epochs: those of the member count.
    """
    if epochs is None or len(epochs) != len(partitions):
        epochs = [member_epoch] * len(partitions)
    return dict(sorted(zip(partitions, epochs, strict=True)))
