"""What a leader knows of the other replicas."""

from __future__ import annotations

from ottla.raft.leader import OBSERVER_SESSION_MS, Leader
from ottla.raft.requests import ReplicaKey
from ottla.raft.timeouts import QuorumTimeouts
from ottla.raft.voter_set import Voter, VoterSet
from ottla.types import Uuid

OWN, DISK = Uuid(b"o" * 16), Uuid(b"d" * 16)


def _leader() -> Leader:
    """Return the leader of three voters at time 0."""
    return Leader(
        ReplicaKey(1, OWN),
        epoch=3,
        endpoints=(),
        voters=VoterSet([Voter(1, OWN), Voter(2, DISK), Voter(3, DISK)]),
        epoch_start_offset=10,
        timeouts=QuorumTimeouts(),
        now_ms=0,
    )


def test_a_voter_that_fetches_a_snapshot_follows() -> None:
    """The leader does not resign while voters take long to get one; observers do not count."""
    role = _leader()
    before_ms = role.deadline_ms
    role.followed_by(ReplicaKey(9, DISK), 1000)
    role.followed_by(ReplicaKey(2, OWN), 1000)
    assert role.deadline_ms == before_ms
    role.followed_by(ReplicaKey(2, DISK), 1000)
    assert role.deadline_ms == before_ms + 1000


def test_observers_that_no_longer_fetch_are_forgotten() -> None:
    """Otherwise each new id would stay for ever."""
    role = _leader()
    for number in range(3):
        role.fetched_by(ReplicaKey(number + 7, DISK), 10, 10, number)
    last_ms = OBSERVER_SESSION_MS
    assert [one.key.node_id for one in role.active_observers(last_ms)] == [8, 9]
    role.fetched_by(ReplicaKey(11, DISK), 10, 10, last_ms + 2)
    assert [key.node_id for key in role.observers] == [11]
