"""Streams groups: topologies, tasks, reconciling, fencing, offsets, and the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group import RequestContext, StreamsGroupConfig
from ottla.coordinator.group.streams.configuration import Status
from ottla.coordinator.group.streams.group import AssignedTasks, StreamsGroup
from ottla.errors import ErrorCode
from ottla.protocol.apis import streams_group_heartbeat as api
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from ottla.timeline import SnapshotRegistry
from tests.coordinator.harness import Topics, World

if TYPE_CHECKING:
    from ottla.coordinator.group.streams.heartbeat import HeartbeatResult
    from ottla.purgatory.pending import Pending

CONTEXT = RequestContext("client", "/127.0.0.1", 0)
SESSION_MS = 45_000
Request = api.StreamsGroupHeartbeatRequest
Subtopology = Request.Topology.Subtopology


def world(partitions: int = 4, *, has_internal: bool = True, **settings: Any) -> World:
    """Return a coordinator; topic t is the source of the topology."""
    made = World()
    if has_internal:
        made.topics = Topics("t", "u", "r", "c")
    made.topics.counts.update(t=partitions, r=partitions, c=partitions)
    made.streams_config = StreamsGroupConfig(
        **{"assignment_interval_ms": 0, "initial_rebalance_delay_ms": 0, **settings}
    )
    made.coordinator = made.make()
    return made.elect()


def topic(name: str, partitions: int = 0) -> api.TopicInfo:
    return api.TopicInfo(
        name=name,
        partitions=partitions,
        replication_factor=0,
        topic_configs=[api.KeyValue(key="cleanup.policy", value="compact")],
    )


def subtopology(name: str, *sources: str, **fields: Any) -> Subtopology:
    empty: dict[str, Any] = {
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    return Subtopology(subtopology_id=name, source_topics=list(sources), **{**empty, **fields})


def word_count(epoch: int = 0) -> Request.Topology:
    """Return a topology that writes r from t, and counts from r with the changelog c."""
    return Request.Topology(
        epoch=epoch,
        subtopologies=[
            subtopology("0", "t", repartition_sink_topics=["r"]),
            subtopology(
                "1", repartition_source_topics=[topic("r")], state_changelog_topics=[topic("c")]
            ),
        ],
    )


def done(pending: Pending[Any]) -> Any:
    assert pending.done
    return pending.value


def send(made: World, *, connection_id: str = "", **fields: Any) -> HeartbeatResult:
    given = {"group_id": "g", "endpoint_information_epoch": 0, **fields}
    context = replace(CONTEXT, connection_id=connection_id)
    answer: HeartbeatResult = done(made.coordinator.streams.heartbeat(Request(**given), context))
    return answer


def join(made: World, member_id: str, **fields: Any) -> api.StreamsGroupHeartbeatResponse:
    given = {
        "member_id": member_id,
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "topology": word_count(),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": f"process-{member_id}",
        **fields,
    }
    return send(made, **given).response


def beat(
    made: World, member_id: str, epoch: int, active: dict[str, list[int]] | None = None, **more: Any
) -> api.StreamsGroupHeartbeatResponse:
    tasks: dict[str, Any] = {}
    if active is not None:
        tasks = {"active_tasks": ids(active), "standby_tasks": [], "warmup_tasks": []}
    return send(made, member_id=member_id, member_epoch=epoch, **{**tasks, **more}).response


def ids(tasks: dict[str, list[int]]) -> list[api.TaskIds]:
    return [api.TaskIds(subtopology_id=key, partitions=one) for key, one in tasks.items()]


def tasks_of(found: list[api.TaskIds] | None) -> dict[str, list[int]]:
    assert found is not None
    return {one.subtopology_id: one.partitions for one in found}


def statuses(answer: api.StreamsGroupHeartbeatResponse) -> dict[int, str]:
    return {one.status_code: one.status_detail for one in answer.status or ()}


def group_of(made: World) -> StreamsGroup:
    return made.coordinator.runtime.shard(0).streams.get("g")


def test_the_first_member_gets_all_tasks_at_once() -> None:
    """A member that joins alone runs all tasks of both subtopologies."""
    answer = join(world(), "a")
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, 2, 5000)
    assert tasks_of(answer.active_tasks) == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    assert answer.standby_tasks == answer.warmup_tasks == answer.status == []


def test_a_task_is_given_up_before_another_member_gets_it() -> None:
    """The old member revokes, reports what it still owns, and only then is the new one assigned."""
    made = world()
    everything = tasks_of(join(made, "a").active_tasks)
    second = join(made, "b")
    assert (second.member_epoch, tasks_of(second.active_tasks)) == (3, {})
    kept = beat(made, "a", 2, everything)
    left = tasks_of(kept.active_tasks)
    assert kept.member_epoch == 2
    assert sum(map(len, left.values())) == 4
    assert group_of(made).state_at().value == "Reconciling"
    assert beat(made, "b", 3).active_tasks is None
    assert beat(made, "a", 2, left).member_epoch == 3
    taken = tasks_of(beat(made, "b", 3).active_tasks)
    assert {key: sorted(left[key] + taken[key]) for key in left} == everything
    assert group_of(made).state_at().value == "Stable"


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    """After its rebalance timeout a member loses its tasks to the others."""
    made = world()
    everything = tasks_of(join(made, "a").active_tasks)
    join(made, "b")
    beat(made, "a", 2, everything)
    made.advance(10_001)
    assert list(group_of(made).members) == ["b"]
    assert tasks_of(beat(made, "b", 3).active_tasks) == everything


def test_a_silent_member_is_removed_after_its_session() -> None:
    """The session starts again with each heartbeat, and after a new load of the log."""
    made = world()
    join(made, "a")
    made.advance(SESSION_MS - 1)
    beat(made, "a", 2)
    made.resign()
    made.elect()
    made.advance(SESSION_MS - 1)
    assert not group_of(made).is_empty
    made.advance(2)
    assert group_of(made).is_empty


def test_missing_internal_topics_are_named_and_then_used() -> None:
    """Until they exist, the group is not ready; their counts follow the source."""
    made = world(has_internal=False)
    result = send(
        made,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=1,
        topology=word_count(),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    detail = statuses(result.response)[Status.MISSING_INTERNAL_TOPICS]
    assert sorted(detail.removeprefix("Internal topics are missing: ").split(", ")) == ["c", "r"]
    assert {name: one.partitions for name, one in result.missing.items()} == {"c": 4, "r": 4}
    assert result.missing["c"].configs == {"cleanup.policy": "compact"}
    assert group_of(made).state_at().value == "NotReady"
    made.topics.ids.update(r=Topics.id_of("r"), c=Topics.id_of("c"))
    made.coordinator.on_topics_changed(["r", "c"])
    answer = beat(made, "a", result.response.member_epoch)
    assert tasks_of(answer.active_tasks) == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    assert answer.status == []


def copartitioned(*sources: str, **fields: Any) -> Request.Topology:
    indexes = list(range(len(sources)))
    group = Subtopology.CopartitionGroup(
        source_topics=indexes,
        source_topic_regex=[],
        repartition_source_topics=[0] if "repartition_source_topics" in fields else [],
    )
    one = subtopology("0", *sources, copartition_groups=[group], **fields)
    return Request.Topology(epoch=0, subtopologies=[one])


@pytest.mark.parametrize(
    ("topology", "status", "detail"),
    [
        (
            Request.Topology(epoch=0, subtopologies=[subtopology("0", "y", "x")]),
            Status.MISSING_SOURCE_TOPICS,
            "Source topics x, y are missing.",
        ),
        (
            copartitioned("t", "u"),
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            "Following topics do not have the same number of partitions: [{t=4, u=2}]",
        ),
        (
            copartitioned(
                "u", repartition_source_topics=[topic("p", 3)], repartition_sink_topics=["p"]
            ),
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            (
                "Number of partitions [3] of repartition topic [p] doesn't match number of "
                "partitions [2] of the source topic."
            ),
        ),
        (
            Request.Topology(
                epoch=0,
                subtopologies=[subtopology("0", "u", state_changelog_topics=[topic("c")])],
            ),
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            "Existing topic c has different number of partitions: expected 2, found 4",
        ),
    ],
    ids=["missing", "copartitioned", "fixed", "existing"],
)
def test_topics_that_do_not_fit_are_reported(
    topology: Request.Topology, status: Status, detail: str
) -> None:
    """The member stays in the group without tasks, with the reason."""
    made = world()
    answer = join(made, "a", topology=topology)
    assert statuses(answer) == {status: detail}
    assert answer.active_tasks == []


def test_a_repartition_loop_is_an_invalid_topology() -> None:
    """Counts that depend on each other cannot be decided."""
    loop = Request.Topology(
        epoch=0,
        subtopologies=[
            subtopology("0", repartition_source_topics=[topic("p")], repartition_sink_topics=["q"]),
            subtopology("1", repartition_source_topics=[topic("q")], repartition_sink_topics=["p"]),
        ],
    )
    answer = join(world(), "a", topology=loop)
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_standby_tasks_go_to_another_process_and_only_for_state() -> None:
    """Of two members, each has a copy of the other's stateful tasks."""
    made = world(standby_replicas=1)
    everything = tasks_of(join(made, "a").active_tasks)
    join(made, "b")
    kept = tasks_of(beat(made, "a", 2, everything).active_tasks)
    beat(made, "a", 2, kept)
    for name in ("b", "a", "b"):
        beat(made, name, 3)
    copies = {name: one.assigned.standby for name, one in group_of(made).members.items()}
    assert set(copies["a"]) | set(copies["b"]) == {"1"}
    assert sorted(copies["a"]["1"] + copies["b"]["1"]) == [0, 1, 2, 3]
    assert set(copies["a"]["1"]).isdisjoint(kept["1"])


