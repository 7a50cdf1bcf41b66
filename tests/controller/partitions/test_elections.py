"""Elections: by request, by fencing and by the clock, with and without unclean ones."""

from __future__ import annotations

import pytest

from ottla.controller.partitions import leadership
from ottla.errors import ErrorCode
from tests.controller.brokers import Brokers

PREFERRED, UNCLEAN = 0, 1
BALANCE_MS = 300_000
UNCLEAN_MS = 300_000


def _tick(brokers: Brokers) -> None:
    brokers.node.tick(brokers.clock.ms)
    brokers.run_turn()


def _advance(brokers: Brokers, delay_ms: int) -> None:
    """Let time pass in steps shorter than a session, with heartbeats of the unfenced brokers.

    It ends early when a leader changes.
    """
    _tick(brokers)
    step_ms = brokers.config.broker_session_timeout_ms // 2
    before = _leaders(brokers)
    while delay_ms > 0 and _leaders(brokers) == before:
        brokers.clock.ms += min(step_ms, delay_ms)
        delay_ms -= step_ms
        for broker_id, broker in sorted(brokers.image.cluster.brokers.items()):
            if not broker.fenced:
                brokers.beat(broker_id)
        _tick(brokers)


def _leaders(brokers: Brokers) -> list[int]:
    topics = brokers.image.topics.by_name.values()
    return [partition.leader for topic in topics for partition in topic.partitions.values()]


def test_the_first_replica_in_sync_takes_over_from_a_fenced_leader() -> None:
    """A broker that is fenced leaves every ISR; one that comes back leads only where none does."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2, 3], [2, 1, 3], min_insync_replicas="2")
    brokers.alter(1, "t", 1, 3)
    brokers.beat(1, fence=True)
    assert (brokers.partition("t").leader, brokers.partition("t").isr) == (3, (3,))
    assert brokers.partition("t").eligible_leader_replicas == (1,)
    assert (brokers.partition("t", 1).leader, brokers.partition("t", 1).isr) == (2, (2, 3))
    brokers.join(1)
    assert brokers.partition("t").leader == 3


def test_without_any_replica_in_sync_an_eligible_one_leads() -> None:
    """It was in sync when the ISR was smaller than min.insync.replicas (KIP-966)."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2, 3], min_insync_replicas="2")
    brokers.beat(3, fence=True)
    for broker_id in (2, 1):
        brokers.beat(broker_id, fence=True)
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr) == (-1, ())
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((1, 2), (1,))
    brokers.beat(3)
    assert brokers.partition("t").leader == -1
    brokers.beat(2)
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 0)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((1,), ())


def test_the_last_replica_in_sync_gives_way_when_it_may_have_lost_records() -> None:
    """An eligible one has what was acknowledged; without any, none leads but the last leader."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2, 3], min_insync_replicas="2")
    brokers.alter(1, "t", 1, 2)
    brokers.alter(1, "t", 1)
    assert brokers.partition("t").eligible_leader_replicas == (2,)
    brokers.enrol(1, previous_broker_epoch=-1)
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 0)
    brokers.enrol(2, previous_broker_epoch=-1)
    for broker_id in (1, 3):
        brokers.beat(broker_id)
        assert brokers.partition("t").leader == -1
    brokers.beat(2)
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)


def test_the_longest_silent_broker_is_fenced_first() -> None:
    """So that leaders move to the others once."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2, 3], min_insync_replicas="1")
    brokers.clock.ms += 1000
    brokers.beat(1)
    brokers.beat(3)
    brokers.clock.ms += brokers.config.broker_session_timeout_ms - 1000
    _tick(brokers)
    assert brokers.partition("t").isr == (1, 3)
    brokers.clock.ms += 1000
    brokers.beat(3)
    _tick(brokers)
    assert (brokers.partition("t").leader, brokers.partition("t").isr) == (3, (3,))


def test_an_unclean_election_by_request() -> None:
    """Only where there is no leader, and someone can lead."""
    brokers = Brokers(2)
    brokers.assigned("t", [1, 2])
    assert brokers.elect(UNCLEAN, "t") == ErrorCode.ELECTION_NOT_NEEDED
    brokers.alter(1, "t", 1)
    brokers.beat(1, fence=True)
    brokers.beat(2, fence=True)
    assert brokers.elect(UNCLEAN, "t") == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    brokers.beat(2)
    assert brokers.partition("t").leader == -1
    assert brokers.elect(UNCLEAN, "t") == 0
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)


