"""The controller quorum as data: its replicas with status and lag, and its JSON.

Kafka: MetadataQuorumCommand computes them while printing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.admin.quorum import QuorumInfo, ReplicaState


class QuorumReplica(NamedTuple):
    """A replica with its status, `Leader`, `Follower` or `Observer`; lag in records."""

    status: str
    state: ReplicaState
    lag: int


def quorum_replicas(quorum: QuorumInfo, leader: ReplicaState) -> list[QuorumReplica]:
    """Return the leader, the followers, then the observers."""
    voters = sorted(quorum.voters, key=lambda voter: voter is not leader)
    states = [("Leader" if voter is leader else "Follower", voter) for voter in voters]
    states += [("Observer", observer) for observer in quorum.observers]
    end = leader.log_end_offset
    return [QuorumReplica(status, state, end - state.log_end_offset) for status, state in states]


def max_follower_lag(quorum: QuorumInfo, leader: ReplicaState) -> tuple[int, int | None]:
    """Return the lag of the slowest voter in records, and in ms; None where that is unknown."""
    slowest = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    lag = leader.log_end_offset - slowest.log_end_offset
    if leader == slowest:
        return lag, 0
    if leader.last_caught_up_ms is None or slowest.last_caught_up_ms is None:
        return lag, None
    return lag, leader.last_caught_up_ms - slowest.last_caught_up_ms


def quorum_document(cluster_id: str, quorum: QuorumInfo) -> dict[str, object]:
    """Return the JSON of the quorum."""

    def replicas(states: Iterable[ReplicaState]) -> list[dict[str, object]]:
        return [
            {
                **state._asdict(),
                "directory_id": str(state.directory_id),
                "endpoints": list(map(str, quorum.endpoints.get(state.replica_id, ()))),
            }
            for state in states
        ]

    return {
        "cluster_id": cluster_id,
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": replicas(quorum.voters),
        "observers": replicas(quorum.observers),
    }