def test_a_new_group_waits_for_more_members() -> None:
    """During the initial delay members have no tasks; then they are divided at once."""
    made = world(initial_rebalance_delay_ms=3000)
    first = join(made, "a")
    assert statuses(first) == {
        Status.ASSIGNMENT_DELAYED: "Assignment delayed due to the configured initial rebalance "
        "delay."
    }
    assert (first.member_epoch, first.active_tasks) == (1, [])
    join(made, "b")
    made.advance(3001)
    counts = [
        sum(map(len, tasks_of(beat(made, name, 1).active_tasks).values())) for name in ("a", "b")
    ]
    assert counts == [4, 4]


def test_the_assignment_interval_delays_the_next_assignment() -> None:
    """A second member waits until the interval since the last assignment is over (KIP-1263)."""
    made = world(assignment_interval_ms=1000)
    join(made, "a")
    second = join(made, "b")
    assert list(statuses(second)) == [Status.ASSIGNMENT_DELAYED]
    made.advance(1000)
    assert list(statuses(beat(made, "b", second.member_epoch))) == []


def test_a_stale_topology_is_reported_and_a_changed_one_refused() -> None:
    """Members of an older epoch go on; another topology at the group's epoch is an error."""
    made = world()
    join(made, "a", topology=word_count(epoch=2))
    stale = join(made, "b", topology=word_count(epoch=1))
    assert statuses(stale)[Status.STALE_TOPOLOGY] == (
        "The member's topology epoch 1 is behind the group's topology epoch 2."
    )
    other = join(made, "c", topology=word_count(epoch=3))
    assert other.error_message == "Topology updates are not supported yet."


