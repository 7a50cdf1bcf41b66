"""Chooses the replica that a consumer should read from, by its rack (KIP-392).

Kafka: org.apache.kafka.common.replica.RackAwareReplicaSelector,
ReplicaManager.findPreferredReadReplica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.metadata.image.cluster import ClusterImage
    from ottla.replication.leader_state import FollowerState
    from ottla.replication.partition import Partition

LEADER: Final = -1


class RackAwareReplicaSelector:
    """Chooses among the replicas in the consumer's rack the one that lags least."""

    def __init__(self, cluster: ClusterImage) -> None:
        self._cluster = cluster

    def select(
        self, partition: Partition, rack_id: str, listener: str, fetch_offset: int, now_ms: int
    ) -> int:
        """Return the broker to read from; LEADER for the leader, or if this broker does not lead.

        Only followers in sync count that have the requested offset, and that a client of this
        listener can reach.
        """
        leading = partition.leading
        if leading is None or not partition.is_leader:
            return LEADER
        if self._rack_of(partition.leader_id, listener) == rack_id:
            return LEADER
        near = [
            follower
            for follower in leading.followers.values()
            if follower.broker_id in partition.isr
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and self._rack_of(follower.broker_id, listener) == rack_id
        ]
        if not near:
            return LEADER

        def order(follower: FollowerState) -> tuple[int, int, int]:
            lag_ms = now_ms - follower.last_caught_up_ms
            return follower.log_end_offset, -lag_ms, follower.broker_id

        return max(near, key=order).broker_id

    def _rack_of(self, broker_id: int, listener: str) -> str | None:
        broker = self._cluster.brokers.get(broker_id)
        if broker is None or broker.fenced or listener not in broker.listeners:
            return None
        return broker.rack
