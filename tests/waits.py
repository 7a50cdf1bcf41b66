"""Waits for what a node or a process does by itself.

The limit only ends a test that would wait forever; others may keep the machine busy meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla import Consumer, ConsumerRecord

WAIT_S = 60.0
T = TypeVar("T")


def wait_for(condition: Callable[[], T], limit_s: float = WAIT_S, problem: str = "") -> T:
    """Ask again and again until the condition returns what is true, and return that."""
    deadline_s = time.monotonic() + limit_s
    while not (answer := condition()):
        assert time.monotonic() < deadline_s, problem
        time.sleep(0.01)
    return answer


def read_records(consumer: Consumer, count: int = 1) -> list[ConsumerRecord]:
    """Return the records of polls until they are so many, or more."""
    records: list[ConsumerRecord] = []
    deadline_s = time.monotonic() + WAIT_S
    while len(records) < count:
        records += consumer.poll(0.5)
        assert time.monotonic() < deadline_s, (len(records), count)
    return records


def read_to_end(consumer: Consumer) -> list[ConsumerRecord]:
    """Return the records up to the ends that its partitions have once they are assigned.

    A poll that returns none says nothing: the group may not be stable, or the machine busy.
    """
    records: list[ConsumerRecord] = []
    deadline_s = time.monotonic() + WAIT_S
    while not consumer.assignment:
        records += consumer.poll(0.1)
        assert time.monotonic() < deadline_s, "no partitions are assigned"
    ends = consumer.end_offsets(consumer.assignment)
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        records += consumer.poll(0.1)
        assert time.monotonic() < deadline_s, (len(records), ends)
    return records


async def until(
    condition: Callable[[], Any], limit_s: float = 300.0, pause_s: float = 0.05
) -> None:
    """Ask after each pause, often of virtual time, until the condition holds."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(pause_s)