def test_a_member_can_end_the_whole_application() -> None:
    """The others hear of it until all have left."""
    made = world()
    join(made, "a")
    join(made, "b")
    beat(made, "a", -1, shutdown_application=True)
    assert statuses(beat(made, "b", 3))[Status.SHUTDOWN_APPLICATION] == (
        "Streams group member a encountered a fatal error and requested a shutdown for the entire "
        "application."
    )
    beat(made, "b", -1)
    assert statuses(join(made, "c")) == {}


def test_endpoints_are_listed_with_the_partitions_behind_them() -> None:
    """A member with another endpoint epoch receives the list."""
    made = world()
    join(made, "a", user_endpoint=api.Endpoint(host="h", port=1))
    answer = beat(made, "a", 2, endpoint_information_epoch=-1)
    assert answer.partitions_by_user_endpoint is not None
    (listed,) = answer.partitions_by_user_endpoint
    assert (listed.user_endpoint.host, listed.user_endpoint.port) == ("h", 1)
    assert {one.topic: one.partitions for one in listed.active_partitions} == {
        "t": [0, 1, 2, 3],
        "r": [0, 1, 2, 3],
    }


def test_the_entries_of_unchanged_members_are_made_once() -> None:
    """And those of members that have changed or left, or whose topics have, follow the change."""
    made = world()
    join(made, "a", user_endpoint=api.Endpoint(host="a", port=1))
    join(made, "b", user_endpoint=api.Endpoint(host="b", port=1))

    def listed(epoch: int) -> dict[str, Any]:
        answer = beat(made, "a", epoch, endpoint_information_epoch=-1)
        return {one.user_endpoint.host: one for one in answer.partitions_by_user_endpoint or ()}

    epoch = made.shard().streams.get("g").member("a").member_epoch
    before = listed(epoch)
    after = listed(epoch)
    assert list(before) == list(after) == ["b", "a"]
    assert before["b"] is after["b"]
    made.shard().streams.get("g").configured = None
    replaced = listed(epoch)
    assert before["b"] is not replaced["b"]
    assert before["b"] == replaced["b"]
    beat(made, "b", -1)
    assert list(listed(epoch)) == ["a"]
    assert list(made.shard().streams.get("g").endpoints) == ["a"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"task_offsets": []}, "TaskOffsets are not supported yet."),
        ({"task_end_offsets": []}, "TaskEndOffsets are not supported yet."),
        ({"warmup_tasks": ids({"0": [1]})}, "WarmupTasks are not supported yet."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        (
            {"active_tasks": ids({"0": [1]})},
            "ActiveTasks must be empty when (re-)joining.",
        ),
        ({"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
        (
            {
                "topology": Request.Topology(
                    epoch=0, subtopologies=[subtopology("0", "t", source_topic_regex=["x.*"])]
                )
            },
            "Regular expressions for source topics are not supported yet.",
        ),
    ],
)
def test_invalid_requests_are_refused(fields: dict[str, Any], text: str) -> None:
    """Kafka's texts."""
    answer = join(world(), "a", **fields)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, text)


