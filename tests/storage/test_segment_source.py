"""Readers see segments through one source: others may stand before the local ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.records.batches import iterate_batches
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.timestamp_reads import place_of_timestamp
from ottla.storage.segments.segment import Segment
from ottla.testing.disk import SimulatedDisk
from tests.storage.logs import NOW_MS, SMALL, content, new_log, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.log.partition_log import PartitionLog


class Joined:
    """The segments of another directory before those of a log."""

    def __init__(self, first: Sequence[Segment], log: PartitionLog) -> None:
        self._log = log
        self._first = list(first)

    @property
    def ordered(self) -> list[Segment]:
        """All segments."""
        return [*self._first, *self._log.segments]

    @property
    def base_offsets(self) -> list[int]:
        """Their base offsets."""
        return [segment.base_offset for segment in self.ordered]

    def end_of(self, number: int, log_end_offset: int) -> int:
        """Return the offset after the last one of a segment."""
        return [*self.base_offsets, log_end_offset][number + 1]


@pytest.fixture
def log() -> PartitionLog:
    """Return a log of which the two oldest segments lie elsewhere."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(30):
        put(log, 2, timestamp=NOW_MS + number * 10)
    log.update_high_watermark(60)
    assert len(log.segments) > 4
    disk.make("elsewhere")
    moved = log.segments.ordered[:2]
    for segment in moved:
        for suffix in (".log", ".index", ".timeindex"):
            name = f"{segment.base_offset:020d}{suffix}"
            if disk.exists(f"t-0/{name}"):
                disk.write_file_atomically(f"elsewhere/{name}", disk.read_file(f"t-0/{name}"))
    copies = [
        Segment.open(disk, "elsewhere", segment.base_offset, config=SMALL, now_ms=NOW_MS)
        for segment in moved
    ]
    log.retire_segments(moved, NOW_MS)
    assert log.log_start_offset == 0
    log.readable = Joined(copies, log)
    return log


def test_reads_go_on_over_the_border(log: PartitionLog) -> None:
    """From the first offset to the end, each read from one segment."""
    offset, directories = 0, []
    while offset < 60:
        fetched = log.reads.read(offset, 1 << 20, FetchIsolation.TXN_COMMITTED)
        directories.append("t-0" if offset >= log.segments[0].base_offset else "elsewhere")
        *_, last = iterate_batches(memoryview(content(fetched.records)))
        offset = last.last_offset + 1
    assert directories[:3] == ["elsewhere", "elsewhere", "t-0"]


def test_searches_by_time_begin_before_the_border(log: PartitionLog) -> None:
    """Each time is found, in a worker too; the newest record is that of a local segment."""
    for number in range(30):
        job = place_of_timestamp(log, NOW_MS + number * 10)
        if job is not None:
            job()
        found = log.reads.offset_for_timestamp(NOW_MS + number * 10)
        assert found is not None
        assert found.offset == number * 2
    newest = log.reads.offset_for_timestamp(-3)
    assert newest is not None
    assert newest.offset == 58
