"""The leader role: accepts records and commits what a majority holds durably.

Kafka: org.apache.kafka.raft.LeaderState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.batch_accumulator import BatchAccumulator
from ottla.raft.requests import LeaderAndEpoch, ReplicaKey
from ottla.raft.timeouts import NEVER_MS

if TYPE_CHECKING:
    from ottla.raft.timeouts import QuorumTimeouts
    from ottla.raft.voter_set import VoterAddress, VoterSet


OBSERVER_SESSION_MS = 300_000
"""An observer without a fetch in this time is removed."""


class Replica:
    """What the leader knows of a replica."""

    __slots__ = (
        "begin_epoch_due_ms",
        "end_offset",
        "key",
        "last_caught_up_ms",
        "last_fetch_ms",
    )

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = -1
        """Everything below is durable there; -1 when it has not fetched."""
        self.last_fetch_ms = -1
        self.last_caught_up_ms = -1
        """When it last had all that the leader had."""
        self.begin_epoch_due_ms = 0


class Leader:
    """Knows how far each replica is, and from that what is committed."""

    __slots__ = (
        "accumulator",
        "deadline_ms",
        "epoch",
        "epoch_start_offset",
        "fetched",
        "high_watermark",
        "is_announced",
        "key",
        "leader",
        "observers",
        "replicas",
        "reported_voters",
        "timeouts",
        "voted",
        "voters",
    )

    def __init__(
        self,
        key: ReplicaKey,
        *,
        epoch: int,
        endpoints: tuple[VoterAddress, ...],
        voters: VoterSet,
        epoch_start_offset: int,
        timeouts: QuorumTimeouts,
        now_ms: int,
    ) -> None:
        self.key = key
        self.epoch = epoch
        self.leader = LeaderAndEpoch(key.node_id, epoch, endpoints)
        self.voted: ReplicaKey | None = key
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark: int | None = None
        """None until a record of this epoch is committed: older records are not exposed before."""
        self.is_announced = False
        self.accumulator = BatchAccumulator(epoch=epoch, next_offset=epoch_start_offset)
        self.timeouts = timeouts
        self.reported_voters: VoterSet | None = None
        """In a quorum of static voters: they as they described themselves to this leader."""
        self.replicas: dict[int, Replica] = {}
        """The voters by id."""
        self.observers: dict[ReplicaKey, Replica] = {}
        self.fetched: set[int] = set()
        """The voters that have fetched since the deadline was set."""
        self.deadline_ms = NEVER_MS
        """When a leader without a majority resigns."""
        self.change_voters(voters, now_ms)

    def grants(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether a candidate gets the vote: as long as this leader has committed nothing."""
        del candidate
        return is_pre_vote and is_up_to_date and self.high_watermark is None

    def change_voters(self, voters: VoterSet, now_ms: int) -> None:
        """Count these voters from now on: they have the whole time to fetch."""
        self.voters = voters
        self.fetched.clear()
        self.deadline_ms = now_ms + self.timeouts.check_quorum_ms
        before = self.replicas
        self.replicas = {}
        for voter in voters:
            key = ReplicaKey(voter.voter_id, voter.directory_id)
            known = before.get(voter.voter_id)
            if known is not None and not known.key.directory_id:
                known.key = key  # a static voter whose directory is known from now on
            if known is None or known.key != key:
                known = self.observers.pop(key, None) or Replica(key)
            self.replicas[voter.voter_id] = known
        for voter_id, replica in before.items():
            if self.replicas.get(voter_id) is not replica and replica.key.directory_id:
                self.observers[replica.key] = replica

    def flushed(self, end_offset: int) -> bool:
        """Handle that this node holds the log durably; return whether more is committed."""
        own = self.replicas.get(self.key.node_id)
        if own is None:
            return False
        own.end_offset = max(own.end_offset, end_offset)
        return self._commit()

    def fetched_by(self, key: ReplicaKey, offset: int, log_end_offset: int, now_ms: int) -> bool:
        """Handle that a replica holds all below offset; return whether more is committed.

        The leader's own copy counts in `flushed` alone: another process with its id is no replica.
        """
        assert key.node_id != self.key.node_id, "a leader does not fetch from itself"
        replica = self.replica(key)
        is_voter = replica is not None
        if replica is None:
            replica = self.observers.get(key)
        if replica is None:
            self.active_observers(now_ms)  # the others: they must not become ever more
            replica = self.observers[key] = Replica(key)
        replica.end_offset = offset
        if offset >= log_end_offset:
            replica.last_caught_up_ms = now_ms
        elif replica.last_fetch_ms >= 0 and offset >= log_end_offset - 1:
            replica.last_caught_up_ms = max(replica.last_caught_up_ms, replica.last_fetch_ms)
        replica.last_fetch_ms = now_ms
        if not is_voter:
            return False
        self._extend(key.node_id, now_ms)
        return self._commit()

    def followed_by(self, key: ReplicaKey, now_ms: int) -> None:
        """Count a voter that fetches a snapshot or sends its addresses: it follows this leader."""
        assert key.node_id != self.key.node_id, "a leader does not follow itself"
        if self.replica(key) is not None:
            self._extend(key.node_id, now_ms)

    def active_observers(self, now_ms: int) -> list[Replica]:
        """Forget the observers that no longer fetch; return the others."""
        since_ms = now_ms - OBSERVER_SESSION_MS
        self.observers = {
            key: one for key, one in self.observers.items() if one.last_fetch_ms > since_ms
        }
        return list(self.observers.values())

    def replica(self, key: ReplicaKey) -> Replica | None:
        """Return the state of a voter; another directory of its node is not the voter."""
        replica = self.replicas.get(key.node_id)
        if replica is None:
            return None
        known = replica.key.directory_id
        return replica if not known or known == key.directory_id else None

    def _extend(self, voter_id: int, now_ms: int) -> None:
        """Lead on when a majority, this node included, has fetched."""
        self.fetched.add(voter_id)
        is_voter = self.key.node_id in self.replicas
        others = self.voters.majority - is_voter
        if len(self.fetched) >= others:
            self.fetched.clear()
            self.deadline_ms = now_ms + self.timeouts.check_quorum_ms

    def _commit(self) -> bool:
        """Raise the high watermark to what a majority holds, if that is of this epoch."""
        ends = sorted((replica.end_offset for replica in self.replicas.values()), reverse=True)
        committed = ends[self.voters.majority - 1]
        if committed <= self.epoch_start_offset or committed <= (self.high_watermark or 0):
            return False
        self.high_watermark = committed
        return True
