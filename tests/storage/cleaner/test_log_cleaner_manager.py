"""Logs that are compacted: which, when, and what ends a cleaning."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.records.builder import encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.storage.cleaner.cleaner import CleanerLimits
from ottla.storage.cleaner.log_cleaner_manager import CleaningProgress
from ottla.storage.directories.checkpoints import decode_offsets
from ottla.storage.layout import CLEANER_CHECKPOINT
from ottla.storage.log.partition_log import MOVE
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.cleaner.cleaning import (
    COMPACT,
    CleanerBed,
    batches_of,
    pairs_of,
    put_keys,
    records_of,
)
from tests.storage.logs import NOW_MS, TOPIC_ID
from tests.storage.sets import A, drain, finish, make, open_set

if TYPE_CHECKING:
    from ottla.storage.cleaner.cleaner import Cleaner
    from ottla.storage.log.config import LogConfig
    from ottla.storage.log.partition_log import PartitionLog

B = TopicPartition("b", 0)
KEYS = 7


def filled(
    disk: SimulatedDisk | None = None, *, config: LogConfig = COMPACT, count: int = 60
) -> tuple[CleanerBed, PartitionLog]:
    """Return a durable log of some segments with few keys."""
    bed = CleanerBed(open_set(disk or SimulatedDisk(), config=config))
    log = make(bed.logs)
    fill(log, count)
    bed.make_durable()
    return bed, log


def fill(log: PartitionLog, count: int, now_ms: int = NOW_MS) -> None:
    """Append records, each with one of few keys."""
    for number in range(count):
        put_keys(log, (b"k%d" % (number % KEYS), b"v%d" % number), now_ms=now_ms)


def begun(bed: CleanerBed) -> Cleaner:
    """Begin a cleaning and run its first slices, up to a new segment that is not durable."""
    cleaning = bed.choose()
    assert cleaning is not None
    while not leftovers(bed):
        assert cleaning.run(1) >= 0
        assert bed.cleaner.advance(cleaning, None, NOW_MS) is CleaningProgress.GOES_ON
    return cleaning


def leftovers(bed: CleanerBed) -> list[str]:
    """Return the files of unfinished segments."""
    directory = bed.logs.directories[0].directory
    return [
        path
        for name in directory.list()
        if directory.is_directory(name)
        for path in directory.list(name)
        if path.endswith((".cleaned", ".swap"))
    ]


def test_the_last_value_of_each_key_is_left() -> None:
    """Values of the active segment are not touched, offsets stay, and a restart reads the same."""
    disk = SimulatedDisk()
    bed, log = filled(disk)
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


def test_records_without_a_key_go() -> None:
    """A topic that had another policy may have some; Kafka drops them, too."""
    bed, log = filled(config=replace(COMPACT, cleanup_policy=("delete",)), count=1)
    for _ in range(30):
        put_keys(log, (None, b"value"))
    log.reconfigure(COMPACT)
    bed.clean()
    active = log.segments.active.base_offset
    assert [one.key for one in records_of(log) if one.offset < active] == [b"k0"]


def test_the_dirtiest_log_is_first() -> None:
    """By the dirty share of its bytes, and only above min.cleanable.dirty.ratio."""
    bed, log = filled(config=replace(COMPACT, min_cleanable_dirty_ratio=0.5))
    other = make(bed.logs, B)
    fill(other, 60)
    assert bed.clean() == 2
    fill(log, 20)
    fill(other, 120)
    bed.make_durable()
    cleaning = bed.choose()
    assert cleaning is not None
    assert cleaning.candidate.log is other
    assert cleaning.candidate.ratio > 0.8
    bed.run(cleaning)
    assert bed.cleaner.max_ratio == cleaning.candidate.ratio
    bed.clean()
    fill(log, 10)
    bed.make_durable()
    assert bed.choose() is None, "too little is dirty"


def test_the_lags_hold_back_and_hurry() -> None:
    """min.compaction.lag.ms keeps young segments, max.compaction.lag.ms overrules the ratio."""
    config = replace(COMPACT, min_compaction_lag_ms=500, min_cleanable_dirty_ratio=0.0)
    bed, log = filled(config=config)
    assert bed.choose(NOW_MS + 400) is None
    cleaning = bed.choose(NOW_MS + 600)
    assert cleaning is not None
    assert cleaning.candidate.first_uncleanable == log.segments.active.base_offset
    config = replace(COMPACT, max_compaction_lag_ms=500, min_cleanable_dirty_ratio=1.0)
    bed, log = filled(config=config)
    assert bed.choose(NOW_MS + 400) is None
    cleaning = bed.choose(NOW_MS + 600)
    assert cleaning is not None
    assert cleaning.candidate.delay_ms == 100
    assert bed.cleaner.max_delay_ms == 100


def test_an_open_transaction_holds_back() -> None:
    """Nothing at or above the last stable offset is cleaned."""
    bed, log = filled(count=20)
    batch = encode_batch(
        [(NOW_MS, b"k0", b"pending", ())],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    fill(log, 40)
    bed.clean()
    assert log.last_stable_offset == 20
    offset = bed.logs.cleaner_offsets.get(log)
    assert offset is not None
    assert offset <= 20
    marker = encode_end_txn_marker(
        commit=True, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp=NOW_MS
    )
    log.writes.append_as_leader(
        memoryview(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
    )
    log.update_high_watermark(log.log_end_offset)
    assert bed.clean() == 1
    assert (b"k0", b"pending") not in pairs_of(log)


def test_what_is_not_durable_is_not_cleaned() -> None:
    """A recovery from the stored recovery point takes gaps for lost records: it is stored first."""
    bed = CleanerBed(open_set(SimulatedDisk(), config=COMPACT))
    log = make(bed.logs)
    fill(log, 60)
    assert bed.choose() is None
    drain(bed.logs)
    assert log.recovery_point == log.segments.active.base_offset
    assert bed.choose() is None, "the file has no recovery point"
    drain(bed.logs)
    cleaning = bed.choose()
    assert cleaning is not None
    assert cleaning.candidate.first_uncleanable == log.segments.active.base_offset


def test_a_small_map_takes_several_cleanings() -> None:
    """Each goes as far as the map holds keys; the last value of each key is left all the same."""
    bed, log = filled()
    bed.limits = CleanerLimits(24 * 4, 0.9, 1 << 16)
    cleaning = bed.choose()
    assert cleaning is not None
    bed.run(cleaning)
    assert cleaning.end_offset == 3
    assert cleaning.stats.map_utilization == 0.75
    assert bed.clean() > 3
    active = log.segments.active.base_offset
    keys = [one.key for one in records_of(log) if one.offset < active]
    assert len(keys) == len({*keys})


@pytest.mark.parametrize("step", ["truncate", "pause", "delete", "copy", "retention"])
def test_what_ends_a_cleaning(step: str) -> None:
    """A truncation, a pause, a deletion, a move, retention: nothing is changed, no file is left."""
    policy = ("compact", "delete")
    bed, log = filled(SimulatedDisk(), config=replace(COMPACT, cleanup_policy=policy))
    cleaning = begun(bed)
    if step == "truncate":
        log.truncation.truncate_to(30, now_ms=NOW_MS)
    elif step == "pause":
        log.pause(MOVE)
    elif step == "delete":
        bed.logs.delete(A, now_ms=NOW_MS)
        bed.make_durable()
    elif step == "copy":
        log_dir = bed.logs.directories[0]
        bed.logs.futures.create(A, log_dir, topic_id=TOPIC_ID, now_ms=NOW_MS)
    else:
        log.truncation.delete_records_before(20)
        assert log.truncation.delete_old_segments(NOW_MS)
        bed.make_durable()
    left = [] if step == "delete" else pairs_of(log)
    assert bed.run(cleaning) is CleaningProgress.ABORTED
    assert leftovers(bed) == []
    assert bed.logs.online_directories
    assert not bed.cleaner.uncleanable
    if step != "delete":
        assert pairs_of(log) == left
        assert bed.logs.cleaner_offsets.get(log) is None


def test_a_truncation_makes_dirty_what_is_written_again() -> None:
    """The checkpoint follows it down; a restart does not believe one above the log's end."""
    disk = SimulatedDisk()
    bed, log = filled(disk)
    bed.clean()
    log.truncation.truncate_to(30, now_ms=NOW_MS)
    bed.make_durable()
    offset = bed.logs.cleaner_offsets.get(log)
    assert offset is not None
    assert 20 < offset <= 30
    assert decode_offsets(disk.read_file(CLEANER_CHECKPOINT)) == {A: offset}
    fill(log, 40)
    assert bed.clean() == 1
    active = log.segments.active.base_offset
    keys = [one.key for one in records_of(log) if one.offset < active]
    assert len(keys) == len({*keys})


