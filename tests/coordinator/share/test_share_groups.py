"""Share groups at the group coordinator: members, epochs, initialisation, other kinds of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.group import RequestContext
from ottla.coordinator.group.share.kind import _assign_simple
from ottla.errors import ErrorCode
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.purgatory.pending import Pending
from ottla.purgatory.work import finish
from ottla.types import Uuid
from tests.coordinator.harness import FaultyWorld, Topics, World

if TYPE_CHECKING:
    import pytest

    from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatResponse

CONTEXT = RequestContext("client", "/127.0.0.1", 1)


def beat(
    world: World, member: str = "m", epoch: int = 0, names: list[str] | None = None
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=names
    )
    return world.coordinator.share.heartbeat(request, CONTEXT).value


def assigned(answer: ShareGroupHeartbeatResponse) -> dict[Uuid, list[int]] | None:
    if answer.assignment is None:
        return None
    return {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}


def described(world: World) -> Any:
    request = ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    return world.coordinator.share.describe(request, CONTEXT).value.groups[0]


def asked_later(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Pending[Any]]]:
    """Return what is to be initialised from now on, each with its answer to be completed."""
    asked: list[tuple[Any, Pending[Any]]] = []

    def ask(request: Any) -> Pending[Any]:
        asked.append((request, Pending()))
        return asked[-1][1]

    monkeypatch.setattr(world.persister, "initialize", ask)
    return asked


def test_a_late_answer_does_not_bring_a_deleted_topic_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Share partitions that are no longer being initialised stay as they are."""
    world = World().elect()
    topic_id, initialize = Topics.id_of("t"), world.persister.initialize
    asked = asked_later(world, monkeypatch)
    beat(world, names=["t"])
    del world.topics.ids["t"]
    world.coordinator.on_topics_deleted([("t", topic_id)])
    world.advance(10)
    (request, answer) = asked[0]
    answer.complete(initialize(request).value)
    known = world.shard().share.get("g").state_partitions
    assert known is None or topic_id not in {*known.initialized, *known.initializing}


def test_a_late_answer_completes_nothing_of_a_new_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The share partitions of a group deleted and created again wait for their own answer."""
    world = World().elect()
    topic_id, initialize = Topics.id_of("t"), world.persister.initialize
    asked = asked_later(world, monkeypatch)
    for code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        beat(world, names=["t"])
        beat(world, epoch=-1)
        world.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), CONTEXT)
        assert world.shard().share.find("g") is None
        beat(world, names=["t"])
        old, new = asked[-2:]
        world.persister.code = code
        old[1].complete(initialize(old[0]).value)
        known = world.shard().share.get("g").state_partitions
        assert known is not None
        assert (set(known.initialized), set(known.initializing)) == (set(), {topic_id})
        world.persister.code = ErrorCode.NONE
        new[1].complete(initialize(new[0]).value)
        known = world.shard().share.get("g").state_partitions
        assert known is not None
        assert (set(known.initialized), set(known.initializing)) == ({topic_id}, set())
        beat(world, epoch=-1)
        world.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), CONTEXT)


def test_the_answer_of_a_repeated_initialisation_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first one as well, whichever comes; a late failure after a success changes nothing."""
    world = World().elect()
    topic_id, initialize = Topics.id_of("t"), world.persister.initialize
    asked = asked_later(world, monkeypatch)
    epoch = beat(world, names=["t"]).member_epoch
    world.advance(world.share_config.initialize_retry_interval_ms)
    beat(world, epoch=epoch)
    (first, second) = asked
    second[1].complete(initialize(second[0]).value)
    world.persister.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    first[1].complete(initialize(first[0]).value)
    known = world.shard().share.get("g").state_partitions
    assert known is not None
    assert (set(known.initialized), set(known.initializing)) == ({topic_id}, set())


def test_a_member_gets_its_partitions_once_they_are_initialised() -> None:
    """The first heartbeat has them initialised; a later one assigns them."""
    world = World().elect()
    topic_id = world.topics.topic_id("t")
    count = world.topics.partition_count("t")
    assert topic_id is not None
    assert count is not None
    joined = beat(world, names=["t"])
    assert (joined.error_code, joined.member_epoch, assigned(joined)) == (0, 2, {})
    (request,) = world.persister.requests
    assert [part.start_offset for part in request.topics[0].partitions] == [-1] * count
    world.advance(1001)
    answer = beat(world, epoch=2)
    assert (answer.member_epoch, assigned(answer)) == (3, {topic_id: list(range(count))})
    assert assigned(beat(world, epoch=3)) is None
    world.elect()
    group = described(world)
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 3, "simple")
    assert len(world.persister.requests) == 1


def test_what_could_not_be_initialised_is_tried_again() -> None:
    """A heartbeat requests it again: it is not among those in progress any more."""
    world = World().elect()
    world.persister.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    beat(world, names=["t"])
    beat(world, epoch=2)
    assert len(world.persister.requests) == 2


class CountingTopics(Topics):
    """Counts lookups of topics."""

    lookups = 0

    def topic_id(self, name: str) -> Uuid | None:
        self.lookups += 1
        return super().topic_id(name)

    def partition_count(self, name: str) -> int | None:
        self.lookups += 1
        return super().partition_count(name)


