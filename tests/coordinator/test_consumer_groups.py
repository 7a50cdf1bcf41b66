"""Consumer groups: joining, reconciling, fencing, static members, offsets, and the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group import ConsumerGroupConfig, RequestContext
from ottla.coordinator.runtime import EndTransaction
from ottla.errors import ErrorCode
from ottla.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from tests.coordinator.harness import Topics, World

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.slices import Steps
    from ottla.purgatory.pending import Pending

CONTEXT = RequestContext("client", "/127.0.0.1", 1)
SESSION_MS = 45_000
T, U = Topics.id_of("t"), Topics.id_of("u")


def world(partitions: int = 6, **settings: Any) -> World:
    made = World()
    made.topics.counts["t"] = partitions
    made.consumer_config = ConsumerGroupConfig(assignment_interval_ms=0, **settings)
    return made.elect()


def done(pending: Pending[Any]) -> Any:
    assert pending.done
    return pending.value


def send(made: World, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id="g", **fields)
    answer = done(made.coordinator.consumer_group_heartbeat(request, CONTEXT))
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def join(made: World, member_id: str, *topics: str, **fields: Any) -> Any:
    return send(
        made,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=list(topics or ("t",)),
        topic_partitions=[],
        **fields,
    )


def beat(made: World, member_id: str, epoch: int, *owned: int, **fields: Any) -> Any:
    owned_topic = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=T, partitions=list(owned))
    topics = [owned_topic] if owned else []
    return send(made, member_id=member_id, member_epoch=epoch, topic_partitions=topics, **fields)


def owned(answer: ConsumerGroupHeartbeatResponse) -> dict[Any, list[int]]:
    assert answer.assignment is not None
    return {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}


def group_of(made: World) -> ConsumerGroup:
    return made.coordinator.runtime.shard(0).consumer.get("g")


def test_the_first_member_gets_all_partitions_at_once() -> None:
    """A member that joins alone is assigned everything in the response to its first heartbeat."""
    answer = join(world(), "a")
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, 2, 5000)
    assert owned(answer) == {T: [0, 1, 2, 3, 4, 5]}


def test_a_partition_is_given_up_before_another_member_gets_it() -> None:
    """The old member revokes, reports what it still owns, and only then is the new one assigned."""
    made = world()
    join(made, "a")
    second = join(made, "b")
    assert second.member_epoch == 3
    assert owned(second) == {}
    asked = beat(made, "a", 2, 0, 1, 2, 3, 4, 5)
    assert (asked.member_epoch, owned(asked)) == (2, {T: [0, 1, 2]})
    assert group_of(made).state_at().value == "Reconciling"
    still = send(made, member_id="b", member_epoch=3)
    assert (still.member_epoch, still.assignment) == (3, None)
    assert beat(made, "a", 2, 0, 1, 2).member_epoch == 3
    assert owned(send(made, member_id="b", member_epoch=3)) == {T: [3, 4, 5]}
    assert group_of(made).state_at().value == "Stable"


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    """After its rebalance timeout a member loses its partitions to the others."""
    made = world()
    join(made, "a")
    join(made, "b")
    beat(made, "a", 2, 0, 1, 2, 3, 4, 5)
    made.advance(10_001)
    assert list(group_of(made).members) == ["b"]
    assert owned(send(made, member_id="b", member_epoch=3)) == {T: [0, 1, 2, 3, 4, 5]}


def test_a_silent_member_is_removed_after_its_session() -> None:
    """The session starts again with each heartbeat, and after a new load of the log."""
    made = world()
    join(made, "a")
    made.advance(SESSION_MS - 1)
    send(made, member_id="a", member_epoch=2)
    made.advance(SESSION_MS - 1)
    assert "a" in group_of(made).members
    made.resign()
    made.elect()
    made.advance(SESSION_MS + 1)
    assert group_of(made).is_empty
    assert send(made, member_id="a", member_epoch=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("epoch", "partitions", "code"),
    [
        (4, (), ErrorCode.FENCED_MEMBER_EPOCH),
        (3, (), ErrorCode.NONE),
        (2, (0,), ErrorCode.NONE),
        (2, (0, 5), ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_member_is_fenced_by_its_epoch(
    epoch: int, partitions: tuple[int, ...], code: ErrorCode
) -> None:
    """The previous epoch is good for a member that owns no more than it was assigned."""
    made = world()
    join(made, "a")
    join(made, "b")
    beat(made, "a", 2, 0, 1, 2, 3, 4, 5)
    beat(made, "a", 2, 0, 1, 2)
    assert beat(made, "a", epoch, *partitions).error_code == code


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"member_id": "", "member_epoch": 1}, 42, "MemberId can't be empty."),
        ({"instance_id": ""}, 42, "InstanceId can't be empty."),
        ({"rack_id": " "}, 42, "RackId can't be empty."),
        ({"member_epoch": -3}, 42, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, 42, "InstanceId can't be null."),
        ({}, 42, "RebalanceTimeoutMs must be provided in first request."),
        (
            {"rebalance_timeout_ms": 1},
            42,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"rebalance_timeout_ms": 1, "topic_partitions": []},
            42,
            (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            ),
        ),
        (
            {"member_epoch": 1, "server_assignor": "sticky"},
            112,
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
        ({"member_epoch": 1}, 69, "Consumer group g not found."),
    ],
)
def test_requests_are_checked(fields: dict[str, Any], code: int, text: str) -> None:
    """Wrong requests get Kafka's codes and texts."""
    answer = send(world(), **{"member_id": "a", "member_epoch": 0, **fields})
    assert (answer.error_code, answer.error_message) == (code, text)


