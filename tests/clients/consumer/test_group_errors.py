"""Members that are expelled, fenced or late: what they do, and what they leave alone."""

from __future__ import annotations

import pytest

from ottla.clients.membership.classic import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.types import TopicPartition
from tests.clients.consumer.test_group import Member, _cluster, _stabilize
from tests.clients.simulated import Log


def test_a_membership_may_end_while_the_listener_runs() -> None:
    """Revoked partitions are removed, the listener is called once, and the member rejoins."""
    cluster, group = _cluster()
    member = Member(cluster)
    _stabilize(member)
    member.group.request_rejoin("test")
    step = member.group.user_poll(member.sim.now_ms)
    assert step is not None
    assert step.kind == "prepare"
    group.expel(member.group.member_id)
    member.sim.run(lambda: not member.group.is_member)  # the heartbeat's answer
    assert not member.group.step_done(step)
    assert not member.owned
    member.steps.clear()
    _stabilize(member)
    assert ("lost", 4) not in member.steps
    assert member.steps[-1] == ("assigned", 4)


def test_an_assignment_of_a_membership_that_ended_is_not_taken() -> None:
    """Between poll and listener the member was expelled: the partitions are not its own."""
    cluster, group = _cluster()
    member = Member(cluster)
    member.poll()
    member.sim.run(lambda: member.group.state is GroupState.ASSIGNED)
    step = member.group.user_poll(member.sim.now_ms)
    assert step is not None
    assert step.kind == "assigned"
    group.expel(member.group.member_id)
    member.sim.run(lambda: not member.group.is_member)
    assert not member.group.step_done(step)
    assert not member.owned


def test_an_answer_to_a_join_that_was_given_up_is_void() -> None:
    """Left while it waited, subscribed again: the old join's answer is not taken for the new's."""
    cluster, group = _cluster()
    member = Member(cluster)
    group.members["slow"] = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="slow", protocol_type="consumer", protocols=[]
    )
    member.poll()
    member.sim.run(lambda: group.joining)
    waiting = group.joining["m1"]
    member.group.stop()
    group.members.clear()
    group.joining.clear()
    waiting.complete(
        JoinGroupResponse(
            error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            protocol_name=None,
            leader="",
            member_id="m1",
            members=[],
        )
    )
    member.poll()
    _stabilize(member)
    joined = [request.member_id for request in cluster.requests(JoinGroupRequest)]
    assert joined == ["", "m1", "", "m2"]
    assert list(group.members) == ["m2"]


def _fenced(_request: object) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)


def test_a_fenced_static_member_stays_out() -> None:
    """It keeps its id, loses its partitions, and every poll raises; it does not rejoin."""
    cluster, group = _cluster()
    member = Member(cluster, group_instance_id="i1")
    _stabilize(member)
    joins = len(cluster.requests(JoinGroupRequest))
    cluster.faults[HeartbeatRequest] = [_fenced]
    member.sim.run(lambda: not member.group.is_member)
    member.steps.clear()
    for _ in range(3):
        with pytest.raises(KafkaError) as caught:
            member.poll()
        assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID
        member.sim.run_for(1_000)
    assert member.steps == [("lost", 4)]
    assert len(cluster.requests(JoinGroupRequest)) == joins
    assert member.group.member_id
    group.members.clear()
    member.group.stop()  # unsubscribed: the user subscribes again
    _stabilize(member)


def test_waiting_for_slow_members_costs_nothing() -> None:
    """No heartbeat is due in JoinGroup, so nothing is to be polled for."""
    cluster, group = _cluster()
    member = Member(cluster)
    _stabilize(member)
    group.members["slow"] = next(iter(group.members.values()))
    member.group.request_rejoin("test")
    member.poll()
    member.sim.run(lambda: member.group.state is GroupState.JOINING)
    member.sim.run_for(200)
    deadline_ms = member.group.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms > member.sim.now_ms + 10_000


def test_waiting_for_metadata_costs_nothing() -> None:
    """A join that waits for the topics is no reason to poll at once again."""
    cluster, _ = _cluster()
    member = Member(cluster)
    member.subscription.unsubscribe()
    member.subscription.subscribe_pattern("t.*", None)
    member.poll()
    member.sim.run_for(100)
    assert member.group.state is GroupState.READY_TO_JOIN
    deadline_ms = member.group.next_deadline_ms()
    assert deadline_ms is None or deadline_ms > member.sim.now_ms


def test_a_static_leader_that_came_back_watches_the_topics() -> None:
    """KAFKA-13435: it divides nothing, but rejoins when a topic grows."""
    cluster, group = _cluster(2)
    member = Member(cluster, group_instance_id="i1")

    def has_two() -> bool:
        member.poll()
        return len(member.owned) == 2

    member.sim.run(has_two)
    group.members.clear()
    group.leader_came_back = True
    member = Member(cluster, group_instance_id="i1")  # has_two looks at this one
    member.sim.run(has_two)
    assert group.generation == 2
    group.leader_came_back = False
    for number in (2, 3):
        key = TopicPartition("t", number)
        cluster.logs[key] = Log()
        cluster.leaders[key] = 1
    member.sim.client.metadata.mark_stale()
    _stabilize(member)
