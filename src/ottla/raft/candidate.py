"""The candidate role: requests votes in a new epoch, starting with its own.

Kafka: org.apache.kafka.raft.CandidateState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.quorum_state import NO_NODE, ElectionState

if TYPE_CHECKING:
    from ottla.raft.voter_set import VoterSet
    from ottla.types import Uuid


class Candidate:
    """Counts votes; wins with more than half of the voters."""

    __slots__ = ("directory_id", "epoch", "granted", "node_id", "voters")

    def __init__(self, *, epoch: int, node_id: int, directory_id: Uuid, voters: VoterSet) -> None:
        self.epoch = epoch
        self.node_id = node_id
        self.directory_id = directory_id
        self.voters = voters
        self.granted = {node_id}

    @property
    def has_won(self) -> bool:
        """Whether a majority has granted its vote."""
        return len(self.granted) > len(self.voters) // 2

    def election_state(self) -> ElectionState:
        """Return the vote for itself, which must be durable before it counts."""
        return ElectionState(
            self.epoch,
            NO_NODE,
            self.node_id,
            self.directory_id,
            tuple(voter.voter_id for voter in self.voters),
        )
