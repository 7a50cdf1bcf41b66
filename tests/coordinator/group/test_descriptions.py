"""Groups of many members, and many groups, are described in several turns of the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group import group_admin
from ottla.coordinator.group.consumer.kind import ConsumerGroups
from ottla.coordinator.group.share.kind import ShareGroups
from ottla.coordinator.group.streams.kind import StreamsGroups
from ottla.errors import ErrorCode
from ottla.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.purgatory.work import MAX_STEPS
from tests.coordinator.harness import context
from tests.coordinator.test_large_groups import NEVER_MS, Members

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.group import ClassicGroup
    from ottla.purgatory.pending import Pending
    from tests.coordinator.harness import World

COUNT = 350
NAMES = [f"m{number:03}" for number in range(COUNT)]


def describe(world: World, kind: str, *names: str) -> Pending[Any]:
    """Begin to describe groups."""
    groups, ids = world.coordinator, list(names)
    if kind == "consumer":
        request = ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=False)
        return groups.consumer_group_describe(request, context(1))
    if kind == "share":
        share = ShareGroupDescribeRequest(group_ids=ids, include_authorized_operations=False)
        return groups.share.describe(share, context(1))
    if kind == "streams":
        streams = StreamsGroupDescribeRequest(group_ids=ids, include_authorized_operations=False)
        return groups.streams.describe(streams)
    return groups.describe_groups(DescribeGroupsRequest(groups=ids), context(5))


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list with an entry for each member that was described."""
    found: list[None] = []

    def counting(original: Any) -> Any:
        def count(*args: Any, **fields: Any) -> Any:
            found.append(None)
            return original(*args, **fields)

        return count

    for kind in (ConsumerGroups, ShareGroups, StreamsGroups):
        monkeypatch.setattr(kind, "describe_member", counting(kind.describe_member))
    monkeypatch.setattr(group_admin, "DescribedMember", counting(group_admin.DescribedMember))
    return found


def by_turn(world: World, answer: Pending[Any], described: list[None]) -> list[int]:
    """Return how many members were described before and in each turn that the answer needs."""
    counts = [len(described)]
    while not answer.done:
        before = len(described)
        world.advance(1)
        counts.append(len(described) - before)
    return counts


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_many_members_are_described_in_slices(kind: str, described: list[None]) -> None:
    """As they were when the request came, though one leaves; the last turn is for encoding."""
    members = Members(kind)
    members.beat(NAMES[0])
    members.assign_every(NEVER_MS)
    for name in NAMES[1:]:
        members.beat(name)
    answer = describe(members.world, kind, "absent", "g")
    members.beat(NAMES[200], "epoch=-1")
    counts = by_turn(members.world, answer, described)
    assert max(counts) <= MAX_STEPS
    assert (sum(counts), counts[-1]) == (COUNT, 0)
    absent, group = answer.value.groups
    assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert [one.member_id for one in group.members] == NAMES
    later = describe(members.world, kind, "g")
    members.world.advance(10)
    assert len(later.value.groups[0].members) == COUNT - 1


def test_few_members_are_described_at_once(described: list[None]) -> None:
    """A small group is answered in the turn of its request."""
    members = Members("consumer")
    members.beat(NAMES[0])
    assert describe(members.world, "consumer", "g").done
    assert len(described) == 1


@pytest.mark.parametrize("kind", ["consumer", "share", "streams", "classic"])
def test_many_groups_are_described_in_slices(kind: str) -> None:
    """In the order of the request, whether they are there or not."""
    members = Members("consumer" if kind == "classic" else kind)
    members.beat(NAMES[0])
    names = ["g", *(f"absent-{number}" for number in range(COUNT))]
    answer = describe(members.world, kind, *names)
    assert not answer.done
    members.world.advance(10)
    assert [one.group_id for one in answer.value.groups] == names


def test_a_classic_group_is_described_in_slices(described: list[None]) -> None:
    """Its members change in place: they are described as they were when the request came."""
    world = Members("consumer").world
    group = classic_group(world)
    answer = describe(world, "classic", "c")
    for member in group.members.values():
        member.assignment = b"later"
    counts = by_turn(world, answer, described)
    assert max(counts) <= MAX_STEPS
    assert (sum(counts), counts[-1]) == (COUNT, 0)
    (found,) = answer.value.groups
    assert [one.member_id for one in found.members] == list(group.members)
    assert {(one.member_metadata, one.member_assignment) for one in found.members} == {
        (b"metadata", b"now")
    }


def classic_group(world: World) -> ClassicGroup:
    """Return a stable classic group of that many members."""
    join = JoinGroupRequest(
        group_id="c",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"metadata")],
    )
    for name in NAMES:
        world.coordinator.join_group(join, context(3, name))
    world.advance(join.rebalance_timeout_ms)  # members that join prolong the first phase until then
    group = world.shard().groups.classic.get("c")
    assert group.leader_id is not None
    assignment = SyncGroupRequest.SyncGroupRequestAssignment
    sync = SyncGroupRequest(
        group_id="c",
        generation_id=group.generation_id,
        member_id=group.leader_id,
        assignments=[assignment(member_id=name, assignment=b"now") for name in group.members],
    )
    assert world.coordinator.sync_group(sync, context(3)).done
    return group