def test_a_group_has_a_largest_size() -> None:
    """A new member of a full group is refused; the members are not."""
    made = world(max_size=1)
    join(made, "a")
    refused = join(made, "b")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    text = "The consumer group has reached its maximum capacity of 1 members."
    assert refused.error_message == text
    assert join(made, "a").error_code == 0


def test_a_static_member_comes_back_to_its_partitions() -> None:
    """It leaves for a time; a new process with its instance id takes over its assignment."""
    made = world()
    join(made, "a", instance_id="i")
    join(made, "b")
    held = join(made, "c", instance_id="i")
    assert held.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    beat(made, "a", 2, 0, 1, 2, 3, 4, 5, instance_id="i")
    beat(made, "a", 2, 0, 1, 2, instance_id="i")
    left = send(made, member_id="a", member_epoch=-2, instance_id="i")
    assert (left.error_code, left.member_epoch) == (0, -2)
    back = join(made, "c", instance_id="i")
    assert (back.error_code, back.member_epoch, owned(back)) == (0, 3, {T: [0, 1, 2]})
    assert sorted(group_of(made).members) == ["b", "c"]
    old = send(made, member_id="a", member_epoch=3, instance_id="i")
    assert old.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_leaving_member_frees_its_partitions() -> None:
    """After a leave the group epoch rises, and the others get the partitions."""
    made = world()
    join(made, "a")
    join(made, "b")
    assert send(made, member_id="a", member_epoch=-1).member_epoch == -1
    assert owned(send(made, member_id="b", member_epoch=3)) == {T: [0, 1, 2, 3, 4, 5]}


def test_new_partitions_reach_the_members() -> None:
    """When a subscribed topic changes, the next heartbeat raises the epoch and assigns again."""
    made = world(2)
    join(made, "a")
    before = group_of(made).metadata_hash
    made.topics.counts["t"] = 4
    assert send(made, member_id="a", member_epoch=2).assignment is None
    made.coordinator.on_topics_changed(["t"])
    assert owned(send(made, member_id="a", member_epoch=2)) == {T: [0, 1, 2, 3]}
    assert group_of(made).metadata_hash != before


def test_the_hash_of_the_metadata_is_kafkas() -> None:
    """The figure comes from Kafka 4.3.0's Utils.computeGroupHash: two partitions, two racks."""
    made = world(2)
    made.topics.racks["t"] = [["r2", "r1"], []]
    hashes = made.coordinator.runtime.shard(0).groups.hashes
    assert hashes.of(["nowhere"]) == 0
    assert hashes.of(["t", "nowhere"]) == 9108794221816377195


def test_assignments_have_an_interval() -> None:
    """Within the interval a new member waits for the next assignment (KIP-1263)."""
    made = world()
    made.consumer_config = ConsumerGroupConfig(assignment_interval_ms=1000)
    join(made, "a")
    made.advance(999)
    waiting = join(made, "b")
    assert owned(waiting) == {}
    assert group_of(made).state_at().value == "Assigning"
    made.advance(1)
    join(made, "b")
    assert group_of(made).assignment_epoch == group_of(made).epoch == 3


