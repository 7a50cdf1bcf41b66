"""Spreads the replicas of new partitions over brokers and racks, or validates a manual assignment.

The first replicas rotate over the racks, the other replicas of a partition come from the racks in
turn, and the brokers within a rack rotate. Fenced brokers come last and never lead. After as many
partitions as there are brokers that can lead, the order is drawn again, so that the followers of a
broker's partitions vary.

Kafka: org.apache.kafka.metadata.placement.StripedReplicaPlacer,
ReplicationControlManager.{validateManualPartitionAssignment, buildPartitionRegistration}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.partition import PartitionRegistration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from ottla.controller.cluster import ClusterControl


class UsableBroker(NamedTuple):
    """A broker that may hold replicas."""

    broker_id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers in rotation: each partition that uses the ring starts one broker further."""

    __slots__ = ("_brokers", "_partition", "_start", "_taken")

    def __init__(self, brokers: list[int], rng: Random) -> None:
        self._brokers = sorted(brokers)
        self._start = rng.randrange(len(brokers)) if brokers else 0
        self._partition = 0
        self._taken = 0

    def shuffle(self, rng: Random) -> None:
        """Shuffle the brokers."""
        rng.shuffle(self._brokers)

    def take(self, partition: int) -> int | None:
        """Return the next broker for a partition, None when it has all of them."""
        if not self._brokers:
            return None
        if self._partition != partition:
            self._partition, self._taken = partition, 0
            self._start = (self._start + 1) % len(self._brokers)
        if self._taken >= len(self._brokers):
            return None
        self._taken += 1
        return self._brokers[(self._start + self._taken - 1) % len(self._brokers)]


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[UsableBroker], rng: Random) -> None:
        self.unfenced = _Ring([b.broker_id for b in brokers if not b.fenced], rng)
        self.fenced = _Ring([b.broker_id for b in brokers if b.fenced], rng)

    def shuffle(self, rng: Random) -> None:
        self.unfenced.shuffle(rng)
        self.fenced.shuffle(rng)

    def take(self, partition: int) -> int | None:
        """Return the next broker for a partition, fenced ones after the others."""
        broker_id = self.unfenced.take(partition)
        return self.fenced.take(partition) if broker_id is None else broker_id


class _Racks:
    def __init__(self, brokers: Sequence[UsableBroker], rng: Random) -> None:
        by_name: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_name.setdefault(broker.rack, []).append(broker)
        names = sorted(by_name, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_name[name], rng) for name in names]
        self._leader_count = sum(not broker.fenced for broker in brokers)
        self._rng = rng
        self._start = rng.randrange(len(self._racks))
        self._partition = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition."""
        if self._partition == self._leader_count > 1:
            self._shuffle()
        racks, start = self._racks, self._start % len(self._racks)
        replicas: list[int] = []
        first = start
        while not replicas:
            leader = racks[first].unfenced.take(self._partition)
            if leader is None:
                first = (first + 1) % len(racks)
            else:
                replicas.append(leader)
        rack, skipped = start, first  # the leader's rack was used in the first round
        while len(replicas) < replication_factor:
            if rack == skipped:
                skipped = -1
            else:
                broker_id = racks[rack].take(self._partition)
                if broker_id is not None:
                    replicas.append(broker_id)
            rack = (rack + 1) % len(racks)
        self._partition += 1
        self._start = start + 1
        return tuple(replicas)

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for rack in self._racks:
            rack.shuffle(self._rng)
        self._partition = 0


def place(
    *,
    partition_count: int,
    replication_factor: int,
    brokers: Sequence[UsableBroker],
    rng: Random,
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, the first one as leader.

    KafkaError INVALID_REPLICATION_FACTOR with Kafka's text when there are too few brokers.
    """
    problem = _problem(replication_factor, brokers)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
    racks = _Racks(brokers, rng)
    return [racks.place(replication_factor) for _ in range(partition_count)]


def _problem(replication_factor: int, brokers: Sequence[UsableBroker]) -> str | None:
    if replication_factor <= 0:
        return (
            f"Invalid replication factor {replication_factor}: the replication factor must "
            "be positive."
        )
    if all(broker.fenced for broker in brokers):
        return "All brokers are currently fenced, or have all their log directories cordoned."
    if replication_factor > len(brokers):
        return (
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(brokers)} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )
    return None


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
