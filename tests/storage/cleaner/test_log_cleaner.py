"""Logs that are compacted: which, when, and what is left."""

from __future__ import annotations

from ottla.testing.disk import SimulatedDisk
from tests.storage.cleaner.cleaning import COMPACT, CleanerBed, put_keys, records_of
from tests.storage.sets import make, open_set


def test_the_last_value_of_each_key_is_left() -> None:
    """Values of the active segment are not touched, offsets stay, and a restart reads the same."""
    disk = SimulatedDisk()
    bed = CleanerBed(open_set(disk, config=COMPACT))
    log = make(bed.logs)
    for number in range(60):
        put_keys(log, (b"k%d" % (number % 7), b"v%d" % number))
    before = records_of(log)
    assert bed.clean() == 1
    active = log.segments.active.base_offset
    last = {record.key: record.offset for record in before if record.offset < active}
    expected = [
        record for record in before if record.offset >= active or last[record.key] == record.offset
    ]
    assert records_of(log) == expected
    assert len(expected) < 30
    assert disk.read_file("cleaner-offset-checkpoint") == b"0\n1\na 0 %d\n" % active
    assert bed.clean() == 0
    bed.logs.shutdown()
    bed = CleanerBed(open_set(disk, config=COMPACT))
    assert records_of(make(bed.logs)) == expected
    assert bed.clean() == 0
