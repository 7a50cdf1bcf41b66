"""Segment recovery: keep the valid prefix, cut the torn tail, rebuild the indexes.

Kafka: LogSegment.recover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from ottla.errors import CorruptMessage
from ottla.records.batch import HEADER_BYTES
from ottla.records.crc32c import crc32c
from ottla.storage.batches import MIN_BATCH_BYTES, header_bytes_needed, parse_header, walk_file
from ottla.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.indexes.transaction_index import AbortedTransaction
from ottla.storage.producers.update import replay_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import File
    from ottla.storage.log.leader_epochs import LeaderEpochs
    from ottla.storage.producers.state import PartitionProducers
    from ottla.storage.segments.segment import Segment

_CHUNK_BYTES = 1 << 20


def read_valid_batches(
    file: File, end: int, position: int = 0
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield complete batches with valid checksums and increasing offsets; stop at any other."""
    next_offset = -1
    chunk, chunk_start = memoryview(b""), position
    while position + MIN_BATCH_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = memoryview(file.read(position, _CHUNK_BYTES)), position, 0
            if len(chunk) < MIN_BATCH_BYTES:
                return
        if len(chunk) - at < header_bytes_needed(chunk, at):
            return
        try:
            header = parse_header(chunk, at, position)
        except CorruptMessage:
            return
        if header.size < MIN_BATCH_BYTES or position + header.size > end:
            return
        if at + header.size > len(chunk):
            size = max(header.size, _CHUNK_BYTES)
            chunk, chunk_start, at = memoryview(file.read(position, size)), position, 0
        data = chunk[at : at + header.size]
        if not is_valid_batch(header, data) or header.base_offset < next_offset:
            return
        yield header, data
        next_offset = header.last_offset + 1
        position += header.size


def is_valid_batch(header: BatchHeader, data: memoryview) -> bool:
    """Whether data is the complete batch of the header, with the right checksum."""
    if len(data) != header.size or header.last_offset < header.base_offset:
        return False
    if header.magic < 2:
        return crc32(data[16:]) == header.crc
    return header.size >= HEADER_BYTES and crc32c(data[21:]) == header.crc


def recover_segment(
    segment: Segment, state: PartitionProducers, epochs: LeaderEpochs, *, flushed_offset: int
) -> int:
    """Keep the valid prefix, rebuild every index, replay producers and epochs.

    Returns the bytes cut off. `state` must be at the segment's base offset. CorruptMessage, and
    nothing is cut off, when the valid prefix ends below flushed_offset.
    """
    _reset_indexes(segment)
    aborted: list[AbortedTransaction] = []
    end = 0
    last_epoch = epochs.epoch_for_offset(segment.base_offset - 1)
    for header, data in read_valid_batches(segment.file, segment.size):
        if not 0 <= header.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET:
            break
        if header.leader_epoch < NO_EPOCH or 0 <= header.leader_epoch < last_epoch:
            break  # damaged, or left from before the log was truncated
        try:
            aborted += _replay(state, header, data)
        except CorruptMessage:
            break
        segment.index_batch(header, header.position)
        if header.magic >= 2 and _is_new_epoch(epochs, header):
            # from here on the checkpoint's entries are outdated
            epochs.truncate_from_end(header.base_offset)
            if header.leader_epoch > epochs.latest_epoch:
                epochs.assign(header.leader_epoch, header.base_offset)
        state.end_offset = header.last_offset + 1
        end = header.position + header.size
        last_epoch = max(last_epoch, header.leader_epoch)
    cut = segment.size - end
    if cut and state.end_offset < flushed_offset:
        raise CorruptMessage(
            f"{segment.path('.log')} is damaged at byte {end} (offset {state.end_offset}), in "
            "records that were flushed"
        )
    if cut:
        segment.file.truncate(end)
        segment.size = end
        segment.needs_sync = True
    _finish_indexes(segment)
    segment.transaction_index.replace(aborted)
    return cut


NO_EPOCH = -1
"""The leader epoch of batches without one; the checksum does not cover the field."""


def _is_new_epoch(epochs: LeaderEpochs, header: BatchHeader) -> bool:
    """Whether the checkpoint, which may be older or newer than the log, has another epoch."""
    return header.leader_epoch not in (-1, epochs.epoch_for_offset(header.base_offset))


def _replay(
    state: PartitionProducers, header: BatchHeader, data: memoryview
) -> list[AbortedTransaction]:
    aborted = []
    for completed in replay_batch(state, header, lambda _: data):
        if completed.is_aborted:
            stable = state.last_stable_offset(completed)
            aborted.append(AbortedTransaction(*completed[:3], stable))
        state.complete(completed)
    return aborted


def trim_tail(segment: Segment, next_base_offset: int) -> None:
    """Cut what follows the last batch that ends before the next segment.

    For the last flushed segment: when an earlier recovery cut its end and the cut itself was lost,
    the torn batches are back. An invalid checksum before that is damage in flushed bytes: it is not
    cut but reported to readers.
    """
    start = segment.last_indexed_position()
    end, next_offset = start, segment.base_offset
    for header, _ in read_valid_batches(segment.file, segment.size, start):
        if header.last_offset >= next_base_offset:
            next_offset = next_base_offset
            break
        end, next_offset = header.position + header.size, header.last_offset + 1
    if end < segment.size and next_offset >= next_base_offset:
        segment.file.truncate(end)
        segment.size = end
        segment.needs_sync = True
    aborted = segment.transaction_index.entries()
    kept = [entry for entry in aborted if entry.last_offset < next_base_offset]
    if len(kept) < len(aborted):
        segment.transaction_index.replace(kept)
    segment.transaction_index.release()


def rebuild_indexes(segment: Segment) -> None:
    """Rebuild the offset and time indexes from the headers, for a corrupt index."""
    _reset_indexes(segment)
    for header in walk_file(segment.file, 0, segment.size):
        if not 0 <= header.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET:
            raise CorruptMessage(f"a batch in {segment.path('.log')} is not of this segment")
        segment.index_batch(header, header.position)
    _finish_indexes(segment)


def _reset_indexes(segment: Segment) -> None:
    segment.offset_index.create(preallocate=False)
    segment.time_index.create(preallocate=False)
    segment.begin_indexing()


def _finish_indexes(segment: Segment) -> None:
    segment.time_index.append_if_newer(segment.max_timestamp, segment.max_timestamp_offset)
    segment.offset_index.trim()
    segment.time_index.trim()
