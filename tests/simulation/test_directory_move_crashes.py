"""A crash at each file operation of a move between log directories; a sample of them here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.testing.simulation import SimulatedCluster
from tests.simulation.test_cluster_replication import _in_sync, _values
from tests.simulation.test_directory_moves import (
    CONFIG,
    _create,
    _has_moved,
    _move,
    _other,
    _place,
    _produce,
)
from tests.waits import until

if TYPE_CHECKING:
    from ottla.testing.disk import Call
    from ottla.testing.simulation.node import SimulatedNode

OPERATIONS = 60
"""More than a move has, with the records that are appended meanwhile."""
SETTINGS = {**CONFIG, "log.flush.interval.messages": "1", "log.segment.delete.delay.ms": "50"}


class CrashAt:
    """Strikes at the n-th operation in any directory, the metadata log's too; counts them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0

    def plant(self, node: SimulatedNode) -> None:
        for disk in node.disks.values():
            disk.fail(self._matches, 0)

    def _matches(self, _call: Call) -> bool:
        self.count += 1
        return self.count == self.number


def _deleted(node: SimulatedNode) -> list[str]:
    """Return what is left of logs that were replaced."""
    names = [name for disk in node.disks.values() for name in disk.list()]
    return [name for name in names if name.endswith("-delete")]


def crash_at(number: int, *, power: bool, seed: int = 0) -> int:
    """Crash at an operation of a move; check what is left, and return how many there were."""
    cluster = SimulatedCluster(seed * 1000 + number, nodes=1, config=SETTINGS)
    crash = CrashAt(number)

    async def work() -> None:
        await cluster.start()
        await _create(cluster, 1)
        node = cluster[1]
        await _produce(cluster, 0, 50)
        source = _place(node)
        target = _other(source)
        crash.plant(node)
        load = cluster.loop.create_task(_produce(cluster, 50, 70))
        request = cluster.loop.create_task(_move(cluster, node, target))
        await until(lambda: not node.is_alive or _has_moved(node, target), 5)
        await until(lambda: not node.is_alive or not _deleted(node), 5)
        if not node.is_alive:
            node.kill(power=power)
            await node.start()
        for disk in node.disks.values():
            disk.heal()
        await load
        await request
        await until(lambda: _in_sync(cluster, 1))
        assert source is not None
        await until(lambda: _has_moved(node, target) or _has_moved(node, source))
        assert await _values(cluster, 70) == [b"%d" % one for one in range(70)]
        await cluster.stop()

    cluster.run(work())
    return crash.count


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_an_operation_of_a_move(power: bool) -> None:  # noqa: FBT001 - parametrized
    """Acknowledged records are there, in order and once; one directory has the partition."""
    for number in range(1 + 3 * power, OPERATIONS, 9):
        crash_at(number, power=power)
