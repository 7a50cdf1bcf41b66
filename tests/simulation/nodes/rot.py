"""Rotten bits: a stored batch or snapshot changes by one bit.

Damage above the stored recovery point of a partition cannot be told from a torn write
(docs/decisions/0011); in the metadata log the last batch cannot either.

The bit is one that a batch's checksum protects, or of the checksum itself. Kafka's checksum leaves
out a batch's first 16 bytes: offset, length and leader epoch.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.raft.log_check import _RECOVERY_POINT_PATH, find_snapshots
from ottla.raft.snapshot import snapshot_name
from ottla.records.batch import HEADER_BYTES
from ottla.storage.batches import parse_header
from ottla.storage.directories.checkpoints import decode_offsets
from ottla.storage.layout import METADATA_LOG, RECOVERY_POINT_CHECKPOINT
from ottla.storage.segments.segment_recovery import is_valid_batch
from ottla.types import METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from ottla.storage.batches import BatchHeader
    from ottla.testing.disk import SimulatedDisk
    from tests.simulation.nodes.model import TopicModel

_PROTECTED_FROM = 16


class Bit(NamedTuple):
    """One bit of a file."""

    path: str
    position: int
    number: int

    def flip(self, disk: SimulatedDisk) -> None:
        """Change the bit; twice restores it."""
        disk.flip_bit(self.path, self.position, self.number)


class StoredBatch(NamedTuple):
    """A valid batch on the disk."""

    path: str
    header: BatchHeader

    def any_bit(self, rng: Random) -> Bit:
        """Return a bit that the checksum protects."""
        within = rng.randrange(_PROTECTED_FROM, self.header.size)
        return Bit(self.path, self.header.position + within, rng.randrange(8))


def rot(disk: SimulatedDisk, rng: Random, topics: dict[str, TopicModel]) -> int:
    """Flip a bit of a flushed batch; return how many were flipped: 0 where none is flushed."""
    choices = [
        (topic, partition.partition, stored)
        for topic in topics.values()
        for partition in topic.partitions
        for stored in flushed_batches(disk, partition)
    ]
    if not choices:
        return 0
    topic, number, stored = rng.choice(choices)
    stored.any_bit(rng).flip(disk)
    topic.damaged.add(number)
    return 1


def flushed_batches(disk: SimulatedDisk, partition: TopicPartition) -> list[StoredBatch]:
    """Return the batches of a partition below its stored recovery point."""
    checkpoint = disk.named_content(RECOVERY_POINT_CHECKPOINT)
    recovery_point = (decode_offsets(checkpoint) if checkpoint else {}).get(partition, 0)
    found = _batches(disk, str(partition))
    return [stored for stored in found if stored.header.last_offset < recovery_point]


def metadata_batches(disk: SimulatedDisk) -> list[StoredBatch]:
    """Return the batches of the metadata log whose damage cannot be a torn write."""
    checkpoint = disk.content(_RECOVERY_POINT_PATH) if _RECOVERY_POINT_PATH in disk.files() else b""
    recovery_points = decode_offsets(checkpoint) if checkpoint else {}
    recovery_point = recovery_points.get(TopicPartition(METADATA_TOPIC, 0), 0)
    found = list(_batches(disk, METADATA_LOG))
    return found[:-1] + [
        stored for stored in found[-1:] if stored.header.last_offset < recovery_point
    ]


def snapshots(disk: SimulatedDisk) -> list[str]:
    """Return the paths of the snapshots of the metadata log, oldest first."""
    return [f"{METADATA_LOG}/{snapshot_name(one)}" for one in find_snapshots(disk)]


def segments(disk: SimulatedDisk, subdirectory: str) -> list[str]:
    """Return the paths of a log's segments, oldest first."""
    return [
        path
        for path in disk.files()
        if path.startswith(f"{subdirectory}/") and path.endswith(".log")
    ]


def _batches(disk: SimulatedDisk, subdirectory: str) -> Iterator[StoredBatch]:
    for path in segments(disk, subdirectory):
        view, position = memoryview(disk.content(path)), 0
        while position + HEADER_BYTES <= len(view):
            try:
                header = parse_header(view, position, position)
            except CorruptMessage:
                break
            if not is_valid_batch(header, view[position : position + header.size]):
                break
            yield StoredBatch(path, header)
            position += header.size
