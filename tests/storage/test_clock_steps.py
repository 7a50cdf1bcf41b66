"""Jumps of the wall clock: detected by the monotonic clock; data is not deleted all at once."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log.config import LogConfig
from ottla.storage.log.retention import SMALLEST_STEP_MS, ClockJumpDetector, ClockStep
from ottla.storage.log_set.log_set import LogSet
from ottla.storage.log_set.retention_check import RetentionCheck
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition
from tests.storage.logs import TOPIC_ID, new_log, put

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
YEAR_MS = 365 * DAY_MS
NOW_MS = 50 * YEAR_MS
ONE_A_SEGMENT = LogConfig(segment_bytes=200, retention_ms=WEEK_MS)


def filled(*timestamps: int, config: LogConfig = ONE_A_SEGMENT) -> PartitionLog:
    """Return a log of one segment for each timestamp, all replicated."""
    log = new_log(config=config)
    for timestamp in timestamps:
        put(log, timestamp=timestamp, now_ms=timestamp)
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) == len(timestamps)
    return log


def test_elapsed_time_is_no_jump() -> None:
    """Both clocks together, a slow correction, a loop held up for an hour: nothing."""
    watch = ClockJumpDetector(NOW_MS, 5)
    for now_ms, monotonic_ms in [
        (NOW_MS + 250, 255),
        (NOW_MS + 250 + SMALLEST_STEP_MS, 256),
        (NOW_MS + HOUR_MS + SMALLEST_STEP_MS, HOUR_MS),
        (NOW_MS, HOUR_MS + 1),
    ]:
        assert not watch.look(now_ms, monotonic_ms)
        assert watch.step is None


@pytest.mark.parametrize("size_ms", [SMALLEST_STEP_MS, HOUR_MS, YEAR_MS])
def test_a_forward_jump_is_reported_once(size_ms: int) -> None:
    """Its size, and the first wall time after it; the next call reports nothing new."""
    watch = ClockJumpDetector(NOW_MS, 5)
    assert watch.look(NOW_MS + 250 + size_ms, 255)
    assert watch.step == ClockStep(size_ms, NOW_MS + size_ms)
    assert not watch.look(NOW_MS + 500 + size_ms, 505)
    assert watch.step == ClockStep(size_ms, NOW_MS + size_ms)
    watch.forget()
    assert watch.step is None


def test_a_jump_must_be_larger_than_the_elapsed_time() -> None:
    """Otherwise older and newer records could not be distinguished."""
    watch = ClockJumpDetector(NOW_MS, 0)
    assert not watch.look(NOW_MS + 3 * HOUR_MS - 1, 2 * HOUR_MS)
    watch = ClockJumpDetector(NOW_MS, 0)
    assert watch.look(NOW_MS + 4 * HOUR_MS, 2 * HOUR_MS)


def test_steps_add_up_and_are_taken_back() -> None:
    """Two ahead are as one; back by one of them leaves the other, back by both leaves none."""
    watch = ClockJumpDetector(NOW_MS, 0)
    assert watch.look(NOW_MS + HOUR_MS, 0)
    assert watch.look(NOW_MS + 3 * HOUR_MS, 0)
    assert watch.step == ClockStep(3 * HOUR_MS, NOW_MS + 3 * HOUR_MS)
    assert not watch.look(NOW_MS + 2 * HOUR_MS, 0)
    assert watch.step == ClockStep(2 * HOUR_MS, NOW_MS + 2 * HOUR_MS)
    assert not watch.look(NOW_MS, 0)
    assert watch.step is None


def test_one_segment_per_check_is_deleted_for_a_jump_alone() -> None:
    """A year ahead: all but the newest would go at once; they go one by one, the newest stays."""
    log = filled(*(NOW_MS + number for number in range(5)))
    step = ClockStep(YEAR_MS, NOW_MS + YEAR_MS)
    now_ms = NOW_MS + YEAR_MS + 1000
    for left in (4, 3, 2, 1):
        assert log.truncation.delete_old_segments(now_ms, step) == 1
        assert log.held_back_count == left
        now_ms += HOUR_MS
    assert log.truncation.delete_old_segments(now_ms, step) == 0
    assert (log.held_back_count, log.log_start_offset) == (1, 4)


def test_segments_old_without_the_jump_are_deleted_at_once() -> None:
    """Three are due by the time that went by, one more by the step; the rest waits."""
    old = [NOW_MS - 2 * WEEK_MS + number for number in range(3)]
    log = filled(*old, *(NOW_MS - number for number in (9, 8, 7, 6)))
    step = ClockStep(YEAR_MS, NOW_MS + YEAR_MS)
    assert log.truncation.delete_old_segments(NOW_MS + YEAR_MS + 1000, step) == 4
    assert log.held_back_count == 3


def test_copied_segments_are_old_by_local_retention() -> None:
    """Those that are old without the jump leave the disk at once, by the limit of this disk."""
    config = LogConfig(
        segment_bytes=200,
        retention_ms=4 * WEEK_MS,
        local_retention_ms=WEEK_MS,
        remote_storage_enable=True,
    )
    old = [NOW_MS - 2 * WEEK_MS + number for number in range(3)]
    log = filled(*old, *(NOW_MS - number for number in (9, 8, 7, 6)), config=config)
    log.copied_to_tier(log.log_end_offset - 1)
    step = ClockStep(YEAR_MS, NOW_MS + YEAR_MS)
    assert log.truncation.delete_old_segments(NOW_MS + YEAR_MS + 1000, step) == 4
    assert log.held_back_count == 3


@pytest.mark.parametrize("old_count", [48, 49, 50, 51])
def test_a_check_of_several_slices_deletes_one_segment_for_the_jump(old_count: int) -> None:
    """As many as a slice may delete were due: the next slice deletes none for the jump again."""
    logs = LogSet(
        [LogDirectory("/d", SimulatedDisk())], config_for=lambda _: ONE_A_SEGMENT, rng=Random(1)
    )
    logs.load(NOW_MS)
    log = logs.get_or_create(TopicPartition("t", 0), topic_id=TOPIC_ID, now_ms=NOW_MS)
    old = [NOW_MS - 2 * WEEK_MS + number for number in range(old_count)]
    for timestamp in (*old, *(NOW_MS - number for number in (9, 8, 7, 6))):
        put(log, timestamp=timestamp, now_ms=timestamp)
    log.update_high_watermark(log.log_end_offset)
    step = ClockStep(YEAR_MS, NOW_MS + YEAR_MS)
    check = RetentionCheck(logs)
    while check.step(NOW_MS + YEAR_MS + 1000, step, 1):
        pass
    assert check.deleted == old_count + 1
    assert logs.is_holding_back


def test_the_step_has_no_effect_on_what_came_after_it() -> None:
    """Once what was there before is gone, segments go by their own age, however many."""
    after = NOW_MS + YEAR_MS
    log = filled(NOW_MS, *(after + number for number in range(5)))
    step = ClockStep(YEAR_MS, after)
    assert log.truncation.delete_old_segments(after + 2 * WEEK_MS, step) == 6
    assert log.held_back_count == 0


def test_segments_are_held_at_most_twice_their_retention() -> None:
    """When retention.ms has gone by since the step, all goes that would have gone without it."""
    log = filled(*(NOW_MS + number for number in range(5)))
    step = ClockStep(YEAR_MS, NOW_MS + YEAR_MS)
    assert log.truncation.delete_old_segments(NOW_MS + YEAR_MS + WEEK_MS + 5, step) == 5
    assert log.held_back_count == 0


def test_a_small_jump_holds_no_segment_back() -> None:
    """What is not due by the new time either is no concern of the step."""
    log = filled(*(NOW_MS + number for number in range(5)))
    assert (
        log.truncation.delete_old_segments(NOW_MS + HOUR_MS, ClockStep(HOUR_MS, NOW_MS + HOUR_MS))
        == 0
    )
    assert log.held_back_count == 0


def test_size_and_start_give_up_segments_whatever_the_clock_says() -> None:
    """The disk is not filled for a clock: retention.bytes and DeleteRecords act in full."""
    step = ClockStep(YEAR_MS, NOW_MS + YEAR_MS)
    now_ms = NOW_MS + YEAR_MS + 1000
    timestamps = [NOW_MS + number for number in range(6)]
    limited = LogConfig(segment_bytes=200, retention_ms=WEEK_MS, retention_bytes=500)
    by_size = filled(*timestamps, config=limited)
    assert by_size.truncation.delete_old_segments(now_ms, step) == 3
    assert by_size.held_back_count == 3
    by_start = filled(*timestamps)
    by_start.truncation.delete_records_before(4)
    assert by_start.truncation.delete_old_segments(now_ms, step) == 4
    assert by_start.held_back_count == 2


def test_a_set_of_logs_tells_whether_any_is_held_back() -> None:
    """The step may be forgotten when nothing of any log waits for it."""
    log_dir = LogDirectory("/d", SimulatedDisk())
    logs = LogSet([log_dir], config_for=lambda _: ONE_A_SEGMENT, rng=Random(1))
    logs.load(NOW_MS)
    for topic, count in (("a", 1), ("b", 4)):
        log = logs.get_or_create(TopicPartition(topic, 0), topic_id=TOPIC_ID, now_ms=NOW_MS)
        for _ in range(count):
            put(log, timestamp=NOW_MS, now_ms=NOW_MS)
        log.update_high_watermark(count)
    step = ClockStep(YEAR_MS, NOW_MS + YEAR_MS)
    check = RetentionCheck(logs)
    assert not check.step(NOW_MS + YEAR_MS + 1000, step)
    assert (check.deleted, logs.is_holding_back) == (1, True)
    assert not RetentionCheck(logs).step(NOW_MS + 2000)
    assert not logs.is_holding_back
