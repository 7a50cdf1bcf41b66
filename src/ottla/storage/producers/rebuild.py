"""Producer state rebuilt from the newest snapshot and the batches after it.

It takes a second for a million batches: at start it runs before a log is served, after a truncation
in the worker that flushes the truncated log.
Kafka: UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.batches import walk_file
from ottla.storage.producers.update import replay_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory, File
    from ottla.storage.producers.entry import ProducerEntry
    from ottla.storage.producers.state import PartitionProducers


class SegmentFile(NamedTuple):
    """A segment's batches, for a reader with a file object of its own."""

    base_offset: int
    path: str
    size: int


class ProducerRebuild:
    """Rebuilds the producer state of a truncated log; `run` is for a worker.

    The log must not change meanwhile; `state` is the result.
    """

    __slots__ = ("_directory", "_discarded", "_log_start_offset", "_now_ms", "_segments", "state")

    def __init__(
        self,
        directory: Directory,
        segments: Sequence[SegmentFile],
        truncated: PartitionProducers,
        *,
        log_start_offset: int,
        now_ms: int,
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._discarded: dict[int, ProducerEntry] = truncated.take_discarded()
        self.state = truncated.copied_for_rebuild()

    def run(self) -> None:
        """Load a snapshot and replay the batches after it; OSError when the disk fails."""
        while self._discarded:  # one by one, so that the loop can run in between
            self._discarded.popitem()
        state, end_offset = self.state, self.state.end_offset
        state.load(self._log_start_offset, self._now_ms)
        replay(self._directory, state, self._segments, self._log_start_offset, end_offset)


def replay(
    directory: Directory,
    state: PartitionProducers,
    segments: Sequence[SegmentFile],
    log_start_offset: int,
    end_offset: int,
) -> None:
    """Apply the batches from the state's end up to end_offset, and take snapshots.

    Snapshots are taken at the last two segments' bases and at end_offset, as Kafka takes them.
    """
    bases = [one.base_offset for one in segments if one.base_offset < end_offset] or [end_offset]
    snapshot_offsets = {*bases[-2:], end_offset}
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if not is_last and segments[number + 1].base_offset <= state.end_offset:
            continue
        start = max(segment.base_offset, state.end_offset, log_start_offset)
        if start >= end_offset:
            break
        state.end_offset = start
        if segment.base_offset in snapshot_offsets:
            state.take_snapshot()
        with closing(directory.open(segment.path)) as file:
            _replay_segment(state, file, segment.size, start, end_offset)
    state.end_offset = end_offset
    state.take_snapshot()


def _replay_segment(state: PartitionProducers, file: File, size: int, start: int, end: int) -> None:
    def read_batch(header: BatchHeader) -> bytes:
        return file.read(header.position, header.size)

    try:
        for header in walk_file(file, 0, size):
            if header.base_offset >= end:
                break
            if header.base_offset >= start:
                for completed in replay_batch(state, header, read_batch):
                    state.complete(completed)
    except CorruptMessage:
        pass  # damage in flushed bytes: reported to readers, never truncated silently
