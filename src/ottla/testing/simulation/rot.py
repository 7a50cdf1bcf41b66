"""Rotten bits: a batch below the stored recovery point of a partition changes by one bit.

Damage above the stored recovery point cannot be told from a torn write (docs/decisions/0011).

The bit is one that a batch's checksum protects, or of the checksum itself. Kafka's checksum leaves
out a batch's first 16 bytes: offset, length and leader epoch.

Kafka: none.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.directories.checkpoints import RECOVERY_POINT_CHECKPOINT, decode_offsets

if TYPE_CHECKING:
    from random import Random

    from ottla.testing.simulation.model import TopicModel
    from ottla.testing.simulation.node import SimulatedNode
    from ottla.types import TopicPartition

_OFFSET_AND_LENGTH = Struct(">qi")
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23
_PROTECTED_FROM = 16


class _Stored(NamedTuple):
    """A batch on the disk."""

    path: str
    position: int
    size: int


def rot(simulation: SimulatedNode, rng: Random, topics: dict[str, TopicModel]) -> int:
    """Flip a bit of a flushed batch; return how many were flipped: 0 where none is flushed."""
    choices: list[tuple[TopicModel, int, _Stored]] = []
    checkpoint = simulation.disk.named_content(RECOVERY_POINT_CHECKPOINT)
    recovery_points = decode_offsets(checkpoint) if checkpoint else {}
    for topic in topics.values():
        for partition in topic.partitions:
            flushed = _flushed(simulation, partition, recovery_points.get(partition, 0))
            choices += [(topic, partition.partition, stored) for stored in flushed]
    if not choices:
        return 0
    topic, number, stored = rng.choice(choices)
    position = stored.position + rng.randrange(_PROTECTED_FROM, stored.size)
    simulation.disk.flip_bit(stored.path, position, rng.randrange(8))
    topic.damaged.add(number)
    return 1


def _flushed(
    simulation: SimulatedNode, partition: TopicPartition, recovery_point: int
) -> list[_Stored]:
    """Return the batches of a partition below its recovery point."""
    found = []
    prefix = f"{partition}/"
    for path in simulation.disk.files():
        if path.startswith(prefix) and path.endswith(".log"):
            content = simulation.disk.content(path)
            position = 0
            while position + _LAST_DELTA_AT + 4 <= len(content):
                base, length = _OFFSET_AND_LENGTH.unpack_from(content, position)
                last = base + _LAST_DELTA.unpack_from(content, position + _LAST_DELTA_AT)[0]
                size = length + _OFFSET_AND_LENGTH.size
                if last >= recovery_point or length <= 0:
                    break
                found.append(_Stored(path, position, size))
                position += size
    return found
