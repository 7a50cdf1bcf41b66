"""Checks of the history of clients and of the replicas' files, for `scripts/kill_cluster.py`."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.storage.batches import whole_batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Lost(AssertionError):
    """A violated guarantee, in one line."""


class Sent:
    """One record: when it was sent and acknowledged, and how the producer was answered."""

    def __init__(self, partition: int, producer: int, floor: int) -> None:
        self.partition = partition
        self.producer = producer
        self.floor = floor
        """The highest offset of the partition that was acknowledged when the record was sent."""
        self.offset: int | None = None
        self.error: str | None = None
        self.sent_s = time.time()
        self.answered_s: float | None = None

    def line(self, number: int) -> dict[str, Any]:
        """Return the record as an entry of the history."""
        outcome = "unknown" if self.offset is None else "ok"
        return {"number": number, "outcome": outcome} | vars(self)


class Seen(NamedTuple):
    """A record that the consumer received."""

    partition: int
    offset: int
    number: int


def check_acknowledged(sent: Sequence[Sent], logs: Mapping[int, Sequence[int]]) -> None:
    """Check that acknowledged records are at their offsets, after those acknowledged before."""
    for number, one in enumerate(sent):
        if one.offset is None:
            continue
        log = logs[one.partition]
        where = f"{one.partition}/{one.offset}"
        if one.offset >= len(log):
            raise Lost(f"record {number} was acknowledged at {where}; the log ends at {len(log)}")
        if log[one.offset] != number:
            raise Lost(f"record {number} was acknowledged at {where}; {log[one.offset]} is there")
        if one.offset <= one.floor:
            raise Lost(f"record {number} is at {where}; {one.floor} was acknowledged before")


def check_order(sent: Sequence[Sent], logs: Mapping[int, Sequence[int]]) -> None:
    """Check that no record exists twice and that each producer's are in the order it sent them."""
    found: set[int] = set()
    for partition, log in logs.items():
        last: dict[int, int] = {}
        for offset, number in enumerate(log):
            if number >= len(sent) or sent[number].partition != partition:
                raise Lost(f"{partition}/{offset}: record {number} was not sent there")
            if number in found:
                raise Lost(f"{partition}/{offset}: record {number} exists twice")
            found.add(number)
            before = last.get(sent[number].producer, -1)
            if number < before:
                raise Lost(f"{partition}/{offset}: record {number} comes after {before}")
            last[sent[number].producer] = number


def check_consumer(seen: Sequence[Seen], logs: Mapping[int, Sequence[int]]) -> None:
    """Check that the consumer saw every offset once, in order, and only records that are there."""
    next_offsets: Counter[int] = Counter()
    for one in seen:
        where = f"{one.partition}/{one.offset}"
        if one.offset != next_offsets[one.partition]:
            raise Lost(f"the consumer saw {where}, expected {next_offsets[one.partition]}")
        next_offsets[one.partition] += 1
        log = logs[one.partition]
        if one.offset >= len(log) or log[one.offset] != one.number:
            raise Lost(f"the consumer saw record {one.number} at {where}, where it is not")


def check_replicas(partition: int, replicas: Mapping[int, bytes], high_watermark: int) -> int:
    """Check that replicas are equal below the high watermark; return the number of batches."""
    batches = {}
    for node, data in replicas.items():
        batches[node] = [
            (one.base_offset, one.last_offset, data[one.position : one.position + one.size])
            for one in whole_batches(data)
            if one.base_offset < high_watermark
        ]
        end = batches[node][-1][1] + 1 if batches[node] else 0
        if end < high_watermark:
            raise Lost(
                f"partition {partition}: the log of node {node} ends at {end}, "
                f"below the high watermark {high_watermark}"
            )
    (first, expected), *others = batches.items()
    for node, found in others:
        for one, other in zip(expected, found, strict=False):
            if one != other:
                raise Lost(
                    f"partition {partition}: nodes {first} and {node} differ in the batches "
                    f"at {one[0]}-{one[1]} and {other[0]}-{other[1]}"
                )
    return len(expected)
