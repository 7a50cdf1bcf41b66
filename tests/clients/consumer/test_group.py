"""Group membership: eager and cooperative rebalances, heartbeats, being too slow."""

from __future__ import annotations

from ottla.clients.consumer.classic_group import ClassicMembership
from ottla.clients.consumer.subscription import Subscription
from ottla.clients.coordinator import CoordinatorLookup
from ottla.clients.membership.classic import GroupState
from ottla.errors import ErrorCode
from ottla.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.types import TopicPartition
from tests.clients.simulated import FakeCluster, Simulation, consumer_settings, run_together
from tests.clients.simulated_group import FakeGroup


class Member:
    """One member with its own client; `steps` records the calls of its listener."""

    def __init__(
        self, cluster: FakeCluster, topics: tuple[str, ...] = ("t",), **settings: object
    ) -> None:
        read = consumer_settings(**{"group_id": "g", "heartbeat_interval_ms": 100, **settings})
        self.sim = Simulation(cluster, read)
        self.subscription = Subscription(exclude_internal=True)
        coordinator = CoordinatorLookup(self.sim.client, "g")
        self.group = ClassicMembership(
            read, self.sim.client, self.subscription, coordinator, on_assigned=lambda: None
        )
        self.sim.client.machines.append(self.group)
        self.subscription.subscribe(topics, None)
        self.sim.client.metadata.add_topics(topics)
        self.steps: list[tuple[str, int]] = []

    def poll(self) -> None:
        """Do what a user's poll does."""
        while (step := self.group.user_poll(self.sim.now_ms)) is not None:
            self.steps.append((step.kind, len(step.partitions)))
            self.group.step_done(step)

    @property
    def owned(self) -> set[TopicPartition]:
        """What it reads."""
        return set(self.subscription.partitions)


def _cluster(partitions: int = 4) -> tuple[FakeCluster, FakeGroup]:
    cluster = FakeCluster()
    cluster.create("t", partitions)
    return cluster, FakeGroup(cluster)


def _stabilize(*members: Member, until: object = None) -> None:
    """Poll all members until every partition has exactly one owner and all are stable."""

    def settled() -> bool:
        for member in members:
            member.poll()
        owned = [partition for member in members for partition in member.owned]
        stable = all(member.group.state is GroupState.STABLE for member in members)
        same = len({member.group.generation for member in members}) == 1
        idle = not any(member.group._rejoin_needed for member in members)
        return stable and same and idle and len(owned) == 4 == len(set(owned))

    run_together([member.sim for member in members], settled, limit_ms=5_000)


def test_one_member_gets_everything() -> None:
    """Join twice (KIP-394), sync, assigned."""
    cluster, group = _cluster()
    member = Member(cluster)
    _stabilize(member)
    assert len(member.owned) == 4
    assert member.steps[-1] == ("assigned", 4)
    assert [request.member_id for request in cluster.requests(JoinGroupRequest)] == ["", "m1"]
    assert list(group.members) == ["m1"]


def test_eager_members_give_everything_up_first() -> None:
    """A second member: the first revokes four and gets two."""
    cluster, _ = _cluster()
    first = Member(cluster)
    _stabilize(first)
    second = Member(cluster)
    _stabilize(first, second)
    assert len(first.owned) == len(second.owned) == 2
    assert ("prepare", 4) in first.steps
    assert first.steps[-1] == ("assigned", 2)


def test_cooperative_members_give_up_only_what_moves() -> None:
    """KIP-429: the first keeps two throughout and revokes two."""
    cluster, _ = _cluster()
    first = Member(cluster, partition_assignment_strategy="cooperative-sticky")
    _stabilize(first)
    kept: set[TopicPartition] = set(first.owned)
    second = Member(cluster, partition_assignment_strategy="cooperative-sticky")

    def watch() -> bool:
        nonlocal kept
        first.poll()
        second.poll()
        kept &= first.owned
        return len(first.owned) == len(second.owned) == 2

    run_together([first.sim, second.sim], watch, limit_ms=5_000)
    assert len(kept) == 2
    assert ("revoked", 2) in first.steps
    assert all(kind != "prepare" or count == 0 for kind, count in first.steps)


def test_partitions_change_hands_only_inside_poll() -> None:
    """A rebalance waits for the user's poll: partitions are not revoked before it."""
    cluster, _ = _cluster()
    first = Member(cluster)
    _stabilize(first)
    second = Member(cluster)
    for _ in range(20):
        second.poll()
        run_together([first.sim, second.sim], lambda: True)
        first.sim.run_for(50)
        second.sim.run_for(50)
    assert len(first.owned) == 4
    assert not second.owned


def test_a_member_the_group_forgot_hears_that_its_partitions_are_lost() -> None:
    """UNKNOWN_MEMBER_ID: lost, then a new member id."""
    cluster, group = _cluster()
    member = Member(cluster)
    _stabilize(member)
    group.members.clear()
    group.generation += 1

    def again() -> bool:
        member.poll()
        return member.group.member_id == "m2" and len(member.owned) == 4

    member.sim.run(again, limit_ms=5_000)
    assert ("lost", 4) in member.steps


def test_a_user_that_does_not_poll_leaves_the_group() -> None:
    """KIP-62: after max.poll.interval.ms the member leaves, and the next poll reports it."""
    cluster, group = _cluster()
    member = Member(cluster, max_poll_interval_ms=1000)
    _stabilize(member)
    member.sim.run(lambda: group.remaining == ["m1"], limit_ms=2_000)
    reason = cluster.requests(LeaveGroupRequest)[0].members[0].reason
    assert "poll timeout" in reason
    member.poll()
    assert ("lost", 4) in member.steps


def test_static_members_do_not_leave() -> None:
    """KIP-345: a restart is no rebalance."""
    cluster, _ = _cluster()
    member = Member(cluster, group_instance_id="i1")
    assert member.group.leave("bye") is None


def test_heartbeats_go_on_while_the_user_is_busy() -> None:
    """Three intervals, three heartbeats, no poll."""
    cluster, _ = _cluster()
    member = Member(cluster)
    _stabilize(member)
    before = len(cluster.requests(HeartbeatRequest))
    member.sim.run_for(350)
    assert len(cluster.requests(HeartbeatRequest)) - before in (3, 4)


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    """NOT_COORDINATOR to a heartbeat costs nothing but a lookup."""
    cluster, _ = _cluster()
    member = Member(cluster)
    _stabilize(member)
    cluster.faults[HeartbeatRequest] = [
        lambda _: HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    ]
    member.sim.run_for(1_000)
    assert member.group.coordinator.known
    assert len(member.owned) == 4


def test_new_partitions_make_the_leader_rejoin() -> None:
    """A grown topic is noticed at the next metadata refresh."""
    cluster, _ = _cluster(2)
    member = Member(cluster)

    def has_two() -> bool:
        member.poll()
        return len(member.owned) == 2

    member.sim.run(has_two)
    for number in (2, 3):
        key = TopicPartition("t", number)
        cluster.logs[key] = type(cluster.logs[TopicPartition("t", 0)])()
        cluster.leaders[key] = 1
    member.sim.client.metadata.mark_stale()
    _stabilize(member)
    assert len(member.owned) == 4
