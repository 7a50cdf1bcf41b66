"""A partition that is whole, and faults of its replicas at chosen moments.

A replica falls behind its leader first; what follows has to be clean although it is out of sync.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ottla import TopicPartition

if TYPE_CHECKING:
    from random import Random

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.partition import PartitionRegistration
    from ottla.replication.partition import Partition
    from ottla.testing.simulation import SimulatedCluster

SHRINK_S = 8.0
"""How long to wait until a replica that is cut off from its leader is out of sync."""
SUCCESSION_S = (6.0, 10.0)
"""How long a leader is cut off: until another one leads and the replica out of sync follows it."""
_LOOK_S = 0.5


class Chosen(NamedTuple):
    """A partition with all replicas in sync."""

    partition: TopicPartition
    leader: int
    followers: tuple[int, int]
    spare: int | None
    """A broker that is no replica."""

    @property
    def moved(self) -> list[int]:
        """The replicas after a move of the second follower's to the spare broker."""
        return [self.leader, self.followers[0], self.spare or 0]


def newest_image(cluster: SimulatedCluster) -> MetadataImage | None:
    """Return the newest metadata that any running node has."""
    images = [one.node.broker.image for one in cluster if one.node is not None and one.is_alive]
    return max(images, key=lambda image: image.offset_and_epoch, default=None)


def registration(
    cluster: SimulatedCluster, partition: TopicPartition
) -> PartitionRegistration | None:
    """Return a partition as it is in the newest metadata."""
    image = newest_image(cluster)
    return None if image is None else image.topics.partition(*partition)


def choose(cluster: SimulatedCluster, rng: Random, topics: dict[str, int]) -> Chosen | None:
    """Return one of the topics' partitions; None where the one that comes up is not whole."""
    partition = TopicPartition(*rng.choice([(n, i) for n in topics for i in range(topics[n])]))
    image = newest_image(cluster)
    found = image and image.topics.partition(*partition)
    if image is None or not found or found.is_reassigning:
        return None
    if len(found.isr) != 3 or len(found.replicas) != 3 or not found.has_leader:
        return None
    first, second = rng.sample([one for one in found.replicas if one != found.leader], 2)
    spares = [
        broker.broker_id
        for broker in image.cluster.brokers.values()
        if broker.broker_id not in found.replicas and broker.is_active
    ]
    spare = rng.choice(sorted(spares)) if spares else None
    return Chosen(partition, found.leader, (first, second), spare)


async def cancel_move(
    cluster: SimulatedCluster, rng: Random, admin: AsyncAdmin, chosen: Chosen
) -> None:
    """Cancel the move of a replica that is out of sync, to a broker that lags too."""
    leader, (_, behind), spare = chosen.leader, chosen.followers, chosen.spare
    assert spare is not None
    try:
        cluster.cut(leader, behind)
        cluster.cut(leader, spare)
        if await _is_out_of_sync(cluster, chosen.partition, behind):
            await admin.alter_partition_reassignments({chosen.partition: chosen.moved})
            await asyncio.sleep(rng.random())
            await admin.alter_partition_reassignments({chosen.partition: None})
            await asyncio.sleep(rng.random() * 2)
    finally:
        cluster.heal()


async def _is_out_of_sync(
    cluster: SimulatedCluster, partition: TopicPartition, replica: int
) -> bool:
    """Wait until a replica has left the ISR; whether it has."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SHRINK_S):
            while True:
                await asyncio.sleep(_LOOK_S)
                found = registration(cluster, partition)
                if found is not None and replica not in found.isr:
                    return True
    return False


async def end_at_commit(cluster: SimulatedCluster, rng: Random, chosen: Chosen) -> bool:
    """Cut a leader off when it commits what a replica out of sync lacks; whether it did.

    Its successor may not know yet that this is committed when the replica comes to it.
    """
    leader, (_, behind) = chosen.leader, chosen.followers
    node = cluster[leader].node
    if node is None or not cluster[leader].is_alive:
        return False
    others = [number for number, _ in enumerate(cluster, start=1) if number != leader]
    has_committed = asyncio.get_running_loop().create_future()

    def moved(partition: Partition) -> None:
        if has_committed.done() or partition.topic_partition != chosen.partition:
            return
        if behind not in partition.isr:
            has_committed.set_result(None)
            cluster.partition([leader], others)

    node.broker.replicas.on_high_watermark(moved)
    try:
        cluster.cut(leader, behind)
        async with asyncio.timeout(SHRINK_S):
            await has_committed
        await asyncio.sleep(rng.uniform(*SUCCESSION_S))
    except TimeoutError:
        has_committed.cancel()
        return False
    finally:
        cluster.heal()
    return True
