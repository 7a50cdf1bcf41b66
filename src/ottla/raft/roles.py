"""The roles without state beyond the epoch, and the legal transitions.

Kafka: org.apache.kafka.raft.{UnattachedState, ResignedState, QuorumState}. Followers and
prospective candidates are not implemented yet.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Unattached(NamedTuple):
    """Knows an epoch and no leader; may have voted."""

    epoch: int
    voted_id: int = -1


class Resigned(NamedTuple):
    """Led epoch and resigned; waits for the next epoch."""

    epoch: int


TRANSITIONS: Final[dict[str, tuple[str, ...]]] = {
    "Unattached": ("Candidate",),
    "Candidate": ("Leader", "Unattached"),
    "Leader": ("Resigned",),
    "Resigned": (),
}
"""Role → the roles that may follow; with one voter no other node can end an epoch."""
