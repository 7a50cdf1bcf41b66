"""Tests of server.system.garbage_collection: when a node's process collects garbage."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from ottla.server.node.resources import CHECK_EVERY, WORK_S, CollectionSchedule
from ottla.server.system.turns import TurnWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Process:
    """A loop, whose clock work moves on, and the memory of its process."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.blocks = 1_000_000
        self.collected: list[int] = []
        self.due: list[Callable[[], Any]] = []
        self.turns = TurnWatch(lambda: self.now_s)
        self.schedule = CollectionSchedule(
            self,  # type: ignore[arg-type] # a loop of which `call_soon` suffices
            self.turns,
            collect=self.collected.append,
            allocated_blocks=lambda: self.blocks,
        )

    def call_soon(self, callback: Callable[[], Any]) -> None:
        """Run a callback in the next turn."""
        self.due.append(callback)

    def work(self, seconds: float) -> None:
        """Work in a turn, and run the turns that are due then."""
        self.turns.run(self._spend, seconds)
        while self.due:
            self.turns.run(self.due.pop(0))

    def _spend(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def process() -> Iterator[Process]:
    """Return a process whose schedule is stopped in the end."""
    made = Process()
    made.schedule.start()
    yield made
    made.schedule.stop()
    gc.unfreeze()
    assert gc.isenabled()


def test_collects_the_young_after_some_work(process: Process) -> None:
    """Not by the number of objects, and in a turn of its own."""
    assert not gc.isenabled()
    process.work(WORK_S / 2)
    assert process.collected == [2]
    process.turns.run(process._spend, WORK_S)
    assert process.collected == [2]
    process.work(0.0)
    assert process.collected == [2, 1]


def test_a_full_collection_is_due_when_memory_has_grown(process: Process) -> None:
    """Twice and by some 100 MB, since the last one."""
    for _ in range(CHECK_EVERY):
        process.work(1.1 * WORK_S)
    assert set(process.collected[1:]) == {1}
    process.blocks = 2_600_000
    for _ in range(2 * CHECK_EVERY):
        process.work(1.1 * WORK_S)
    assert process.collected.count(2) == 2
    assert len(process.collected) == 1 + 3 * CHECK_EVERY


def test_stops(process: Process) -> None:
    """Python's own schedule is on again."""
    process.schedule.stop()
    process.work(1.0)
    assert process.collected == [2]
    assert gc.isenabled()
