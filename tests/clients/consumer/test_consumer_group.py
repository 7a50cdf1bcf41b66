"""Members of consumer groups (KIP-848) against the coordinator that ships."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla import SubscriptionPattern
from ottla.clients.consumer.consumer_group import ConsumerMembership, MembershipState
from ottla.clients.consumer.core import ConsumerCore, RebalanceListener
from ottla.clients.offsets import OffsetAndMetadata
from ottla.coordinator.group.consumer.patterns import MIN_INTERVAL_MS
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.types import TopicPartition
from tests.clients.simulated import LOSE_ANSWER, LOSE_REQUEST, FakeCluster, run_together
from tests.clients.simulated_consumer import SimulatedConsumer
from tests.clients.simulated_consumer_group import SESSION_MS, SimulatedGroups

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = 4
T0 = TopicPartition("t", 0)


class Listener(RebalanceListener):
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("revoked", len(partitions)))

    def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("assigned", len(partitions)))

    def on_partitions_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append(("lost", len(partitions)))


def groups(partitions: int = PARTITIONS) -> SimulatedGroups:
    cluster = FakeCluster()
    cluster.create("t", partitions)
    return SimulatedGroups(cluster)


def member(at: SimulatedGroups, *topics: str, **settings: Any) -> SimulatedConsumer:
    pattern = settings.pop("pattern", None)
    made = SimulatedConsumer(
        at.cluster, group_protocol="consumer", heartbeat_interval_ms=None, **settings
    )
    if at.sims:
        made.sim.now_ms = made.core.client.now_ms = at.sims[0].now_ms
    at.sims.append(made.sim)
    names = None if pattern is not None else list(topics or ("t",))
    made.core.subscribe(names, pattern, Listener())
    return made


def group_of(one: SimulatedConsumer) -> ConsumerMembership:
    assert isinstance(one.core.group, ConsumerMembership)
    return one.core.group


def calls(one: SimulatedConsumer) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = one.core.subscription.listener.calls
    return found


def owned(one: SimulatedConsumer) -> set[TopicPartition]:
    return set(one.core.subscription.partitions)


def together(condition: Callable[[], bool], *members: SimulatedConsumer) -> None:
    """Let all poll until the condition holds."""

    def settled() -> bool:
        for one in members:
            one.poll()
        return condition()

    run_together([one.sim for one in members], settled, limit_ms=20_000)


def shared(*members: SimulatedConsumer, partitions: int = PARTITIONS) -> Callable[[], bool]:
    """Whether the members own all partitions, each one an equal part."""

    def is_shared() -> bool:
        parts = [owned(one) for one in members]
        each = {len(part) for part in parts}
        return len(set().union(*parts)) == partitions and each == {partitions // len(members)}

    return is_shared


def heartbeats(at: SimulatedGroups) -> list[ConsumerGroupHeartbeatRequest]:
    return at.cluster.requests(ConsumerGroupHeartbeatRequest)


def test_two_members_share_and_one_leaves() -> None:
    """Partitions move one by one: the others are never taken away."""
    at = groups()
    first = member(at)
    together(shared(first), first)
    second = member(at)
    together(shared(first, second), first, second)
    assert calls(first) == [("assigned", 4), ("revoked", 2), ("assigned", 0)]
    assert [one for one in calls(second) if one != ("assigned", 0)] == [("assigned", 2)]
    pending = group_of(second).leave("done")
    assert pending is not None
    second.sim.run(lambda: pending.done)
    group_of(second).stop()
    together(shared(first), first)


def test_fields_are_sent_when_they_change() -> None:
    """The first heartbeat is complete, an idle one has epoch and id only."""
    at = groups()
    one = member(at, group_remote_assignor="range", client_rack="r1")
    together(shared(one), one)
    one.sim.run_for(300)
    first, last = heartbeats(at)[0], heartbeats(at)[-1]
    assert (first.member_epoch, first.topic_partitions, first.rack_id) == (0, [], "r1")
    assert (first.subscribed_topic_names, first.server_assignor) == (["t"], "range")
    assert first.rebalance_timeout_ms == 300_000
    assert last.member_epoch > 0
    assert (last.subscribed_topic_names, last.topic_partitions) == (None, None)
    assert last.server_assignor is None
    confirmed = [m.topic_partitions for m in heartbeats(at)[1:] if m.topic_partitions]
    assert [len(one[0].partitions) for one in confirmed] == [PARTITIONS]


def test_the_subscription_changes() -> None:
    """A changed list of topics is sent with the next heartbeat, at once."""
    at = groups()
    at.cluster.create("u", 2)
    at.follow_topics()
    one = member(at)
    together(shared(one), one)
    one.core.subscribe(["u"], None, one.core.subscription.listener)
    together(lambda: {p.topic for p in owned(one)} == {"u"}, one)
    assert ("revoked", PARTITIONS) in calls(one)


def test_a_pattern_of_the_coordinator() -> None:
    """A SubscriptionPattern is resolved by RE2 there; topics that appear later are read too."""
    at = groups()
    at.world.consumer_config = replace(at.world.consumer_config, session_timeout_ms=60_000)
    one = member(at, pattern=SubscriptionPattern("t.*"))
    together(shared(one), one)
    assert heartbeats(at)[0].subscribed_topic_regex == "t.*"
    at.cluster.create("t2", 2)
    at.follow_topics()
    one.sim.now_ms += MIN_INTERVAL_MS
    together(lambda: len(owned(one)) == PARTITIONS + 2, one)


def test_a_wrong_pattern_is_raised_by_poll() -> None:
    """The coordinator's text reaches the user; the member is no longer one."""
    at = groups()
    one = member(at, pattern=SubscriptionPattern("(t"))
    with pytest.raises(KafkaError, match=r"\(t") as raised:
        together(lambda: False, one)
    assert raised.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group_of(one).state is MembershipState.FATAL


