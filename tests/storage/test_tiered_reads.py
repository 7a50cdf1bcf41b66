"""A log whose oldest segments are only in remote storage."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.storage.log.append_info import FetchIsolation, OffsetMovedToTier
from tests.storage.logs import NOW_MS, new_log, put

HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK


def test_an_offset_below_the_local_segments_has_moved_to_the_tier() -> None:
    """The outcome has the limits of the read; below the log's start nothing is there at all."""
    log = new_log()
    for _ in range(30):
        put(log, 2)
    log.update_high_watermark(60)
    log.retire_segments(log.segments.ordered[:2], NOW_MS)
    local_start = log.segments[0].base_offset
    assert 0 == log.log_start_offset < local_start
    for offset in (0, local_start - 1):
        with pytest.raises(OffsetMovedToTier) as moved:
            log.reads.find(offset, 100, HIGH_WATERMARK, min_one_message=True)
        assert moved.value.code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        assert (moved.value.offset, moved.value.max_bytes) == (offset, 100)
        assert moved.value.min_one_message
    assert log.reads.find(local_start, 100, HIGH_WATERMARK, min_one_message=True)[0]
    log.advance_start(2)
    with pytest.raises(Exception, match="we only have log segments from offset 2 to 60") as gone:
        log.reads.find(1, 100, HIGH_WATERMARK, min_one_message=True)
    assert getattr(gone.value, "code", None) is ErrorCode.OFFSET_OUT_OF_RANGE