def test_a_subscription_that_ends_is_revoked_within_the_interval() -> None:
    """A member loses the topics that it no longer reads before the next assignment."""
    made = world()
    made.consumer_config = ConsumerGroupConfig(assignment_interval_ms=10_000)
    join(made, "a", "t", "u")
    fields: dict[str, Any] = {"subscribed_topic_names": ["u"]}
    answer = send(made, member_id="a", member_epoch=2, **fields)
    assert owned(answer) == {U: [0, 1]}


def commit(made: World, member_id: str, epoch: int, partition: int = 0, version: int = 9) -> int:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        topic.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=7, committed_metadata=None
        )
    ]
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[topic(name="t", partitions=partitions)],
    )
    context = RequestContext("client", "/127.0.0.1", version)
    answer = done(made.coordinator.offset_commit(request, context))
    return int(answer.topics[0].partitions[0].error_code)


def test_offsets_are_committed_with_member_epochs() -> None:
    """An older epoch is good for partitions that the member has owned since then (KIP-1251)."""
    made = world()
    join(made, "a")
    join(made, "b")
    beat(made, "a", 2, 0, 1, 2, 3, 4, 5)
    beat(made, "a", 2, 0, 1, 2)
    send(made, member_id="b", member_epoch=3)
    assert commit(made, "a", 3) == ErrorCode.NONE
    assert commit(made, "a", 2, 2) == ErrorCode.NONE
    assert commit(made, "a", 2, 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(made, "a", 4) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(made, "b", 2, 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(made, "x", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(made, "a", 3, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(made, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [("a", 2, 0), (None, -1, 0), ("a", 3, 113), ("x", 2, 25)],
)
def test_offsets_are_fetched_with_member_epochs(
    member_id: str | None, epoch: int, code: int
) -> None:
    """A member at another epoch is refused; a request without a member is not."""
    made = world()
    join(made, "a")
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g", member_id=member_id, member_epoch=epoch, topics=None
    )
    context = RequestContext("client", "/127.0.0.1", 9)
    request = OffsetFetchRequest(groups=[group], require_stable=False)
    assert done(made.coordinator.offset_fetch(request, context)).groups[0].error_code == code


def listed(made: World) -> list[tuple[str, str, str]]:
    request = ListGroupsRequest(states_filter=[], types_filter=["Consumer"])
    answer = done(made.coordinator.list_groups(request, CONTEXT))
    return [(one.group_id, one.group_state, one.group_type) for one in answer.groups]


def test_a_group_is_listed_described_and_deleted() -> None:
    """The administration's requests see consumer groups; only an empty one may be deleted."""
    made = world()
    join(made, "a", rack_id="r")
    assert listed(made) == [("g", "Stable", "consumer")]
    request = ConsumerGroupDescribeRequest(
        group_ids=["g", "none"], include_authorized_operations=False
    )
    group, missing = done(made.coordinator.consumer_group_describe(request, CONTEXT)).groups
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 2, "uniform")
    member = group.members[0]
    assert (member.member_id, member.rack_id, member.member_epoch) == ("a", "r", 2)
    assert member.assignment == member.target_assignment
    assert member.assignment.topic_partitions[0].partitions == [0, 1, 2, 3, 4, 5]
    assert (missing.error_code, missing.error_message) == (69, "Group none not found.")
    delete = DeleteGroupsRequest(groups_names=["g"])
    refused = done(made.coordinator.delete_groups(delete, CONTEXT)).results[0]
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    send(made, member_id="a", member_epoch=-1)
    assert done(made.coordinator.delete_groups(delete, CONTEXT)).results[0].error_code == 0
    assert listed(made) == []


def classic_join(made: World) -> int:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    context = RequestContext("client", "/127.0.0.1", 9)
    return int(done(made.coordinator.join_group(request, context)).error_code)


def test_an_empty_group_changes_its_protocol() -> None:
    """A group without members becomes the kind of its next member."""
    made = world()
    assert commit(made, "", -1) == ErrorCode.NONE
    join(made, "a")
    send(made, member_id="a", member_epoch=-1)
    assert classic_join(made) == ErrorCode.MEMBER_ID_REQUIRED
    assert listed(made) == []
    assert join(made, "a").error_code == ErrorCode.NONE
    assert [name for name, _, _ in listed(made)] == ["g"]


def test_a_failed_append_leaves_no_trace() -> None:
    """State that was not written is reverted, and the same heartbeat succeeds later."""
    made = world()
    made.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert join(made, "a").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert made.coordinator.runtime.shard(0).consumer.find("g") is None
    assert owned(join(made, "a")) == {T: [0, 1, 2, 3, 4, 5]}


def test_the_log_holds_the_whole_group() -> None:
    """Another coordinator goes on from the log alone, with all epochs and assignments."""
    made = world()
    join(made, "a", instance_id="i", server_assignor="range")
    join(made, "b")
    beat(made, "a", 2, 0, 1, 2, 3, 4, 5, instance_id="i")
    before = group_of(made)
    made.resign()
    made.coordinator = made.make()
    made.elect()
    after = group_of(made)
    for name in ("members", "target", "partition_owners", "static_members", "topic_counts"):
        assert dict(getattr(after, name)) == dict(getattr(before, name)), name
    assert (after.epoch, after.metadata_hash) == (before.epoch, before.metadata_hash)
    assert after.assignment_epoch == before.assignment_epoch
    assert beat(made, "a", 2, 0, 1, 2, instance_id="i").member_epoch == 3


def test_a_member_that_has_come_back_takes_no_partition_from_its_owner() -> None:
    """A load that meets the owner's record before the old owner's newest one finds the owner."""
    made = world()
    join(made, "d")
    stage_offset(made)  # a load replays what precedes a transaction before what follows it
    made.coordinator.end_transaction(
        0, EndTransaction(1, 0, 0, committed=True, transaction_version=0)
    )
    send(made, member_id="d", member_epoch=-1)
    join(made, "c")
    join(made, "d")  # its newest record is after that of the member that owns its partitions now
    made.resign()
    made.coordinator = made.make()
    made.elect()
    assert set(group_of(made).partition_owners.values()) == {("c",)}
    beat(made, "d", group_of(made).members["d"].member_epoch)
    assert not group_of(made).members["d"].assigned


def test_a_target_of_a_removed_group_is_not_written() -> None:
    """Slices that end after their group was deleted do not bring it back."""
    made = world()
    join(made, "a")
    groups, group = made.shard().consumer, group_of(made)

    def compute() -> Steps[dict[str, Any]]:
        yield
        return {}

    slices = groups.write_target(group, compute())
    assert next(slices) == []
    join(made, "b")
    for name in "ab":
        send(made, member_id=name, member_epoch=-1)
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert done(made.coordinator.delete_groups(delete, CONTEXT)).results[0].error_code == 0
    assert list(slices) == []


def stage_offset(made: World) -> None:
    """Commit an offset of another group in a transaction that stays open."""
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = topic.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="other",
        producer_id=1,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic(name="t", partitions=[part])],
    )
    made.coordinator.txn_offset_commit(request, RequestContext("client", "/127.0.0.1", 3))


