"""A kind of groups costs one class: here one of members that only say that they are there."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.group_kind import GroupEnvironment, GroupKind, RecordType
from ottla.coordinator.group.groups import KINDS
from ottla.coordinator.group.member_group import Description, MemberGroup
from ottla.coordinator.runtime import Result
from ottla.errors import ErrorCode
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.protocol.schema import Struct, int32, int64
from ottla.timeline import LATEST_EPOCH
from tests.coordinator.harness import World, context

if TYPE_CHECKING:
    from ottla.coordinator.group import GroupCoordinator


class EpochKey(Struct, versions="0", flexible="none"):
    group_id: str


class EpochValue(Struct, versions="0", flexible="0+"):
    epoch: int32
    metadata_hash: int64


class MemberKey(Struct, versions="0", flexible="none"):
    group_id: str
    member_id: str


class MemberValue(Struct, versions="0", flexible="0+"):
    client_id: str


class TargetEpochKey(Struct, versions="0", flexible="none"):
    group_id: str


class TargetEpochValue(Struct, versions="0", flexible="0+"):
    assignment_epoch: int32
    assignment_timestamp: int64


class TargetKey(Struct, versions="0", flexible="none"):
    group_id: str
    member_id: str


class AssignmentKey(Struct, versions="0", flexible="none"):
    group_id: str
    member_id: str


class EmptyValue(Struct, versions="0", flexible="0+"):
    pass


class PresenceState(StrEnum):
    EMPTY = "Empty"
    PRESENT = "Present"


@dataclass(frozen=True, slots=True)
class PresentMember:
    member_id: str
    client_id: str = ""


class PresenceGroup(MemberGroup[PresentMember, None]):
    group_type = "Presence"
    protocol_type = "presence"
    has_offsets = False

    def state_at(self, epoch: int = LATEST_EPOCH) -> PresenceState:
        return PresenceState.PRESENT if self.members.at(epoch) else PresenceState.EMPTY

    def is_subscribed_to(self, _topic: str) -> bool:
        return False

    def reads_any(self, _names: frozenset[str]) -> bool:
        return False

    def put(self, member: PresentMember) -> None:
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        self.members.pop(member_id, None)


class PresenceGroups(GroupKind[PresenceGroup, PresentMember, None, Any]):
    name = PresenceGroup.group_type
    group_class = PresenceGroup
    member_class = PresentMember
    states = PresenceState
    epoch_record = RecordType(100, EpochKey, EpochValue)
    member_record = RecordType(101, MemberKey, MemberValue)
    target_epoch_record = RecordType(102, TargetEpochKey, TargetEpochValue)
    target_record = RecordType(103, TargetKey, EmptyValue)
    assignment_record = RecordType(104, AssignmentKey, EmptyValue)
    assignment_fields = ()

    def __init__(self, environment: GroupEnvironment) -> None:
        super().__init__(environment)
        self.settings = lambda _group_id: SimpleNamespace(session_timeout_ms=5_000)

    def heartbeat(self, group_id: str, member_id: str, client_id: str) -> Result[int]:
        """Say that a member is there; return the size of the group."""
        group = self.find(group_id) or self.new(group_id)
        member = PresentMember(member_id, client_id)
        self.follow(group_id, member)
        if group.members.get(member_id) == member:
            return Result(len(group.members))
        return Result(
            len({*group.members, member_id}),
            [
                self.member_metadata(group_id, member),
                self.group_epoch(group_id, group.epoch + 1, 0),
            ],
        )

    def describe(self, group: PresenceGroup, epoch: int) -> Description[Any]:
        answer = SimpleNamespace(state=group.state_at(epoch), members=[])
        return Description(answer, list(group.members.at(epoch)))

    def remove(self, group: PresenceGroup, member: PresentMember) -> Result[None]:
        return Result(None, self.member_tombstones(group.group_id, member.member_id))

    def member_value(self, member: PresentMember) -> MemberValue:
        return MemberValue(client_id=member.client_id)

    def read_member(self, value: MemberValue) -> dict[str, Any]:
        return {"client_id": value.client_id}

    def target_value(self, _target: None) -> EmptyValue:
        return EmptyValue()

    def read_target(self, _value: EmptyValue) -> None:
        return None

    def assignment_value(self, _member: PresentMember) -> EmptyValue:
        return EmptyValue()

    def read_assignment(self, _value: EmptyValue) -> dict[str, Any]:
        return {}


class PresenceWorld(World):
    def make(self) -> GroupCoordinator:
        return self.make_with(kinds=(*KINDS, PresenceGroups))

    def beat(self, group_id: str, member_id: str) -> Any:
        return self.coordinator.runtime.write(
            self.coordinator.partition_for(group_id),
            lambda shard: shard.groups.of_kind(PresenceGroups).heartbeat(group_id, member_id, "c"),
        )

    def listed(self) -> list[tuple[str, str, str]]:
        answer = self.coordinator.list_groups(ListGroupsRequest(), context(5)).value
        return [(group.group_id, group.group_type, group.group_state) for group in answer.groups]

    def deletion_error(self, group_id: str) -> int:
        request = DeleteGroupsRequest(groups_names=[group_id])
        code: int = self.coordinator.delete_groups(request, context(2)).value.results[0].error_code
        return code


def test_another_kind_is_one_class() -> None:
    """A registered kind is found, listed, described, refused to others, recovered and deleted."""
    world = PresenceWorld()
    world.elect()
    assert world.beat("p", "a").value == 1
    assert world.beat("p", "b").value == 2
    assert world.beat("p", "b").value == 2
    assert world.listed() == [("p", "presence", "Present")]
    described = world.coordinator._descriptions.describe_kind(["p"], PresenceGroups).value[0]
    assert (described.state, described.members) == (PresenceState.PRESENT, ["a", "b"])

    commit = OffsetCommitRequest(
        group_id="p", generation_id_or_member_epoch=-1, member_id="", topics=[]
    )
    refused = world.coordinator.offset_commit(commit, context(9))
    assert refused.done
    assert not world.shard().offsets.by_group
    join = JoinGroupRequest(
        group_id="p", session_timeout_ms=6000, member_id="", protocol_type="", protocols=[]
    )
    answer = world.coordinator.join_group(join, context(5)).value
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat = HeartbeatRequest(group_id="p", generation_id=1, member_id="a")
    assert world.coordinator.heartbeat(beat, context(4)).value.error_code == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert world.deletion_error("p") == ErrorCode.NON_EMPTY_GROUP

    world.resign()
    world.elect()
    group = world.shard().groups.get("p")
    assert isinstance(group, PresenceGroup)
    assert dict(group.members) == {name: PresentMember(name, "c") for name in "ab"}
    world.advance(6_000)
    assert world.listed() == [("p", "presence", "Empty")]
    assert world.deletion_error("p") == ErrorCode.NONE
    assert world.listed() == []


def test_a_failed_append_takes_a_group_back_out_of_the_table() -> None:
    """The table is a timeline: what was replayed and not written is undone."""
    world = PresenceWorld()
    world.elect()
    world.log.next_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.beat("p", "a").error is not None
    assert world.shard().groups.find("p") is None


def test_a_heartbeat_that_decides_nothing_looks_its_group_up_once() -> None:
    """A classic heartbeat asks no kind in turn."""
    world = World().elect()
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    answer = world.coordinator.join_group(join, context(1))
    world.advance(5_000)
    member_id, generation_id = answer.value.member_id, answer.value.generation_id
    sync = SyncGroupRequest(
        group_id="g", generation_id=generation_id, member_id=member_id, assignments=[]
    )
    world.coordinator.sync_group(sync, context(1))
    request = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id)
    world.coordinator.heartbeat(request, context(3))
    calls: list[str] = []

    def profile(frame: Any, event: str, _argument: object) -> None:
        if event == "call" and "/ottla/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(profile)
    try:
        response = world.coordinator.heartbeat(request, context(3))
    finally:
        sys.setprofile(None)
    assert response.value.error_code == ErrorCode.NONE
    assert calls.count("Groups.find") == 1
    assert not [name for name in calls if name.endswith(".find") and name != "Groups.find"]
    assert calls.count("TimelineDict.get") == 1
    assert len(calls) <= 42