def test_wrong_members_and_epochs_are_refused() -> None:
    """Unknown groups and members, fenced epochs, tasks that do not exist, full groups."""
    made = world(max_size=1)
    assert beat(made, "a", 1).error_message == "Streams group g not found."
    join(made, "a")
    assert beat(made, "x", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(made, "a", 3).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(made, "a", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(made, "a", 2, {"0": [9]}).error_message == (
        "Task 9 for subtopology 0 is invalid. Number of tasks for this subtopology: 4"
    )
    assert beat(made, "a", 2, {"7": [0]}).error_message == (
        "Subtopology 7 does not exist in the topology."
    )
    assert join(made, "b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_lost_response_is_answered_again() -> None:
    """The previous epoch is good while the member owns no more than it was assigned."""
    made = world()
    join(made, "a")
    join(made, "b")
    beat(made, "b", 3, {})
    everything = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    left = tasks_of(beat(made, "a", 2, everything).active_tasks)
    assert beat(made, "a", 2, left).member_epoch == 3
    assert beat(made, "a", 2, left).member_epoch == 3
    assert beat(made, "a", 2, everything).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_tasks_of_a_lost_response_are_sent_again_over_another_connection() -> None:
    """Over the connection that the response took they are sent once, as by Kafka."""
    made = world()
    everything = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    join(made, "a", connection_id="1")
    assert beat(made, "a", 2, {}, connection_id="1").active_tasks is None
    assert beat(made, "a", 2, connection_id="2").active_tasks is None
    assert tasks_of(beat(made, "a", 2, {}, connection_id="2").active_tasks) == everything
    assert beat(made, "a", 2, {}, connection_id="2").active_tasks is None
    assert beat(made, "a", 2, everything, connection_id="3").active_tasks is None


def test_tasks_to_give_up_are_named_again_after_a_lost_response() -> None:
    """The member keeps running them until it hears of it."""
    made = world()
    everything = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    join(made, "a", connection_id="1")
    join(made, "b", connection_id="2")
    kept = tasks_of(beat(made, "a", 2, everything, connection_id="1").active_tasks)
    assert kept != everything
    assert beat(made, "a", 2, everything, connection_id="1").active_tasks is None
    assert tasks_of(beat(made, "a", 2, everything, connection_id="3").active_tasks) == kept


def test_another_coordinator_sends_tasks_again_that_were_not_taken() -> None:
    """It does not know over which connection the former one has sent them."""
    made = world()
    everything = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    join(made, "a", connection_id="1")
    made.elect()
    assert tasks_of(beat(made, "a", 2, {}, connection_id="1").active_tasks) == everything


def test_tasks_whose_response_was_an_error_are_sent_again() -> None:
    """The records may be committed after the write has timed out."""
    made = world()
    everything = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    join(made, "a", connection_id="1")
    join(made, "b", connection_id="2")
    made.log.is_holding = True
    request = Request(
        group_id="g",
        member_id="a",
        member_epoch=2,
        endpoint_information_epoch=0,
        active_tasks=ids(everything),
        standby_tasks=[],
        warmup_tasks=[],
    )
    context = replace(CONTEXT, connection_id="1")
    pending = made.coordinator.streams.heartbeat(request, context)
    made.advance(5_001)
    assert pending.value.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    made.log.is_holding = False
    made.log.commit(0)
    answer = beat(made, "a", 2, everything, connection_id="1")
    assert sum(map(len, tasks_of(answer.active_tasks).values())) == 4


def test_a_revocation_whose_end_is_refused_keeps_its_deadline() -> None:
    """The member revokes as before; silent about it, it is removed after its rebalance timeout."""
    made = world()
    everything = tasks_of(join(made, "a").active_tasks)
    join(made, "b")
    left = tasks_of(beat(made, "a", 2, everything).active_tasks)
    made.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert beat(made, "a", 2, left).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    made.advance(5_000)
    assert beat(made, "a", 2).error_code == ErrorCode.NONE
    made.advance(5_001)
    assert list(group_of(made).members) == ["b"]


def commit(made: World, member_id: str, epoch: int, topic_name: str, partition: int) -> int:
    request_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[
            request_topic(
                name=topic_name,
                partitions=[
                    request_topic.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=7, committed_metadata=None
                    )
                ],
            )
        ],
    )
    context = RequestContext("client", "/127.0.0.1", 9)
    answer = done(made.coordinator.offset_commit(request, context))
    code: int = answer.topics[0].partitions[0].error_code
    return code


def test_offsets_are_committed_in_the_epoch_of_the_task() -> None:
    """An older epoch is good for tasks that the member has had since then (KIP-1251)."""
    made = world()
    everything = tasks_of(join(made, "a").active_tasks)
    assert commit(made, "a", 2, "t", 0) == 0
    assert commit(made, "x", 2, "t", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(made, "a", 3, "t", 0) == ErrorCode.STALE_MEMBER_EPOCH
    join(made, "b")
    left = tasks_of(beat(made, "a", 2, everything).active_tasks)
    beat(made, "a", 2, left)
    mine, given = left["0"][0], next(n for n in range(4) if n not in left["0"])
    assert commit(made, "a", 2, "t", mine) == 0
    assert commit(made, "a", 2, "t", given) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(made, "a", 2, "u", 0) == ErrorCode.STALE_MEMBER_EPOCH


def test_groups_are_listed_described_and_deleted() -> None:
    """With their topology, state and kind; a group with members is not deleted."""
    made = world()
    join(made, "a")
    beat(made, "a", 2)
    (listed,) = done(made.coordinator.list_groups(ListGroupsRequest(), CONTEXT)).groups
    assert (listed.group_type, listed.protocol_type, listed.group_state) == (
        "streams",
        "streams",
        "Stable",
    )
    request = StreamsGroupDescribeRequest(
        group_ids=["g", "x", ""], include_authorized_operations=False
    )
    described, unknown, nameless = done(made.coordinator.streams.describe(request)).groups
    assert (described.group_state, described.group_epoch, described.topology.epoch) == (
        "Stable",
        2,
        0,
    )
    changelog = described.topology.subtopologies[1].state_changelog_topics[0]
    assert (changelog.name, changelog.partitions) == ("c", 4)
    assert tasks_of(described.members[0].assignment.active_tasks)["1"] == [0, 1, 2, 3]
    assert unknown.error_message == "Group x not found."
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    delete = DeleteGroupsRequest(groups_names=["g"])
    (refused,) = done(made.coordinator.delete_groups(delete, CONTEXT)).results
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    beat(made, "a", -1)
    (deleted,) = done(made.coordinator.delete_groups(delete, CONTEXT)).results
    assert deleted.error_code == 0
    assert made.coordinator.runtime.shard(0).streams.find("g") is None


def test_a_task_that_a_thread_gave_up_stays_with_the_thread_that_took_it() -> None:
    """Threads of a process are owners of their own: one that has freed a task does so once."""
    made = world(standby_replicas=0)
    everything = tasks_of(join(made, "a", process_id="p").active_tasks)
    join(made, "b", process_id="p")
    kept = tasks_of(beat(made, "a", 2, everything).active_tasks)
    epoch = beat(made, "a", 2, kept).member_epoch
    beat(made, "b", group_of(made).members["b"].member_epoch, {})
    live = dict(group_of(made).active_owners)
    assert set(live.values()) == {("a",), ("b",)}
    members = group_of(made).members
    stale = replace(members["a"], assigned=AssignedTasks(active=_with_epochs(everything)))
    loaded = StreamsGroup("g", SnapshotRegistry())
    loaded.put(stale)
    loaded.put(members["b"])
    loaded.put(members["a"])
    assert members["a"].member_epoch == epoch
    assert dict(loaded.active_owners) == live


def _with_epochs(tasks: dict[str, list[int]]) -> dict[str, dict[int, int]]:
    return {key: dict.fromkeys(partitions, 2) for key, partitions in tasks.items()}


def test_the_log_restores_the_group() -> None:
    """Another coordinator that loads the log knows members, tasks, topology and epochs."""
    made = world()
    everything = tasks_of(
        join(made, "a", client_tags=[api.KeyValue(key="z", value="1")]).active_tasks
    )
    join(made, "b")
    beat(made, "a", 2, everything)
    before = group_of(made)
    made.coordinator = made.make()
    made.elect()
    after = group_of(made)
    assert after is not before
    assert dict(after.members) == dict(before.members)
    assert dict(after.target) == dict(before.target)
    assert dict(after.active_owners) == dict(before.active_owners)
    assert after.topology == before.topology
    assert (after.epoch, after.metadata_hash, after.validated_epoch, after.assignment_epoch) == (
        before.epoch,
        before.metadata_hash,
        before.validated_epoch,
        before.assignment_epoch,
    )
    assert after.state_at() == before.state_at()


def test_other_kinds_of_members_are_refused() -> None:
    """A consumer cannot join a streams group, nor the other way round."""
    made = world()
    join(made, "a")
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    context = RequestContext("client", "/127.0.0.1", 1)
    answer = done(made.coordinator.consumer_group_heartbeat(request, context))
    assert answer.error_message == "Group g is not a consumer group."
    request.group_id = "h"
    done(made.coordinator.consumer_group_heartbeat(request, context))
    assert join(made, "a", group_id="h").error_message == "Group h is not a streams group."