def join_pattern(made: World, member_id: str, pattern: str) -> Any:
    return send(
        made,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )


def test_a_pattern_is_resolved_and_follows_new_topics() -> None:
    """The matching topics are assigned after they were found; later ones after ten seconds."""
    made = world(2)
    first = join_pattern(made, "a", "t.*")
    assert (first.member_epoch, owned(first)) == (1, {})
    made.advance(1)
    assert owned(send(made, member_id="a", member_epoch=1)) == {T: [0, 1]}
    made.topics.ids["t2"] = Topics.id_of("t2")
    made.coordinator.on_topics_changed(["t2"])
    made.advance(10_001)
    epoch = group_of(made).members["a"].member_epoch
    send(made, member_id="a", member_epoch=epoch)
    made.advance(1)
    found = owned(send(made, member_id="a", member_epoch=epoch))
    assert found == {T: [0, 1], Topics.id_of("t2"): [0, 1]}
    send(made, member_id="a", member_epoch=-1)
    assert not group_of(made).resolved


@pytest.mark.parametrize("pattern", ["a(", "((a{100}){100}){100}"])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    """RE2 refuses syntax errors and expressions that explode."""
    answer = join_pattern(world(), "a", pattern)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    start = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: "
    assert answer.error_message.startswith(start)


def test_members_with_one_pattern_share_its_topics() -> None:
    """A second member with a known pattern is assigned at once."""
    made = world(2)
    join_pattern(made, "a", "t|u")
    made.advance(1)
    join_pattern(made, "a", "t|u")
    second = join_pattern(made, "b", "t|u")
    assert second.member_epoch == group_of(made).epoch
    assert {len(one) for one in group_of(made).target.values()} <= {1, 2}
