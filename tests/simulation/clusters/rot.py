"""Rotten bits in the metadata log, and in the newest snapshot, of a node that is down.

The start is refused, names the way out and changes no file; or the damage is below a snapshot, or
in one that an older one replaces. The others serve on, whatever the node gives them. In the end
the file is restored as from a backup.

In a running node a bit of a committed, flushed batch of a partition may rot, on one node at a time.
No one gets a wrong record, and no replica copies one. What was read stays right, and all goes on
when the file is restored; a node that has put the log offline starts again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, KafkaError
from ottla.storage.layout import METADATA_LOG
from tests.simulation.nodes.rot import Bit, flushed_batches, metadata_batches, snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from ottla.testing.disk import SimulatedDisk
    from ottla.testing.simulation.node import SimulatedNode

_UNCHECKED_FROM = 27
"""Timestamps, producer and records: `committed_logs` compares what is before that."""
_WAY_OUT = f"ottla log-repair --log-dir /data --partition {METADATA_LOG}"


class Damage:
    """One bit of a file that has changed."""

    def __init__(self, disk: SimulatedDisk, bit: Bit) -> None:
        self._disk = disk
        self._bit = bit
        bit.flip(disk)
        self._byte = self._read()

    def _read(self) -> bytes:
        path, position, _ = self._bit
        data = self._disk.content(path) if path in self._disk.files() else b""
        return data[position : position + 1]

    def restore(self) -> None:
        """Change it back, if the file is there and still has it."""
        if self._read() == self._byte:
            self._bit.flip(self._disk)


def damage(host: SimulatedNode, rng: Random, committed_offset: int) -> Damage | None:
    """Flip a bit of a node that is down; None where it has nothing that may rot."""
    disk = host.disk
    if rng.random() < 0.3:
        paths = snapshots(disk)
        if not paths:
            return None
        position = rng.randrange(len(disk.content(paths[-1])))
        return Damage(disk, Bit(paths[-1], position, rng.randrange(8)))
    choices = [
        stored for stored in metadata_batches(disk) if stored.header.last_offset < committed_offset
    ]
    return Damage(disk, rng.choice(choices).any_bit(rng)) if choices else None


def damage_records(host: SimulatedNode, rng: Random, topics: Iterable[str]) -> Damage | None:
    """Flip a bit of a committed, flushed batch of a node that runs; None where it has none.

    Not of what the checks of the logs read from the batch's header.
    """
    assert host.node is not None
    choices = [
        (disk, stored)
        for partition in host.node.broker.replicas
        if partition.topic_partition.topic in topics
        for disk in host.disks.values()
        for stored in flushed_batches(disk, partition.topic_partition)
        if stored.header.last_offset < partition.log.high_watermark
    ]
    if not choices:
        return None
    disk, (path, header) = rng.choice(choices)
    position = header.position + rng.randrange(_UNCHECKED_FROM, header.size)
    return Damage(disk, Bit(path, position, rng.randrange(8)))


async def start_damaged(host: SimulatedNode) -> bool:
    """Start a node whose metadata are damaged; return whether it starts.

    AssertionError where it is refused for another reason, or has changed a file.
    """
    before = _contents(host)
    try:
        await host.start()
    except KafkaError as error:
        text = str(error)
        if isinstance(error.__cause__, OSError):
            raise  # another fault: its disk does not write
        if not isinstance(error, CorruptMessage) and METADATA_LOG not in text:
            raise  # no majority
        host.kill(power=False)
        assert "is damaged and was not changed" in text, f"the start is refused with: {text}"
        assert _WAY_OUT in text, f"a refusal does not name the way out: {text}"
        after = _contents(host)
        changed = [one for one in {**before, **after} if before.get(one) != after.get(one)]
        assert not changed, f"a refused start changed {changed}"
        return False
    return True


def _contents(host: SimulatedNode) -> Mapping[str, bytes]:
    return {path: host.disk.content(path) for path in host.disk.files()}
