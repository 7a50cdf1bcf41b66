"""`python -m tests.simulation.quorum_seeds FIRST-LAST`: many seeds of the quorum's simulation.

Prints progress, events per second, a digest of all traces and, for a seed that fails, the command
that replays it. `scripts/simulate --quorum` calls it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.simulation.quorum import SimulatedMember, SimulatedQuorum
from tests.simulation.seed_runs import SeedFailed, SeedResult, SeedRuns

if TYPE_CHECKING:
    from ottla.raft.node import RaftNode

HEALED_MS = 15_000
ISOLATED_MS = 10_000
SETTLED_MS = 5_000
JOINED_ROUNDS = 30
PROGRESS_SEEDS = 200


def run_seed(
    seed: int, *, rounds: int = 30, kind: type[SimulatedQuorum] = SimulatedQuorum
) -> SimulatedQuorum:
    """Run a quorum through faults, then without, and check what must hold."""
    voters, observers = 3 + 2 * (seed % 2), 1 + seed % 2
    if seed % 10 == 7:
        voters, observers = 1, 3
    quorum = kind(seed, voters=voters, observers=observers, joins_by_itself=seed % 5 == 2)
    quorum.voter_change_probability = 0.1 * (seed % 3)
    quorum.snapshot_probability = 0.15 if seed % 4 == 0 else 0.02
    try:
        _run(quorum, rounds)
    except Exception as error:
        raise SeedFailed(seed, quorum.events, error) from error
    return quorum


def _run(quorum: SimulatedQuorum, rounds: int) -> None:
    for _ in range(rounds):
        for _ in range(quorum.rng.randrange(1, 10)):
            quorum.run(quorum.rng.randrange(1, 400))
            quorum.work()
        quorum.fault()
    quorum.heal()
    quorum.voter_change_probability = 0.0
    quorum.run(HEALED_MS)
    assert len(quorum.leaders()) == 1, "a healed quorum has one leader"
    before = quorum.checks.end_offset
    for _ in range(5):
        quorum.work()
        quorum.run(1_000)
    assert quorum.checks.end_offset > before, "a healed quorum commits"
    leader = quorum.leaders()[0]
    if _node(leader).voters.majority < len(_node(leader).voters):
        epoch = _node(leader).epoch
        _isolate_one(quorum, leader)
        assert quorum.leaders() == [leader], "a node that was away does not end the leader"
        assert _node(leader).epoch == epoch, "a node that was away starts no election"
    else:
        quorum.run(2 * SETTLED_MS)
    if quorum.joins_by_itself:
        _replace_disk(quorum)
        quorum.run(SETTLED_MS)
    quorum.checks.agreed()


def _replace_disk(quorum: SimulatedQuorum) -> None:
    """Give a follower an empty disk: in the end every member is a voter again (KIP-1186)."""
    leader_id = quorum.leaders()[0].node_id
    followers = [one for one in quorum.members.values() if one.node_id != leader_id]
    member = quorum.rng.choice(followers)
    member.replace_disk()
    for _ in range(JOINED_ROUNDS):
        quorum.work()
        quorum.run(1_000)
    voters = _node(quorum.leaders()[0]).voters
    for one in quorum.members.values():
        assert voters.is_voter(*one.key), f"{one.key} has not joined {voters}"
    assert len(voters) == len(quorum.members)


def _isolate_one(quorum: SimulatedQuorum, leader: SimulatedMember) -> None:
    """Cut a node off from all others, or from the leader alone, for a while."""
    others = [one for one in quorum.members if one != leader.node_id]
    away = quorum.rng.choice(others)
    lost = [leader.node_id] if quorum.rng.random() < 0.5 else list(quorum.members)
    quorum.cut = {pair for one in lost for pair in ((one, away), (away, one))}
    quorum.run(ISOLATED_MS)
    quorum.cut = set()
    for _ in range(3):
        quorum.work()
        quorum.run(1_000)
    quorum.run(SETTLED_MS)


def _node(member: SimulatedMember) -> RaftNode:
    assert member.driver is not None
    return member.driver.node


def _result(seed: int) -> SeedResult:
    quorum = run_seed(seed)
    return SeedResult(quorum.events, quorum.trace)


if __name__ == "__main__":
    sys.exit(SeedRuns("--quorum", _result, progress=PROGRESS_SEEDS).main(__doc__))
