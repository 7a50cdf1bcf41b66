"""The roles of a member but for the leader's, the legal transitions, and the votes of an election.

Each answers whether it grants a vote (KIP-595, KIP-996).

Kafka: org.apache.kafka.raft.{UnattachedState, FollowerState, ProspectiveState, CandidateState,
ResignedState, QuorumState}; org.apache.kafka.raft.EpochElection.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.raft.requests import NO_LEADER, LeaderAndEpoch

if TYPE_CHECKING:
    from ottla.raft.requests import ReplicaKey
    from ottla.raft.voter_set import Voter, VoterSet
    from ottla.types import Buffer, OffsetAndEpoch


class Ballot:
    """Counts what the voters answered; more than half decide."""

    __slots__ = ("granted", "rejected", "voters")

    def __init__(self, voters: VoterSet, node_id: int) -> None:
        """Begin with the node's own vote, if it is a voter."""
        self.voters = voters
        self.granted = {node_id} if voters.get(node_id) is not None else set()
        self.rejected: set[int] = set()

    def count(self, voter_id: int, *, is_granted: bool) -> None:
        """Count an answer; those of nodes that are no voters do not count."""
        if self.voters.get(voter_id) is not None:
            (self.granted if is_granted else self.rejected).add(voter_id)

    @property
    def is_won(self) -> bool:
        """Whether a majority granted its vote."""
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether a majority can no longer be reached."""
        return len(self.voters) - len(self.rejected) < self.voters.majority

    def unanswered(self) -> list[Voter]:
        """Return the voters that have not answered."""
        known = self.granted | self.rejected
        return [voter for voter in self.voters if voter.voter_id not in known]


class Unattached:
    """Knows an epoch but no leader that it can reach; may have voted."""

    __slots__ = ("deadline_ms", "epoch", "leader", "voted")

    def __init__(
        self, epoch: int, deadline_ms: int, *, leader_id: int, voted: ReplicaKey | None
    ) -> None:
        self.epoch = epoch
        self.deadline_ms = deadline_ms
        """When a voter starts an election."""
        self.leader = LeaderAndEpoch(leader_id, epoch)
        self.voted = voted

    def grants(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether a candidate gets the vote."""
        return _grants(self, candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)


class Follower:
    """Fetches from a leader."""

    __slots__ = (
        "deadline_ms",
        "epoch",
        "has_fetched",
        "has_reported",
        "is_ended",
        "leader",
        "leader_high_watermark",
        "snapshot",
        "unwritten",
        "update_due_ms",
        "voted",
    )

    def __init__(self, leader: LeaderAndEpoch, deadline_ms: int, voted: ReplicaKey | None) -> None:
        self.epoch = leader.epoch
        self.leader = leader
        self.deadline_ms = deadline_ms
        """When a voter without a successful fetch starts an election."""
        self.voted = voted
        self.has_fetched = False
        self.is_ended = False
        """Whether the leader has resigned: its earlier answers no longer count."""
        self.leader_high_watermark = -1
        self.update_due_ms = deadline_ms
        """When this voter may report its new address to the leader."""
        self.has_reported = False
        """Whether the leader knows this voter's directory and addresses."""
        self.unwritten: deque[Buffer] = deque()
        """Batches of the last response that are not in the log yet."""
        self.snapshot: Download | None = None

    def grants(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether a candidate gets the vote: while the leader answers, none does.

        A leader that requests votes itself has restarted and no longer leads.
        """
        has_leader = self.has_fetched and candidate.node_id != self.leader.leader_id
        return is_pre_vote and is_up_to_date and not has_leader


class Download:
    """A snapshot that is being fetched."""

    __slots__ = ("position", "size_bytes", "snapshot_id")

    def __init__(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0
        self.size_bytes = 0


class Prospective:
    """Requests pre-votes before it starts an election with a new epoch (KIP-996)."""

    __slots__ = ("ballot", "deadline_ms", "epoch", "leader", "voted")

    def __init__(
        self, leader: LeaderAndEpoch, deadline_ms: int, ballot: Ballot, voted: ReplicaKey | None
    ) -> None:
        self.epoch = leader.epoch
        self.leader = leader
        self.deadline_ms = deadline_ms
        self.ballot = ballot
        self.voted = voted

    def grants(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether a candidate gets the vote."""
        return _grants(self, candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)


class Candidate:
    """Asks for votes in a new epoch; its own is the first."""

    __slots__ = ("ballot", "deadline_ms", "epoch", "leader", "voted")

    def __init__(self, epoch: int, deadline_ms: int, ballot: Ballot, voted: ReplicaKey) -> None:
        self.epoch = epoch
        self.leader = LeaderAndEpoch(NO_LEADER, epoch)
        self.deadline_ms = deadline_ms
        self.ballot = ballot
        self.voted: ReplicaKey | None = voted

    def grants(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether another candidate gets the vote: it has gone to this node."""
        del candidate
        return is_pre_vote and is_up_to_date


class Resigned:
    """Has led its epoch and resigned; notifies the voters and waits for the next epoch."""

    __slots__ = (
        "awaited",
        "deadline_ms",
        "epoch",
        "leader",
        "preferred",
        "successor_due_ms",
        "unacknowledged",
        "voted",
    )

    def __init__(
        self,
        leader: LeaderAndEpoch,
        deadline_ms: int,
        *,
        voted: ReplicaKey | None,
        preferred: tuple[ReplicaKey, ...] = (),
        unacknowledged: frozenset[int] = frozenset(),
        successor_due_ms: int = 0,
    ) -> None:
        self.epoch = leader.epoch
        self.leader = leader
        self.deadline_ms = deadline_ms
        self.voted = voted
        self.preferred = preferred
        """The successors, the one with the longest log first."""
        self.unacknowledged = unacknowledged
        self.awaited = unacknowledged - {successor.node_id for successor in preferred[:1]}
        """Voters to be notified before the first successor, unless they are down."""
        self.successor_due_ms = successor_due_ms
        """The latest time to notify the first successor. The others come first: they refuse votes
        while they follow this leader."""

    def grants(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether a candidate gets the vote: not in an epoch in which this node led."""
        del candidate
        return is_pre_vote and is_up_to_date


def _grants(
    role: Unattached | Prospective,
    candidate: ReplicaKey,
    *,
    is_up_to_date: bool,
    is_pre_vote: bool,
) -> bool:
    if is_pre_vote:
        return is_up_to_date
    if role.voted is not None:
        return role.voted == candidate
    return role.leader.leader_id == NO_LEADER and is_up_to_date


TRANSITIONS: Final[dict[str, tuple[str, ...]]] = {
    "Unattached": ("Unattached", "Follower", "Prospective"),
    "Follower": ("Unattached", "Follower", "Prospective"),
    "Prospective": ("Unattached", "Follower", "Candidate"),
    "Candidate": ("Unattached", "Follower", "Prospective", "Leader"),
    "Leader": ("Unattached", "Follower", "Resigned"),
    "Resigned": ("Unattached", "Follower", "Prospective"),
}
"""Role → the roles that may follow."""