@pytest.mark.parametrize("clean", [False, True])
def test_a_truncation_into_a_gap_keeps_the_end(clean: bool) -> None:  # noqa: FBT001 - a parameter
    """The log ends there also after a restart, and grows from there."""
    disk = SimulatedDisk()
    bed, log = filled(disk, count=100)
    bed.clean()
    target = 20
    assert not any(10 < one.last_offset < 30 for one in batches_of(log))
    log.truncation.truncate_to(target, now_ms=NOW_MS)
    bed.make_durable()
    assert log.log_end_offset == target
    if clean:
        bed.logs.shutdown()
    else:
        disk.crash()
    bed = CleanerBed(open_set(disk, config=COMPACT))
    log = make(bed.logs)
    assert log.log_end_offset == target
    put_keys(log, (b"next", b"value"))
    assert records_of(log)[-1].offset == target


def test_a_deleted_topic_leaves_no_checkpoint() -> None:
    """Its successor of the same name is dirty from its start."""
    disk = SimulatedDisk()
    bed, _ = filled(disk)
    bed.clean()
    bed.logs.delete(A, now_ms=NOW_MS)
    bed.make_durable()
    assert decode_offsets(disk.read_file(CLEANER_CHECKPOINT)) == {}
    log = make(bed.logs, A)
    fill(log, 60)
    assert bed.logs.cleaner_offsets.get(log) is None
    assert bed.clean() == 1