@pytest.mark.parametrize("fault", [LOSE_ANSWER, LOSE_REQUEST])
def test_lost_heartbeats_are_repeated_in_full(fault: str) -> None:
    """After an error the coordinator gets all fields again, with what the member owns."""
    at = groups()
    one = member(at)
    together(shared(one), one)
    count = len(heartbeats(at))
    at.cluster.faults[ConsumerGroupHeartbeatRequest].append(fault)
    together(lambda: len(heartbeats(at)) >= count + 3, one)
    again = heartbeats(at)[count + 1]
    assert again.subscribed_topic_names == ["t"]
    assert again.topic_partitions is not None
    assert owned(one)
    assert calls(one) == [("assigned", PARTITIONS)]


def test_a_fenced_member_joins_again() -> None:
    """Its partitions are lost, not revoked; it comes back under the same id."""
    at = groups()
    one = member(at)
    together(shared(one), one)
    name = group_of(one).member_id
    at.expel("g", name)
    together(lambda: ("lost", PARTITIONS) in calls(one) and shared(one)(), one)
    assert group_of(one).member_id == name
    assert calls(one)[-1] == ("assigned", PARTITIONS)


def test_commits_and_fetches_carry_the_epoch() -> None:
    """Offsets are committed and fetched as the member; a former member must not commit."""
    at = groups()
    one = member(at)
    with pytest.raises(KafkaError, match="not a member"):
        one.commit({T0: OffsetAndMetadata(3)}).value  # noqa: B018 - raises
    together(shared(one), one)
    one.sim.run(lambda: bool(at.cluster.requests(OffsetFetchRequest)))
    fetched = at.cluster.requests(OffsetFetchRequest)[0].groups[0]
    assert (fetched.member_id, fetched.member_epoch) == (
        group_of(one).member_id,
        group_of(one).epoch,
    )
    answer = one.commit({T0: OffsetAndMetadata(3)}).value
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    at.expel("g", group_of(one).member_id)
    answer = one.commit({T0: OffsetAndMetadata(4)}).value
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not group_of(one).is_member


def test_a_static_member_keeps_its_partitions_while_it_is_away() -> None:
    """It leaves with epoch -2; a new process with the same name gets the same partitions."""
    at = groups()
    one = member(at, group_instance_id="i1")
    other = member(at, group_instance_id="i2")
    together(shared(one, other), one, other)
    before = owned(one)
    pending = group_of(one).leave("restarts")
    assert pending is not None
    one.sim.run(lambda: pending.done)
    assert heartbeats(at)[-1].member_epoch == -2
    again = member(at, group_instance_id="i1")
    again.sim.now_ms = again.core.client.now_ms = one.sim.now_ms
    together(lambda: owned(again) == before, again, other)


def test_a_second_member_of_a_name_fails() -> None:
    """UNRELEASED_INSTANCE_ID is raised by poll."""
    at = groups()
    one = member(at, group_instance_id="i1")
    together(shared(one), one)
    double = member(at, group_instance_id="i1")
    with pytest.raises(KafkaError) as raised:
        together(lambda: False, double)
    assert raised.value.code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_member_that_does_not_poll_leaves() -> None:
    """After max.poll.interval.ms its partitions are lost; the next poll joins again."""
    at = groups()
    one = member(at, max_poll_interval_ms=500)
    together(shared(one), one)
    one.sim.run_for(600)
    assert heartbeats(at)[-1].member_epoch == -1
    together(lambda: ("lost", PARTITIONS) in calls(one) and shared(one)(), one)


def test_a_member_that_is_cut_off_is_fenced_and_returns() -> None:
    """Without heartbeats for its session the others get its partitions."""
    at = groups()
    one, other = member(at), member(at)
    together(shared(one, other), one, other)
    at.sims.remove(one.sim)
    other.sim.run_for(0)

    def pass_session() -> bool:
        other.poll()
        return shared(other)()

    other.sim.run(pass_session, limit_ms=3 * SESSION_MS)
    one.sim.now_ms = one.core.client.now_ms = other.sim.now_ms
    at.sims.append(one.sim)
    together(shared(one, other), one, other)
    assert ("lost", 2) in calls(one)


def test_a_topic_whose_name_is_unknown_waits_for_metadata() -> None:
    """An assignment names topics by id: the member asks for metadata until it has the name."""
    at = groups()
    one = member(at)
    together(shared(one), one)
    group_of(one)._take_assignment({})
    together(lambda: not owned(one), one)
    assert calls(one)[-2:] == [("revoked", PARTITIONS), ("assigned", 0)]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"group_protocol": "consumer", "heartbeat_interval_ms": 5},
            "heartbeat.interval.ms cannot be set when group.protocol=CONSUMER",
        ),
        (
            {"group_protocol": "classic", "group_remote_assignor": "range"},
            "group.remote.assignor cannot be set when group.protocol=CLASSIC",
        ),
    ],
)
def test_settings_of_the_other_protocol_are_refused(settings: dict[str, Any], text: str) -> None:
    """As Kafka's consumer does, with its text."""
    with pytest.raises(ConfigError, match=text):
        ConsumerCore({"bootstrap.servers": "broker:9001", "group.id": "g"}, settings)


def test_patterns_of_the_coordinator_need_the_protocol() -> None:
    """A classic consumer refuses a SubscriptionPattern."""
    core = ConsumerCore({"bootstrap.servers": "broker:9001", "group.id": "g"}, {})
    with pytest.raises(KafkaError, match="not supported when using the classic protocol"):
        core.subscribe(None, SubscriptionPattern("t"), None)
