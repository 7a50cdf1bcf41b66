"""Which remote segments a leader deletes, and what leaves the disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.storage.log.config import LogConfig
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.storage.log.retention import ClockStep
from ottla.storage.remote.partition_segments import PartitionSegments
from ottla.storage.remote.retention import LogPosition, expired_segments
from ottla.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate
from ottla.types import Uuid

_COPIED, _DELETING = SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED
LOG = LogPosition(0, 60, 50, [(0, 0)])
_TIERED: dict[str, int] = {"remote_storage_enable": True}
KEPT = LogConfig(remote_storage_enable=True, retention_ms=-1)


def table_of(*states: SegmentState) -> PartitionSegments:
    """Return segments of ten offsets and a hundred bytes each, a second apart."""
    table = PartitionSegments()
    for number, state in enumerate(states):
        start = number * 10
        segment = RemoteSegment(
            topic_id=Uuid(),
            topic="t",
            partition=0,
            segment_id=Uuid((number + 1).to_bytes(16)),
            start_offset=start,
            end_offset=start + 9,
            leader_epochs=((0, start),),
            size_bytes=100,
            max_timestamp_ms=number * 1000,
            broker_id=1,
            event_timestamp_ms=0,
            state=SegmentState.COPY_SEGMENT_STARTED,
        )
        assert table.apply(segment)
        for following in SegmentState:
            if SegmentState.COPY_SEGMENT_STARTED < following <= state:
                update = SegmentUpdate(
                    topic_id=Uuid(),
                    topic="t",
                    partition=0,
                    segment_id=segment.segment_id,
                    broker_id=1,
                    event_timestamp_ms=0,
                    state=following,
                )
                assert table.apply(update)
    return table


@pytest.mark.parametrize(
    ("config", "log", "expired", "start_offset"),
    [
        (KEPT, LOG, [], 0),
        (replace(KEPT, retention_ms=8000), LOG, [0, 10], 20),  # older than 2,000 at 10,000
        (replace(KEPT, retention_bytes=250), LOG, [0, 10], 20),  # of 450: whole segments alone
        (replace(KEPT, retention_bytes=350), LOG, [0], 10),
        (replace(KEPT, retention_bytes=351), LOG, [], 0),
        (replace(KEPT, retention_bytes=0, cleanup_policy=()), LOG, [], 0),
        (KEPT, LOG._replace(start_offset=25), [0, 10], 25),  # DeleteRecords
        (KEPT, LOG._replace(lineage=[(1, 0)]), [0, 10, 20, 30], 0),  # left by an older leader
        (KEPT, LOG._replace(lineage=[]), [], 0),
    ],
)
def test_expiry(config: LogConfig, log: LogPosition, expired: list[int], start_offset: int) -> None:
    """By time, size and start, oldest first; the log's start moves behind them."""
    found, start, _ = expired_segments(table_of(*[_COPIED] * 4), log, config, 10_000)
    assert [one.start_offset for one in found] == expired
    assert start == start_offset


@pytest.mark.parametrize(
    ("step", "expired"),
    [
        (None, [0, 10, 20, 30]),
        (ClockStep(100_000, 103_000), [0]),  # all are a few seconds old
        (ClockStep(94_000, 103_000), [0, 10, 20]),  # two are old anyway
        (ClockStep(100_000, 1000), [0, 10, 20, 30]),  # all but one were written after the jump
    ],
)
def test_a_clock_that_jumps_deletes_one_segment_at_a_time(
    step: ClockStep | None, expired: list[int]
) -> None:
    """The disk does the same; what is too large goes by its size all the same."""
    config = replace(KEPT, retention_ms=8000)
    found, *_ = expired_segments(table_of(*[_COPIED] * 4), LOG, config, 103_500, step)
    assert [one.start_offset for one in found] == expired
    config = replace(config, retention_bytes=0)
    found, *_ = expired_segments(table_of(*[_COPIED] * 4), LOG, config, 103_500, step)
    assert len(found) == 4


def test_unfinished_work_is_finished() -> None:
    """Deletions are repeated; an abandoned copy counts nothing and goes below the start."""
    started = SegmentState.COPY_SEGMENT_STARTED
    table = table_of(_DELETING, started, _COPIED)
    found, start, _ = expired_segments(table, LOG, replace(KEPT, retention_bytes=150), 0)
    assert ([one.start_offset for one in found], start) == ([0], 0)
    found, start, _ = expired_segments(table, LOG, replace(KEPT, retention_bytes=50), 0)
    assert [one.start_offset for one in found] == [20, 0, 10]
    assert start == 30


@pytest.mark.parametrize(
    ("given", "ms", "size"),
    [
        ({}, 700, 70),
        (_TIERED, 700, 70),
        ({**_TIERED, "local_retention_ms": 5, "local_retention_bytes": 6}, 5, 6),
        ({"local_retention_ms": 5}, 700, 70),
        ({**_TIERED, "local_retention_ms": 5, "remote_log_copy_disable": True}, 700, 70),
    ],
)
def test_limits_of_the_disk(given: dict[str, int], ms: int, size: int) -> None:
    """local.retention.* limits logs that are copied, unless it follows retention.*."""
    config = replace(LogConfig(retention_ms=700, retention_bytes=70), **given)  # type: ignore[arg-type]
    assert (config.disk_retention_ms, config.disk_retention_bytes) == (ms, size)


def test_an_empty_cleanup_policy_lets_copied_segments_leave_the_disk() -> None:
    """They are kept in the tier for ever."""
    empty = LogConfig(cleanup_policy=())
    assert not empty.deletes_by_retention
    assert replace(empty, remote_storage_enable=True).deletes_by_retention


def test_epochs_of_a_range_begin_in_it() -> None:
    """A segment's first epoch begins where the segment does; the lineage as a whole does not."""
    epochs = LeaderEpochs([EpochEntry(0, 4), EpochEntry(2, 10), EpochEntry(5, 20)])
    assert epochs.between(6, 15) == ((0, 6), (2, 10))
    assert epochs.between(10, 20) == ((2, 10),)
    assert epochs.between(-1, 21) == ((0, 4), (2, 10), (5, 20))