def test_a_preferred_leader_must_be_in_sync() -> None:
    """Otherwise the request fails and the leader stays."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2, 3])
    brokers.beat(1, fence=True)
    assert brokers.elect(PREFERRED, "t") == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    brokers.beat(1)
    assert brokers.elect(PREFERRED, "t") == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    brokers.alter(2, "t", 1, 2, 3)
    assert brokers.elect(PREFERRED, "t") == 0
    assert brokers.elect(PREFERRED, "t") == ErrorCode.ELECTION_NOT_NEEDED


def _without_preferred_leaders(brokers: Brokers, count: int) -> None:
    brokers.assigned("t", *[[1, 2]] * count)
    brokers.beat(1, fence=True)
    brokers.join(1)
    for number in range(count):
        assert brokers.alter(2, "t", 2, 1, number=number).error_code == 0


@pytest.mark.parametrize(("enabled", "leader"), [("true", 1), ("false", 2)])
def test_preferred_leaders_lead_again_by_themselves(enabled: str, leader: int) -> None:
    """After leader.imbalance.check.interval.seconds, unless auto.leader.rebalance.enable=false."""
    brokers = Brokers(2, auto_leader_rebalance_enable=enabled)
    _without_preferred_leaders(brokers, 1)
    _advance(brokers, BALANCE_MS // 2)
    assert brokers.partition("t").leader == 2
    _advance(brokers, BALANCE_MS)
    assert brokers.partition("t").leader == leader


def test_elections_by_the_clock_come_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a turn of the loop of its own, so that requests are decided in between."""
    monkeypatch.setattr(leadership, "PARTITIONS_PER_SLICE", 2)
    brokers = Brokers(2)
    _without_preferred_leaders(brokers, 5)
    _advance(brokers, BALANCE_MS // 2)
    brokers.clock.ms += BALANCE_MS // 2 + 1000
    brokers.let_sessions_expire()
    brokers.node.tick(brokers.clock.ms)
    offsets = [brokers.node.driver.node.next_offset]
    brokers.run_turn()
    offsets.append(brokers.node.driver.node.next_offset)
    assert offsets[1] - offsets[0] == 3
    assert _leaders(brokers) == [1] * 5


def test_unclean_leaders_are_elected_by_themselves_where_that_is_allowed() -> None:
    """After unclean.leader.election.interval.ms: the setting may have changed since."""
    brokers = Brokers(2)
    for topic in ("t", "u"):
        brokers.assigned(topic, [1, 2], unclean_leader_election_enable="false")
        brokers.alter(1, topic, 1)
    brokers.beat(1, fence=True)
    brokers.configure_topic("t", unclean_leader_election_enable="true")
    _advance(brokers, UNCLEAN_MS + 1000)
    assert (brokers.partition("t").leader, brokers.partition("t").isr) == (2, (2,))
    assert brokers.partition("u").leader == -1


def test_leaders_move_before_a_broker_stops() -> None:
    """Controlled shutdown ends when the broker leads nothing and all others know it."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2, 3])
    assert not brokers.beat(1, stop=True).should_shut_down
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr) == (2, (2, 3))
    assert not brokers.beat(1, stop=True).should_shut_down  # others have not replayed it
    brokers.beat(2)
    brokers.beat(3)
    assert brokers.beat(1, stop=True).should_shut_down
    assert brokers.image.cluster.brokers[1].fenced


def test_an_unregistered_broker_is_no_eligible_leader() -> None:
    """It leaves ISR and ELR for good."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2, 3], min_insync_replicas="3")
    brokers.beat(3, fence=True)
    assert brokers.partition("t").eligible_leader_replicas == (3,)
    brokers.unregister(1)
    partition = brokers.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert 1 not in brokers.image.cluster.brokers
    brokers.unregister(3)
    assert 3 not in brokers.image.cluster.brokers


def test_the_same_min_insync_replicas_leave_the_eligible_leaders() -> None:
    """Only a change clears them."""
    brokers = Brokers(3)
    brokers.assigned("t", [1, 2, 3], min_insync_replicas="3")
    brokers.beat(3, fence=True)
    brokers.configure_topic("t", min_insync_replicas="3")
    assert brokers.partition("t").eligible_leader_replicas == (3,)
    brokers.configure_topic("t", min_insync_replicas="2")
    assert brokers.partition("t").eligible_leader_replicas == ()