def test_a_heartbeat_without_news_looks_up_no_topic() -> None:
    """A group may read thousands of them; a new partition is still found."""
    world = World()
    topics = world.topics = CountingTopics("t", "u")
    world.coordinator = world.make()
    world.elect()
    beat(world, names=["t", "u"])
    world.advance(1001)
    assert beat(world, epoch=2).member_epoch == 3
    beat(world, epoch=3)
    topics.lookups = 0
    for _ in range(3):
        assert assigned(beat(world, epoch=3)) is None
    assert topics.lookups == 0
    topics.counts["t"] = 3
    world.coordinator.on_topics_changed(["t"])
    world.advance(1001)
    beat(world, epoch=3)
    assert len(world.persister.requests) == 2
    world.advance(1001)
    found = assigned(beat(world, epoch=4))
    assert found is not None
    assert sorted(found.values()) == [[0, 1], [0, 1, 2]]


def test_members_are_fenced_leave_and_expire() -> None:
    """The previous epoch is good: the response with the new one may have been lost."""
    world = World().elect()
    beat(world, names=["t"])
    world.advance(1001)
    beat(world, epoch=2)
    assert beat(world, epoch=2).error_code == ErrorCode.NONE
    assert beat(world, epoch=7).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(world, "x", epoch=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(world, epoch=-2).error_code == ErrorCode.INVALID_REQUEST
    assert beat(world, "n").error_code == ErrorCode.INVALID_REQUEST
    beat(world, "n", names=["t"])
    assert beat(world, "n", epoch=-1).member_epoch == -1
    assert [one.member_id for one in described(world).members] == ["m"]
    world.advance(45_001)
    assert described(world).group_state == "Empty"


def test_a_group_has_one_kind() -> None:
    """GROUP_ID_NOT_FOUND for members of other protocols; ListGroups names the type."""
    world = World().elect()
    beat(world, names=["t"])
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    refused = world.coordinator.consumer_group_heartbeat(request, CONTEXT).value
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    listed = world.coordinator.list_groups(
        ListGroupsRequest(states_filter=[], types_filter=["share"]), CONTEXT
    ).value.groups
    assert [(one.group_id, one.group_type, one.protocol_type) for one in listed] == [
        ("g", "share", "share")
    ]


def assigned_simply(*given: Any) -> dict[str, dict[Uuid, tuple[int, ...]]]:
    return finish(_assign_simple(*given))


def test_the_simple_assignor_shares_partitions_evenly() -> None:
    """More members than partitions share them; members keep what they have."""
    one, two = (Uuid(bytes([*[0] * 15, index])) for index in (1, 2))
    alone = assigned_simply({"a": (one,)}, {one: range(4)}, {})
    assert alone == {"a": {one: (0, 1, 2, 3)}}
    both = assigned_simply({"a": (one,), "b": (one,)}, {one: range(4)}, alone)
    assert both == {"a": {one: (0, 1)}, "b": {one: (2, 3)}}
    many = assigned_simply(dict.fromkeys("abcd", (one,)), {one: [0, 1]}, {})
    assert [len(own[one]) for own in many.values()] == [1, 1, 1, 1]
    mixed = assigned_simply({"a": (one,), "b": (one, two)}, {one: [0], two: [0]}, {})
    assert mixed["b"][two] == (0,)
    assert {"a", "b"} == {name for name, own in mixed.items() if one in own}


def test_a_group_that_is_joined_while_it_is_deleted_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the member has left again: the state that was begun for it would stay behind."""
    world = World().elect()
    topic_id, delete = Topics.id_of("t"), world.persister.delete
    beat(world, names=["t"])
    beat(world, epoch=-1)
    asked: list[tuple[Any, Pending[Any]]] = []

    def ask(request: Any) -> Pending[Any]:
        asked.append((request, Pending()))
        return asked[-1][1]

    monkeypatch.setattr(world.persister, "delete", ask)
    request = DeleteGroupsRequest(groups_names=["g"])
    answer = world.coordinator.delete_groups(request, CONTEXT)
    beat(world, names=["t"])
    beat(world, epoch=-1)
    asked[0][1].complete(delete(asked[0][0]).value)
    world.advance(1)
    assert answer.value.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    known = world.shard().share.get("g").state_partitions
    assert known is not None
    assert set(known.initialized) == {topic_id}
    answer = world.coordinator.delete_groups(request, CONTEXT)
    asked[1][1].complete(delete(asked[1][0]).value)
    world.advance(1)
    assert answer.value.results[0].error_code == ErrorCode.NONE
    assert world.shard().share.find("g") is None


def test_states_of_a_deleted_topic_are_forgotten_once_that_can_be_written() -> None:
    """An append that is refused is logged, and tried again."""
    world = FaultyWorld().elect()
    beat(world, names=["t", "u"])
    topic_id = Topics.id_of("t")
    del world.topics.ids["t"]
    world.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.on_topics_deleted([("t", topic_id)])
    world.advance(10)
    assert len(world.faults) == 1
    known = world.shard().share.get("g").state_partitions
    assert known is not None
    assert topic_id in known.initialized
    world.advance(2_000)
    known = world.shard().share.get("g").state_partitions
    assert known is not None
    assert set(known.initialized) == {Topics.id_of("u")}
