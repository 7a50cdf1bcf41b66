"""The votes of one election. Kafka: org.apache.kafka.raft.EpochElection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.raft.voter_set import Voter, VoterSet


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
