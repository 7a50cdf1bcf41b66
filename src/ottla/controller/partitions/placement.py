"""Spreads the replicas of new partitions over brokers and racks.

Kafka: org.apache.kafka.metadata.placement.StripedReplicaPlacer. Leaders rotate over the
racks, the other replicas of a partition go to the following racks, and the brokers within a rack
rotate. Fenced brokers come last and never lead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


class UsableBroker(NamedTuple):
    """A broker that may hold replicas."""

    broker_id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers in rotation."""

    __slots__ = ("_brokers", "_start")

    def __init__(self, brokers: list[int], rng: Random) -> None:
        rng.shuffle(brokers)
        self._brokers = brokers
        self._start = 0

    def __len__(self) -> int:
        return len(self._brokers)

    def pick(self, turn: int) -> int:
        """Return the broker `turn` steps after the first one."""
        return self._brokers[(self._start + turn) % len(self._brokers)]

    def advance(self) -> None:
        """Make the next broker the first one."""
        if self._brokers:
            self._start = (self._start + 1) % len(self._brokers)


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[UsableBroker], rng: Random) -> None:
        self.unfenced = _Ring([b.broker_id for b in brokers if not b.fenced], rng)
        self.fenced = _Ring([b.broker_id for b in brokers if b.fenced], rng)

    def __len__(self) -> int:
        return len(self.unfenced) + len(self.fenced)

    def pick(self, turn: int) -> int:
        """Return the broker at `turn`, fenced ones after the others."""
        if turn < len(self.unfenced):
            return self.unfenced.pick(turn)
        return self.fenced.pick(turn - len(self.unfenced))

    def advance(self) -> None:
        self.unfenced.advance()
        self.fenced.advance()


def place(
    *,
    partition_count: int,
    replication_factor: int,
    brokers: Sequence[UsableBroker],
    registered_count: int,
    rng: Random,
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, the first one as leader.

    KafkaError INVALID_REPLICATION_FACTOR with Kafka's text when there are too few brokers.
    """
    _check(replication_factor, brokers, registered_count)
    racks_by_name: dict[str | None, list[UsableBroker]] = {}
    for broker in brokers:
        racks_by_name.setdefault(broker.rack, []).append(broker)
    names = sorted(racks_by_name, key=lambda name: (name is not None, name or ""))
    racks = [_Rack(racks_by_name[name], rng) for name in names]
    start = rng.randrange(len(racks))
    placed = []
    for _ in range(partition_count):
        placed.append(_place_one(racks, start, replication_factor))
        for rack in racks:
            rack.advance()
        start = (start + 1) % len(racks)
    return placed


def _place_one(racks: list[_Rack], start: int, replication_factor: int) -> tuple[int, ...]:
    """Return the replicas of one partition: an unfenced leader, then rack by rack."""
    while not len(racks[start].unfenced):
        start = (start + 1) % len(racks)
    replicas: list[int] = []
    turn = 0
    while len(replicas) < replication_factor:
        for step in range(len(racks)):
            rack = racks[(start + step) % len(racks)]
            if turn < len(rack) and len(replicas) < replication_factor:
                replicas.append(rack.pick(turn))
        turn += 1
    return tuple(replicas)


def _check(replication_factor: int, brokers: Sequence[UsableBroker], registered_count: int) -> None:
    problem = None
    if replication_factor <= 0:
        problem = f"Invalid replication factor {replication_factor}: the replication factor must "
        problem += "be positive."
    elif all(broker.fenced for broker in brokers):
        problem = "All brokers are currently fenced or in controlled shutdown."
    elif replication_factor > len(brokers):
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {registered_count} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )
    if problem is not None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): {problem}",
        )