def test_a_moved_replica_is_as_clean_as_before() -> None:
    """The checkpoint of its new directory has it, that of the old one does not."""
    disks = SimulatedDisk(1), SimulatedDisk(2)
    bed = CleanerBed(open_set(*disks, config=COMPACT))
    log = make(bed.logs)
    fill(log, 60)
    bed.clean()
    offset = bed.logs.cleaner_offsets.get(log)
    first = bed.logs.log_dir_of(A)
    target = next(one for one in bed.logs.directories if one is not first)
    future = bed.logs.futures.create(A, target, topic_id=TOPIC_ID, now_ms=NOW_MS)
    for batch in batches_of(log):
        future.writes.append_as_follower(batch.buffer, leader_epoch=0, now_ms=NOW_MS)
    assert bed.logs.futures.promote(A, now_ms=NOW_MS) is future
    bed.make_durable()
    assert bed.logs.cleaner_offsets.get(future) == offset
    stored = {one: one.read_offsets(CLEANER_CHECKPOINT) for one in bed.logs.directories}
    assert stored == {first: {}, target: {A: offset}}
    cleaning = bed.choose()
    assert cleaning is None or cleaning.candidate.first_dirty == offset


def test_a_checkpoint_waits_until_the_names_are_durable() -> None:
    """A power cut that brings back the old segments must not leave them taken for clean."""
    disk = SimulatedDisk()
    bed, _ = filled(disk)
    cleaning = bed.choose()
    assert cleaning is not None
    bed.run(cleaning)
    assert bed.cleaner.take_jobs() == []
    drain(bed.logs)
    finish(bed.cleaner.take_jobs())
    assert decode_offsets(disk.read_file(CLEANER_CHECKPOINT)) == {A: cleaning.end_offset}


def test_a_log_whose_policy_changed_still_opens() -> None:
    """Also after a crash: its gaps are no lost records."""
    for recovers in (False, True):
        disk = SimulatedDisk()
        bed, log = filled(disk, count=200)
        bed.clean()
        left = pairs_of(log)
        if recovers:
            disk.crash()
        else:
            bed.logs.shutdown()
        config = replace(COMPACT, cleanup_policy=("delete",))
        log = make(open_set(disk, config=config))
        assert pairs_of(log) == left


# Failures


def _damage(disk: SimulatedDisk, log: PartitionLog) -> None:
    """Change a byte of a record in the second segment."""
    path = log.segments[1].path(".log")
    position = log.segments[1].size - 1
    file = disk.open(path)
    file.write_at(position, bytes([file.read(position, 1)[0] ^ 1]))


def test_a_damaged_batch_makes_a_log_uncleanable(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, counted, and nothing of the log is changed; others are cleaned."""
    disk = SimulatedDisk()
    bed, log = filled(disk)
    other = make(bed.logs, B)
    fill(other, 60)
    _damage(disk, log)
    bed.make_durable()
    before = log.size_bytes, log.segments.base_offsets
    outcomes = []
    while (cleaning := bed.choose()) is not None:
        outcomes.append(bed.run(cleaning))
    assert sorted(outcomes, key=str) == [CleaningProgress.ABORTED, CleaningProgress.CLEANED]
    assert (log.size_bytes, log.segments.base_offsets) == before
    assert leftovers(bed) == []
    sizes = bed.cleaner.uncleanable_in(bed.logs.directories[0])
    assert sizes == [sum(segment.size for segment in log.segments.ordered[:-1])]
    assert caplog.text.count("a-0 cannot be cleaned") == 1
    bed.logs.delete(A, now_ms=NOW_MS)
    assert bed.cleaner.uncleanable_in(bed.logs.directories[0]) == []


def test_a_batch_that_does_not_end_is_damage() -> None:
    """A length beyond the file's end is not read for ever."""
    disk = SimulatedDisk()
    bed, log = filled(disk)
    disk.open(log.segments[1].path(".log")).write_at(8, (1 << 30).to_bytes(4, "big"))
    cleaning = bed.choose()
    assert cleaning is not None
    assert bed.run(cleaning) is CleaningProgress.ABORTED
    assert log in bed.cleaner.uncleanable


def test_a_disk_that_cannot_be_read_goes_offline() -> None:
    """As for any other error of the disk."""
    disk = SimulatedDisk()
    bed, _ = filled(disk)
    cleaning = bed.choose()
    assert cleaning is not None
    disk.fail(lambda call: call.kind == "read", errno.EIO)
    assert bed.run(cleaning) is CleaningProgress.ABORTED
    assert bed.logs.online_directories == []
