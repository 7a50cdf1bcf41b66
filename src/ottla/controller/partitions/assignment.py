"""Replicas of new partitions: validates a manual assignment or places them.

Kafka: ReplicationControlManager.validateManualPartitionAssignment and buildPartitionRegistration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.partitions.placement import UsableBroker, place
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.partition import PartitionRegistration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from ottla.controller.cluster import ClusterControl


def check_manual_assignment(
    brokers: Sequence[int], replication_factor: int | None, cluster: ClusterControl
) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT with Kafka's text."""
    if not brokers:
        raise _refused("The manual partition assignment includes an empty replica list.")
    seen: set[int] = set()
    for broker_id in sorted(brokers):
        if broker_id not in cluster.brokers:
            raise _refused(
                f"The manual partition assignment includes broker {broker_id}, but no such broker "
                "is registered."
            )
        if broker_id in seen:
            raise _refused(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
        seen.add(broker_id)
    if replication_factor is not None and len(brokers) != replication_factor:
        raise _refused(
            f"The manual partition assignment includes a partition with {len(brokers)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )


def place_replicas(
    partition_count: int, replication_factor: int, cluster: ClusterControl, rng: Random
) -> list[tuple[int, ...]]:
    """Return the replicas of new partitions, at least one of each active.

    KafkaError INVALID_REPLICATION_FACTOR.
    """
    return place(
        partition_count=partition_count,
        replication_factor=replication_factor,
        brokers=[
            UsableBroker(broker.broker_id, broker.rack, broker.fenced)
            for broker in cluster.usable_brokers()
        ],
        rng=rng,
    )


def new_partition(
    replicas: Sequence[int], cluster: ClusterControl, *, partition_id: int
) -> PartitionRegistration:
    """Return a new partition with its active replicas in sync, the first one as leader.

    KafkaError INVALID_REPLICA_ASSIGNMENT when none of them is active.
    """
    isr = tuple(broker_id for broker_id in replicas if cluster.is_active(broker_id))
    if not isr:
        raise _refused(
            "All brokers specified in the manual partition assignment for partition "
            f"{partition_id} are fenced or in controlled shutdown."
        )
    return PartitionRegistration(
        tuple(replicas),
        tuple(cluster.default_directory(broker_id) for broker_id in replicas),
        isr,
        isr[0],
        0,
        0,
    )


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
