"""The current leader of a partition, for clients with stale metadata (KIP-951).

Kafka: KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.server.requests.context import Context
    from ottla.types import Uuid


def current_leader(
    ctx: Context, topic: str | Uuid, index: int, replica: Partition | None
) -> tuple[int, int] | None:
    """Return id and epoch of the leader: as this broker's replica knows it, else the metadata.

    The id is -1 where a partition has no leader; None where no leader is known.
    """
    if replica is not None:
        return replica.leader_id, replica.leader_epoch
    topics = ctx.broker.image.topics
    known = topics.by_name.get(topic) if isinstance(topic, str) else topics.by_id.get(topic)
    partition = None if known is None else known.partitions.get(index)
    return None if partition is None else (partition.leader, partition.leader_epoch)
