"""A cleaning that is cut at each of its calls to the disk, by a kill and by a power cut."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from ottla.records.builder import encode_batch
from ottla.storage.cleaner.log_cleaner_manager import CleaningProgress
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from tests.storage.cleaner.cleaning import COMPACT, CleanerBed, batches_of, records_of
from tests.storage.logs import NOW_MS, end
from tests.storage.sets import make, open_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.records.record import Record
    from ottla.storage.log.partition_log import PartitionLog

LATER_MS = NOW_MS + 10 * COMPACT.delete_retention_ms
STEP = int(os.environ.get("OTTLA_CRASH_STEP", "11"))
"""1 for a crash at every call, as CI does by `scripts/simulate --crashes`."""


def _send(log: PartitionLog, number: int) -> None:
    """Append a batch of one of three producers, or of none; the third's is aborted."""
    producer_id = number % 4 - 1
    rows = [
        (NOW_MS + number, b"k%d" % (number % 9 // 2), bytes(60) if number % 7 else None, ()),
        (NOW_MS + number, b"k%d" % (number % 5), b"%d" % number, ()),
    ]
    batch = encode_batch(
        rows,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=number // 4 * 2 if producer_id >= 0 else -1,
        transactional=producer_id == 2,
    )
    log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    if producer_id == 2:
        end(log, 2, commit=number % 8 == 3)
    log.update_high_watermark(log.log_end_offset)


def _written(seed: int) -> tuple[SimulatedDisk, CleanerBed]:
    """Return a durable log that was cleaned once and has new records since."""
    disk = SimulatedDisk(seed)
    bed = CleanerBed(open_set(disk, config=COMPACT))
    log = make(bed.logs)
    for number in range(16):
        _send(log, number)
    bed.clean()
    for number in range(16, 40):
        _send(log, number)
    bed.make_durable()
    return disk, bed


def _clean(bed: CleanerBed) -> None:
    cleaning = bed.choose(LATER_MS)
    assert cleaning is not None
    assert bed.run(cleaning, LATER_MS) is CleaningProgress.CLEANED
    bed.make_durable(LATER_MS)


def _state(bed: CleanerBed) -> tuple[list[Record], dict[int, tuple[int, int]]]:
    log = make(bed.logs)
    producers = log.producer_state.producers
    return records_of(log), {
        key: (one.last_sequence, one.last_data_offset) for key, one in producers.items()
    }


def _last_values(records: list[Record], aborted: set[int]) -> dict[bytes | None, bytes | None]:
    found = {one.key: one.value for one in records if one.offset not in aborted}
    return {key: value for key, value in found.items() if value is not None}


def _aborted(log: PartitionLog) -> set[int]:
    return {
        offset
        for segment in log.segments
        for one in segment.transaction_index.entries()
        for batch in batches_of(log)
        if batch.producer_id == one.producer_id
        for offset in range(batch.base_offset, batch.last_offset + 1)
        if one.first_offset <= offset <= one.last_offset
    }


@pytest.mark.parametrize("power", [False, True])
def test_each_crash_leaves_all_that_must_stay(power: bool) -> None:  # noqa: FBT001 - a parameter
    """Every record that is found was there, the last values are the same, and so are the producers.

    The next cleaning makes the same of it.
    """
    disk, bed = _written(0)
    before, producers = _state(bed)
    values = _last_values(before, _aborted(make(bed.logs)))
    end_offset = make(bed.logs).log_end_offset
    first_call = disk.calls
    _clean(bed)
    count = disk.calls - first_call
    after, _ = _state(bed)
    assert len(after) < len(before) / 2
    assert _last_values(after, _aborted(make(bed.logs))) == values
    for number in range(1, 500, STEP):
        disk, bed = _written(number)
        disk.crash_at(disk.calls + number)
        try:
            _clean(bed)
        except SimulatedCrash:
            disk.crash() if power else disk.kill()
        else:
            break
        bed = CleanerBed(open_set(disk, config=COMPACT))
        log = make(bed.logs)
        found, found_producers = _state(bed)
        assert log.log_end_offset == end_offset, number
        assert {*after} <= {*found} <= {*before}, number
        assert found_producers == producers, number
        assert _last_values(found, _aborted(log)) == values
        assert not [name for name in disk.list("a-0") if name.endswith((".cleaned", ".swap"))]
        log.update_high_watermark(log.log_end_offset)
        bed.clean(LATER_MS)
        assert _last_values(records_of(log), _aborted(log)) == values
        assert len(records_of(log)) <= len(found)
    else:
        pytest.fail("the cleaning never ended")
    assert number > count > 60
    print(f" {len(range(1, number, STEP))} crashes at {count} calls")


def test_a_disk_without_space_leaves_the_log_as_it_is() -> None:
    """At each call: no directory goes offline, no file is left, and it is cleaned later."""
    for number in range(1, 300):
        disk, bed = _written(number)
        log = make(bed.logs)
        before = records_of(log)
        disk.fail(_is_write(disk, number), errno.ENOSPC)
        cleaning = bed.choose(LATER_MS)
        assert cleaning is not None
        if bed.run(cleaning, LATER_MS) is CleaningProgress.CLEANED:
            break
        assert bed.logs.online_directories
        assert not [name for name in disk.list("a-0") if name.endswith((".cleaned", ".swap"))]
        assert {*records_of(log)} <= {*before}
        disk.heal()
        assert bed.choose(LATER_MS) is None, "others go first"
        assert bed.clean(LATER_MS) == 1
    assert number > 10


def _is_write(disk: SimulatedDisk, number: int) -> Callable[[object], bool]:
    """Return what matches the call of that number among those that take space."""
    first = disk.calls
    count = 0

    def matches(call: object) -> bool:
        nonlocal count
        kind = getattr(call, "kind", "")
        if getattr(call, "number", 0) > first and kind in ("append", "write", "create"):
            count += 1
            return count == number
        return False

    return matches
