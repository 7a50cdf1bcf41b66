"""Bugs of other cleaners, and mistakes in ours that the tests of this folder must notice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.errors import KafkaError
from ottla.records.builder import encode_batch
from ottla.storage.cleaner import cleaner, key_scan
from ottla.storage.cleaner.batch_filter import BatchFilter
from ottla.storage.cleaner.cleaner import MAX_SEGMENTS, Cleaner, SegmentSize, group_segments
from ottla.storage.cleaner.log_cleaner_manager import CleaningProgress
from ottla.testing.disk import SimulatedDisk
from tests.storage.cleaner import test_cleaner_crashes, test_cleaner_model
from tests.storage.cleaner.cleaning import COMPACT, CleanerBed, batches_of, put_keys
from tests.storage.logs import NOW_MS, TOPIC_ID
from tests.storage.sets import A, make, open_set


def _dirty(disk: SimulatedDisk) -> CleanerBed:
    bed = CleanerBed(open_set(disk, config=COMPACT))
    log = make(bed.logs)
    for number in range(60):
        put_keys(log, (b"k%d" % (number % 7), b"v"))
    bed.make_durable()
    return bed


def test_42_a_log_is_cleaned_again_when_its_move_has_ended() -> None:
    """KAFKA-19458: not while it is copied to another directory, and again when that is given up."""
    bed = _dirty(SimulatedDisk())
    log_dir = bed.logs.directories[0]
    bed.logs.futures.create(A, log_dir, topic_id=TOPIC_ID, now_ms=NOW_MS)
    assert bed.choose() is None
    bed.logs.futures.discard(A, now_ms=NOW_MS)
    assert bed.clean() == 1


def test_74_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    """KAFKA-8335: found by its offset; its sequence is known to a log without snapshots."""
    disk = SimulatedDisk()
    bed = CleanerBed(open_set(disk, config=COMPACT))
    log = make(bed.logs)
    batch = encode_batch(
        [(NOW_MS, b"k0", b"v", ())] * 3, producer_id=9, producer_epoch=2, base_sequence=40
    )
    log.writes.append_as_leader(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)
    for number in range(60):
        put_keys(log, (b"k%d" % (number % 7), b"v"))
    bed.clean()
    kept = batches_of(log)[0]
    assert (kept.producer_id, kept.last_sequence, kept.record_count) == (9, 42, 0)
    assert (kept.base_offset, kept.last_offset) == (0, 2)
    bed.logs.shutdown()
    for name in disk.list("a-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"a-0/{name}")
    entry = make(open_set(disk, config=COMPACT)).producer_state.producers[9]
    assert (entry.last_sequence, entry.producer_epoch) == (42, 2)


def test_75_a_group_spans_no_more_offsets_than_an_index_can_say() -> None:
    """KAFKA-5413: empty segments may be joined all the same; sizes and number are bounded."""
    far = 1 << 31

    def groups(*segments: SegmentSize) -> list[int]:
        return group_segments(segments, segment_bytes=100, index_bytes=16)

    assert groups(SegmentSize(0, 10, 40, 8, 8), SegmentSize(10, far, 40, 8, 8)) == [2]
    assert groups(SegmentSize(0, 10, 40, 8, 8), SegmentSize(10, far + 1, 40, 8, 8)) == [1, 1]
    assert groups(SegmentSize(0, 10, 40, 8, 8), SegmentSize(10, far + 1, 0, 0, 0)) == [2]
    assert groups(SegmentSize(0, 10, 60, 8, 8), SegmentSize(10, 20, 41, 8, 8)) == [1, 1]
    assert groups(SegmentSize(0, 10, 1, 8, 9), SegmentSize(10, 20, 1, 8, 8)) == [1, 1]
    many = [SegmentSize(n, n + 1, 0, 0, 0) for n in range(MAX_SEGMENTS + 3)]
    assert groups(*many) == [MAX_SEGMENTS, 3]


# Mistakes of ours: each is planted, and a test of this folder must fail.


def test_a_swap_before_the_sync_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut finds the new segment without its bytes."""
    monkeypatch.setattr(Cleaner, "_make_durable", lambda _self, new: new.become_inactive())
    with pytest.raises((AssertionError, KafkaError)):
        test_cleaner_crashes.test_each_crash_leaves_all_that_must_stay(power=True)


@pytest.mark.parametrize("mistake", ["tombstones", "producers", "aborted"])
def test_records_that_go_too_early_are_noticed(
    mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tombstones at once, the last batches of producers, markers before their data."""
    if mistake == "tombstones":
        monkeypatch.setattr(cleaner, "_LATEST_HORIZON_MS", 0)
    elif mistake == "producers":
        monkeypatch.setattr(BatchFilter, "_must_stay", lambda *_: False)
    else:
        monkeypatch.setattr(Cleaner, "_read_aborted", lambda _self: [])
    with pytest.raises((AssertionError, KeyError)):
        _run_the_model(monkeypatch)


def _run_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(25):
        with monkeypatch.context() as inner:
            test_cleaner_model.test_random_logs_against_a_list(seed, key_scan, inner)


def test_a_pause_between_two_groups_leaves_one_of_them_cleaned() -> None:
    """What was replaced stays, and the next cleaning begins where the last one began."""
    bed = _dirty(SimulatedDisk())
    log = make(bed.logs)
    one = bed.choose()
    assert one is not None
    first = log.segments[0]
    while log.segments[0] is first:
        one.run(1)
        assert bed.cleaner.advance(one, None, NOW_MS) is CleaningProgress.GOES_ON
    log.pause("test")
    assert bed.run(one) is CleaningProgress.ABORTED
    assert bed.logs.cleaner_offsets.get(log) is None
    log.resume("test")
    assert bed.choose() is None, "others go first"
    assert bed.clean() == 1


def test_a_huge_retention_of_tombstones_does_not_overflow() -> None:
    """delete.retention.ms of 2^63-1 keeps them for ever."""
    config = replace(COMPACT, delete_retention_ms=(1 << 63) - 1)
    bed = CleanerBed(open_set(SimulatedDisk(), config=config))
    log = make(bed.logs)
    for number in range(60):
        put_keys(log, (b"k%d" % (number % 7), None if number < 40 else b"v"))
    put_keys(log, (b"gone", None))
    for _ in range(20):
        put_keys(log, (b"k1", b"v"))
    bed.clean()
    bed.clean(1 << 61)
    assert b"gone" in {record.key for batch in batches_of(log) for record in batch.records()}
