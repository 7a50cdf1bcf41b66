"""The quorum's timeouts. Kafka: org.apache.kafka.raft.QuorumConfig."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

CHECK_QUORUM_FACTOR = 1.5
"""Times fetch_ms: a leader without fetches of a majority resigns after that time."""
FETCH_MAX_WAIT_MS = 500
SUCCESSOR_DELAY_MS = 50
"""A leader that resigns notifies its first successor this long after the other voters."""
REFUSED_JITTER_MS = 100
"""Voters whose leader refuses connections stand for election within this time, rarely together."""
NEVER_MS = 1 << 62
"""No deadline."""


class QuorumTimeouts(NamedTuple):
    """controller.quorum.*.timeout.ms and the like."""

    election_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_ms: int = 2000
    request_ms: int = 2000
    retry_backoff_ms: int = 20

    def random_election_ms(self, rng: Random) -> int:
        """Return between one and two times election_ms: two candidates rarely meet again."""
        return self.election_ms + (rng.randrange(self.election_ms) if self.election_ms else 0)

    @property
    def check_quorum_ms(self) -> int:
        """The time after which a leader without its majority resigns."""
        return int(self.fetch_ms * CHECK_QUORUM_FACTOR)

    @property
    def update_voter_ms(self) -> int:
        """How long a member fetches before it sends the leader its address, and until again."""
        return self.fetch_ms

    @property
    def begin_epoch_ms(self) -> int:
        """The interval of BeginQuorumEpoch to voters that do not fetch."""
        return self.fetch_ms // 2
