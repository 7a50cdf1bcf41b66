"""The identity of commits, and the handling of their responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.consumer.classic_group import ClassicMembership
from ottla.clients.membership.classic import GroupState
from ottla.clients.offsets import OffsetAndMetadata, first_commit_error
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.types import TopicPartition
from tests.clients.simulated import FakeCluster
from tests.clients.simulated_consumer import SimulatedConsumer
from tests.clients.simulated_group import FakeGroup

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending

T0 = TopicPartition("t", 0)
OLD = {T0: OffsetAndMetadata(10)}


def _member(**settings: Any) -> tuple[FakeCluster, FakeGroup, SimulatedConsumer]:
    cluster = FakeCluster()
    cluster.create("t", 2)
    group = FakeGroup(cluster)
    consumer = SimulatedConsumer(cluster, **settings)
    consumer.core.subscribe(["t"], None, None)
    consumer.settle(2)
    return cluster, group, consumer


def _code(pending: Pending[Any]) -> int:
    error = pending.error or first_commit_error(pending.value)
    return error.code if isinstance(error, KafkaError) else 0


def _refusing(code: ErrorCode) -> Any:
    cls = OffsetCommitResponse.OffsetCommitResponseTopic

    def refuse(request: OffsetCommitRequest) -> OffsetCommitResponse:
        part = cls.OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = request.topics[0]
        return OffsetCommitResponse(
            topics=[cls(name=topic.name, topic_id=topic.topic_id, partitions=[part])]
        )

    return refuse


def test_who_was_too_slow_commits_nothing_any_more() -> None:
    """The group may have gone on and be empty: an outsider's commit would be taken."""
    cluster, group, consumer = _member(max_poll_interval_ms=1000, enable_auto_commit=True)
    assert not _code(consumer.commit(OLD))
    assert isinstance(consumer.core.group, ClassicMembership)
    member = consumer.core.group.last_identity
    consumer.sim.run(lambda: group.remaining)
    assert consumer.core.group.last_identity == member  # so a transaction of it is refused
    assert member.generation > 0
    cluster.committed["g", T0] = 100
    before = len(cluster.requests(OffsetCommitRequest))
    assert _code(consumer.commit(OLD)) == ErrorCode.UNKNOWN_MEMBER_ID
    consumer.core.user_poll()  # would commit by itself
    consumer.sim.run_for(500)
    assert len(cluster.requests(OffsetCommitRequest)) == before
    assert cluster.committed["g", T0] == 100


def test_a_commit_while_joining_fails_here() -> None:
    """REBALANCE_IN_PROGRESS, as from Kafka's client; before the join the old generation counts."""
    cluster, group, consumer = _member()
    core = consumer.core
    assert isinstance(core.group, ClassicMembership)
    core.group.request_rejoin("test")
    step = core.user_poll()
    assert step is not None
    assert step.kind == "prepare"
    assert not _code(consumer.commit(OLD)), "the listener's last chance"
    group.members["other"] = next(iter(group.members.values()))  # who will not join
    member = core.group
    member.step_done(step)
    consumer.sim.run(lambda: member.state is GroupState.JOINING)
    assert _code(consumer.commit(OLD)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(cluster.requests(OffsetCommitRequest)) == 1


def test_partitions_by_hand_are_committed_by_an_outsider() -> None:
    """No membership is needed, none is claimed: the static id neither."""
    cluster = FakeCluster()
    cluster.create("t", 1)
    consumer = SimulatedConsumer(cluster, group_instance_id="i1")
    consumer.core.assign([T0])
    coordinator = consumer.core.coordinator
    assert coordinator is not None
    consumer.sim.run(lambda: coordinator.known)
    assert not _code(consumer.commit(OLD))
    request = cluster.requests(OffsetCommitRequest)[0]
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert request.group_instance_id is None


@pytest.mark.parametrize(
    "code",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_a_late_answer_about_an_older_generation_ends_no_membership(code: ErrorCode) -> None:
    """The caller gets REBALANCE_IN_PROGRESS; the current member continues."""
    cluster, _, consumer = _member()
    group = consumer.core.group
    assert isinstance(group, ClassicMembership)
    cluster.faults[OffsetCommitRequest] = [_refusing(code)]
    pending = consumer.core.send_commit(OLD)
    group.generation += 1  # a rebalance ends before the answer comes
    consumer.sim.run(lambda: pending.done)
    assert _code(pending) == ErrorCode.REBALANCE_IN_PROGRESS
    assert group.state is GroupState.STABLE
    assert group.is_member


def test_an_answer_about_this_generation_ends_the_membership() -> None:
    """Only once: a second error finds no membership to end."""
    cluster, _, consumer = _member()
    group = consumer.core.group
    assert isinstance(group, ClassicMembership)
    cluster.faults[OffsetCommitRequest] = [_refusing(ErrorCode.ILLEGAL_GENERATION)] * 2
    first, second = consumer.core.send_commit(OLD), consumer.core.send_commit(OLD)
    consumer.sim.run(lambda: first.done and second.done)
    assert _code(first) == ErrorCode.ILLEGAL_GENERATION
    assert not group.is_member


def test_a_commit_that_no_one_waits_for_learns_that_the_coordinator_moved() -> None:
    """NOT_COORDINATOR is noted for every caller; the coordinator is looked up again."""
    cluster = FakeCluster()
    cluster.create("t", 1)
    consumer = SimulatedConsumer(cluster)
    consumer.core.assign([T0])
    coordinator = consumer.core.coordinator
    assert coordinator is not None
    consumer.sim.run(lambda: coordinator.known)
    cluster.faults[OffsetCommitRequest] = [_refusing(ErrorCode.NOT_COORDINATOR)]
    assert _code(consumer.commit(OLD)) == ErrorCode.NOT_COORDINATOR
    assert not coordinator.known
    consumer.sim.run(lambda: coordinator.known)
    assert len(cluster.requests(FindCoordinatorRequest)) == 2
