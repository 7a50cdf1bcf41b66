"""A classic group, its members and records: generation, awaited joins and syncs.

This is soft state: the log holds the last complete generation. State transitions:

    Empty → PreparingRebalance → CompletingRebalance → Stable → PreparingRebalance …
    PreparingRebalance → Empty (no member joined); any → Dead (deleted or unloaded)

Kafka: org.apache.kafka.coordinator.group.classic.{ClassicGroup, ClassicGroupState};
org.apache.kafka.coordinator.group.classic.ClassicGroupMember;
GroupCoordinatorRecordHelpers.{newGroupMetadataRecord, newEmptyGroupMetadataRecord}.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group.group_kind import RecordType
from ottla.coordinator.group.responses import join_error, sync_error
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.runtime.java_hash import in_hash_map_order
from ottla.errors import CorruptMessage, ErrorCode, KafkaError, UnsupportedVersion
from ottla.protocol import codec
from ottla.protocol.apis.join_group import JoinGroupResponse
from ottla.protocol.apis.sync_group import SyncGroupResponse
from ottla.protocol.records import group as schemas
from ottla.protocol.records.consumer_protocol import ConsumerProtocolSubscription
from ottla.timeline import LATEST_EPOCH

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from ottla.protocol.records.group import GroupMetadataValue
    from ottla.purgatory.pending import Pending


@dataclass(slots=True, eq=False)
class ClassicMember:
    """protocols holds name and metadata of each, in the member's order of preference."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    awaiting_join: Pending[JoinGroupResponse] | None = None
    awaiting_sync: Pending[SyncGroupResponse] | None = None
    is_new: bool = False

    @property
    def metadata_bytes(self) -> int:
        """The size of its metadata for all protocols."""
        return size_of_protocols(self.protocols)

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether it need not send heartbeats, because a response to it is pending.

        A new member's first join does not count, so that abandoned joins expire.
        """
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for a protocol, which must be one that it supports."""
        metadata = self.metadata_or_none(protocol_name)
        assert metadata is not None, f"member {self.member_id} has no protocol {protocol_name}"
        return metadata

    def metadata_or_none(self, protocol_name: str | None) -> bytes | None:
        """Return its metadata for a protocol; None for one that it does not support."""
        return next((data for name, data in self.protocols if name == protocol_name), None)

    def vote(self, candidates: Container[str]) -> str:
        """Return the first of its protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)


def size_of_protocols(protocols: tuple[tuple[str, bytes], ...]) -> int:
    """Return the bytes of names and metadata."""
    return sum(len(name) + len(data) for name, data in protocols)


CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class ClassicState(StrEnum):
    """States in Kafka's spelling."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES: Final[dict[ClassicState, tuple[ClassicState, ...]]] = {
    ClassicState.EMPTY: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.PREPARING_REBALANCE: (
        ClassicState.STABLE,
        ClassicState.COMPLETING_REBALANCE,
        ClassicState.EMPTY,
    ),
    ClassicState.COMPLETING_REBALANCE: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.STABLE: (ClassicState.COMPLETING_REBALANCE,),
    ClassicState.DEAD: tuple(ClassicState),
}


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A classic group as the log has it: its last complete generation.

    None is that of a simple group, which exists because offsets were committed under its name.
    """

    generation: GroupMetadataValue | None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int, epoch: int) -> None:
        """Let any member fetch offsets."""


SIMPLE: Final = StoredGroup(None)


class ClassicGroup:
    """The state of one group; the other modules of this package decide about its changes."""

    __slots__ = (
        "_supporters",
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "leader_id",
        "member_bytes",
        "members",
        "new_member_added",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    group_type = "Classic"
    has_offsets = True

    def __init__(self, group_id: str, state: ClassicState, timestamp_ms: int | None) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = ClassicState.DEAD
        self.state_timestamp_ms = timestamp_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.member_bytes = 0
        """Of the metadata of all members' protocols."""
        self.static_members: dict[str, str] = {}
        self.pending_join: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        self.awaiting_join_count = 0
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self._supporters: dict[str, int] = {}

    # ---------------------------------------------------------------- queries

    def is_in(self, *states: ClassicState) -> bool:
        """Whether the group is in one of the states."""
        return self.state in states

    @property
    def is_empty(self) -> bool:
        """Whether the group is in state Empty."""
        return self.state is ClassicState.EMPTY

    def state_at(self, _epoch: int = LATEST_EPOCH) -> ClassicState:
        """Return the state, which is soft: there is only the newest."""
        return self.state

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers, with subscriptions in the consumer protocol."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members have joined the next generation."""
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin in this state."""
        return self.state in PREVIOUS_STATES[ClassicState.PREPARING_REBALANCE]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        """Whether the member computes the assignment."""
        return self.leader_id == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to topic; unreadable consumer subscriptions match all."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.is_in(ClassicState.EMPTY):
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(
            self._supporters.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when the instance id is taken."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support."""
        candidates = [n for n, count in self._supporters.items() if count == len(self.members)]
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(in_hash_map_order(votes), key=lambda name: votes[name])

    def join_success(self, member_id: str) -> JoinGroupResponse:
        """Return the response to a join of this generation, without its members."""
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            member_id=member_id,
            members=[],
        )

    def sync_success(self, assignment: bytes) -> SyncGroupResponse:
        """Return the response to a sync of this generation."""
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=assignment,
        )

    def described_members(self) -> list[JoinGroupResponse.JoinGroupResponseMember]:
        """Return the members as the leader needs them to compute an assignment."""
        return [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # ---------------------------------------------------------------- changes

    def add(self, member: ClassicMember, join: Pending[JoinGroupResponse] | None) -> None:
        """Add a member whose protocols the group supports; join is its pending response."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_supporters(member, 1)
        member.awaiting_join = join
        self.awaiting_join_count += join is not None
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending one; no effect for others.

        Its pending responses fail with UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is not None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            self.complete_join(member, join_error(unknown))
            self.complete_sync(member, sync_error(unknown))
            del self.members[member_id]
            self._count_supporters(member, -1)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[tuple[str, bytes], ...],
        timeouts_ms: tuple[int, int],
        join: Pending[JoinGroupResponse] | None,
    ) -> None:
        """Apply a rejoin; timeouts_ms is (rebalance, session)."""
        self._count_supporters(member, -1)
        member.protocols = protocols
        self._count_supporters(member, 1)
        member.rebalance_timeout_ms, member.session_timeout_ms = timeouts_ms
        self.awaiting_join_count += (join is not None) - (member.awaiting_join is not None)
        member.awaiting_join = join

    def replace_static_member(self, instance_id: str, old_id: str, new_id: str) -> ClassicMember:
        """Replace the member id of a static member; requests of the old id are fenced."""
        member = self.members[old_id]
        fenced = join_error(ErrorCode.FENCED_INSTANCE_ID, old_id)
        fenced.protocol_name = None
        self.complete_join(member, fenced)
        self.complete_sync(member, sync_error(ErrorCode.FENCED_INSTANCE_ID))
        del self.members[old_id]
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        if self.is_leader(old_id):
            self.leader_id = new_id
        self.static_members[instance_id] = new_id
        self.pending_sync.pop(old_id, None)
        return member

    def elect_joined_leader(self) -> bool:
        """Elect a leader among the joined members if the leader has not; False if none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = (m.member_id for m in self.members.values() if m.awaiting_join is not None)
        elected = next(joined, None)
        if elected is None:
            return False
        self.leader_id = elected
        return True

    def complete_join(self, member: ClassicMember, response: JoinGroupResponse) -> bool:
        """Complete a member's pending join; False if there is none."""
        waiting = member.awaiting_join
        if waiting is None:
            return False
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        waiting.complete(response)
        return True

    def complete_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Complete a member's pending sync; False if there is none."""
        waiting = member.awaiting_sync
        if waiting is None:
            return False
        member.awaiting_sync = None
        waiting.complete(response)
        return True

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        """Change state; the transition must be in PREVIOUS_STATES."""
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} → {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Close the join phase and start the next generation with the current members."""
        self.generation_id += 1
        if self.generation_id > 0x7FFF_FFFF:  # Java's int wraps to a negative one; start over
            self.generation_id = 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.read_subscriptions()
        self.pending_sync.clear()
        target = ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY
        self.move_to(target, now_ms)

    def read_subscriptions(self) -> None:
        """Compute the subscribed topics, if the members use the consumer protocol."""
        self.subscribed_topics = None
        if self.uses_consumer_protocol:
            if not self.members:
                self.subscribed_topics = frozenset()
            elif self.protocol_name is not None:
                name = self.protocol_name
                self.subscribed_topics = subscribed_topics(
                    member.metadata(name) for member in self.members.values()
                )

    def _count_supporters(self, member: ClassicMember, change: int) -> None:
        self.member_bytes += change * member.metadata_bytes
        for name in dict.fromkeys(name for name, _ in member.protocols):
            count = self._supporters.get(name, 0) + change
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions; None when one of them cannot be read.

    All versions start with the fields of version 0, so each is read as version 0.
    """
    topics: set[str] = set()
    try:
        for data in subscriptions:
            if len(data) < 2 or data[0] & 0x80:
                return None
            topics.update(
                codec.decode(ConsumerProtocolSubscription, 0, memoryview(data)[2:]).topics
            )
    except (CorruptMessage, UnsupportedVersion):
        return None
    return frozenset(topics)


_GROUP_METADATA_VERSION: Final = 3
RECORD_TYPES: Final = (RecordType(2, schemas.GroupMetadataKey, schemas.GroupMetadataValue),)


def group_metadata(group: ClassicGroup, assignments: dict[str, bytes]) -> CoordinatorRecord:
    """Return the record of a classic group with these assignments by member id."""
    name = group.protocol_name
    return _group_metadata(
        group.group_id,
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=_or_unset(group.state_timestamp_ms),
        members=[
            schemas.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )


def empty_group_metadata(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record of a new group, before its first generation."""
    return _group_metadata(
        group.group_id,
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=_or_unset(group.state_timestamp_ms),
        members=[],
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that removes a classic group."""
    return CoordinatorRecord(schemas.GroupMetadataKey(group=group_id))


def _group_metadata(group_id: str, **fields: Any) -> CoordinatorRecord:
    return CoordinatorRecord(
        schemas.GroupMetadataKey(group=group_id),
        schemas.GroupMetadataValue(**fields),
        _GROUP_METADATA_VERSION,
    )


def _or_unset(timestamp_ms: int | None) -> int:
    return -1 if timestamp_ms is None else timestamp_ms
