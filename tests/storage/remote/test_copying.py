"""The segments of a log that are copied, with a producer snapshot at the end of each."""

from __future__ import annotations

from ottla.storage.remote.copying import next_candidate
from tests.storage.logs import flush, new_log, send


def test_a_missing_snapshot_is_rebuilt() -> None:
    """From the newest before it and the batches after that; the log knows of it then."""
    log = new_log()
    sequence = 0
    while len(log.segments) < 4:
        send(log, 7, sequence)
        sequence += 1
        log.update_high_watermark(log.log_end_offset)
    flush(log)
    for number in (1, 2, 3):
        base_offset = log.segments.base_offsets[number]
        path = log.producer_state.snapshot_path(base_offset)
        expected = log.directory.read_file(path)
        log.directory.remove(path)
        candidate = next_candidate(log, log.segments.base_offsets[number - 1] - 1)
        assert candidate is not None
        assert candidate.end_offset == base_offset
        _, files = candidate.read()
        assert b"".join(files.producer_snapshot.blocks()) == expected
        if number == 2:
            log.directory.remove(path)  # the next one has no snapshot before it
