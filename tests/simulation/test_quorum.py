"""Quorums of three and five over bad days: safe at every event, live when the faults end."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.raft.requests import RemoveVoter, Request, Vote
from ottla.raft.roles import Follower
from tests.simulation.quorum import SimulatedMember, SimulatedQuorum
from tests.simulation.quorum_seeds import run_seed
from tests.soaks import with_soaks


@pytest.mark.parametrize("seed", with_soaks(range(8), count=2))
def test_a_quorum_survives_bad_days(seed: int) -> None:
    """No invariant breaks, and the quorum serves when the faults end."""
    run_seed(seed)


@pytest.mark.soak
def test_a_seed_gives_the_same_trace() -> None:
    """Nothing but the seed decides what happens."""
    first, second = run_seed(3, rounds=10), run_seed(3, rounds=10)
    assert (first.trace, first.events) == (second.trace, second.events)


def test_a_quiet_quorum_has_a_leader_and_commits() -> None:
    """Three voters elect one leader, and two observers follow."""
    quorum = SimulatedQuorum(1, observers=2)
    quorum.run(4_000)
    leader = quorum.leaders()[0]
    assert leader.driver is not None
    epoch = leader.driver.node.epoch
    for _ in range(20):
        quorum.work()
        quorum.run(100)
    quorum.run(1_000)
    quorum.checks.agreed()
    assert leader.driver.node.epoch == epoch, "nothing disturbs the leader"


def _led(*, voters: int = 3) -> tuple[SimulatedQuorum, SimulatedMember]:
    """Return a quiet quorum with some committed records, and its leader."""
    quorum = SimulatedQuorum(1, voters=voters)
    quorum.snapshot_probability = 0.0
    quorum.run(4_000)
    for _ in range(5):
        quorum.work()
        quorum.run(200)
    (leader,) = quorum.leaders()
    return quorum, leader


def _isolate(quorum: SimulatedQuorum, away: SimulatedMember) -> None:
    others = [one for one in quorum.members if one != away.node_id]
    quorum.cut = {pair for one in others for pair in ((one, away.node_id), (away.node_id, one))}


def test_33_a_leader_without_its_majority_resigns_and_another_leads() -> None:
    """KAFKA-15489: within one and a half fetch timeouts."""
    quorum, leader = _led()
    _isolate(quorum, leader)
    quorum.run(quorum.timeouts.check_quorum_ms + 100)
    assert leader not in quorum.leaders()
    quorum.run(5_000)
    assert [one for one in quorum.leaders() if one is not leader]
    quorum.cut = set()
    quorum.run(5_000)
    quorum.checks.agreed()


def test_34_a_leader_that_lost_its_quorum_resigns_before_it_loads_a_snapshot() -> None:
    """KAFKA-12958: who was told that it leads is told that it does not, then begins again."""
    quorum, leader = _led()
    assert leader.is_told_to_lead
    _isolate(quorum, leader)
    quorum.run(8_000)
    (other,) = (one for one in quorum.leaders() if one is not leader)
    for _ in range(20):
        quorum.work()
        quorum.run(200)
    other.write_snapshot()
    quorum.run(2_000)
    before = leader.loaded_count
    quorum.cut = set()
    quorum.run(8_000)
    assert leader.loaded_count == before + 1
    quorum.checks.agreed()


def test_39_a_replica_that_was_away_meets_voters_that_changed_twice() -> None:
    """KAFKA-17973: only the leader changes one at a time; who reads the log takes any set."""
    quorum, leader = _led(voters=5)
    away = quorum.members[6]
    _isolate(quorum, away)
    voters = [one for one in quorum.members.values() if one not in (leader, away)]
    for gone in voters[:2]:
        assert leader.driver is not None
        removed = leader.driver.request(RemoveVoter(gone.key))
        quorum.run(1_500)
        assert removed.value.error is ErrorCode.NONE
    quorum.cut = set()
    quorum.work()
    quorum.run(5_000)
    assert away.driver is not None
    left = {one.voter_id for one in away.driver.node.voters}
    assert left == {1, 2, 3, 4, 5} - {one.node_id for one in voters[:2]}


def test_40_a_voter_that_returns_with_an_empty_disk_does_not_vote() -> None:
    """Its directory is another one: two of three voters are a majority, one and it are not."""
    quorum, leader = _led()
    emptied, other = (
        one for one in quorum.members.values() if one is not leader and one.node_id <= 3
    )
    emptied.replace_disk()
    quorum.run(5_000)
    assert emptied.driver is not None
    assert isinstance(emptied.driver.node.role, Follower)
    assert emptied.driver.log.end_offset > 0, "it reads the log as an observer"
    leader.stop(power_cut=False)
    quorum.run(20_000)
    assert not quorum.leaders()
    assert other.driver is not None
    leader.start()
    quorum.run(10_000)
    assert quorum.leaders()


class OldVoters(SimulatedQuorum):
    """The voters know no pre-votes: a node cannot send them one (Vote below version 2)."""

    def exchange(
        self, source: SimulatedMember, target: SimulatedMember, request: Request
    ) -> Pending[Any]:
        """Refuse a pre-vote as the channel does."""
        if isinstance(request, Vote) and request.is_pre_vote:
            refused: Pending[Any] = Pending()
            error = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            self.happen(1, source.guarded, source.life, refused.fail, error)
            return refused
        return super().exchange(source, target, request)


def test_voters_without_pre_votes_elect_a_leader() -> None:
    """KIP-996: who is told so stands for election at once."""
    quorum = OldVoters(2)
    quorum.run(6_000)
    assert len(quorum.leaders()) == 1


def test_a_former_voter_finds_a_leader_that_its_log_does_not_know() -> None:
    """It was away while the others replaced the voters; of all it knows none leads."""
    run_seed(164)
