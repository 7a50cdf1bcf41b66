"""The records that compaction keeps of each batch, also of those outside the inner loop.

Records keep their offsets, sequences and timestamps, and batches their offsets: a log that was
compacted has gaps. The last batch of each producer stays, empty if need be, so that its sequence
is known; and so does the last batch below the limit of the cleaning. Tombstones and markers get a
delete horizon in the first cleaning and are removed when it has passed (KIP-534).

A batch with a wrong checksum raises CorruptMessage: a damaged key could take a good record's place.

Kafka: Cleaner.cleanInto, Cleaner.buildOffsetMapForSegment, MemoryRecords.filterTo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from ottla.records.batches import LegacyBatch
from ottla.records.builder import assemble_batch
from ottla.records.compression import Compression, Decompressor, compress
from ottla.storage.batches import parse_header
from ottla.storage.cleaner.key_scan import DAMAGED, FULL, PARTIAL, UNUSUAL, WHOLE
from ottla.storage.segments.segment_recovery import is_valid_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.records.record import Record
    from ottla.storage.batches import BatchHeader
    from ottla.storage.cleaner.key_scan import KeyScan
    from ottla.storage.cleaner.transactions import CleanedTransactions
    from ottla.types import Buffer

_KEPT_FLAGS = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG


class LastRecord(NamedTuple):
    """Where a producer's last data end, -1 when only a marker is known; and its epoch."""

    last_data_offset: int
    producer_epoch: int


class Filtered(NamedTuple):
    """The retained batches of the first `consumed` bytes: buffers, and the places in them."""

    consumed: int
    buffers: list[Buffer]
    places: list[tuple[int, int, int]]


def _read(view: memoryview, position: int) -> tuple[BatchHeader, memoryview]:
    """Return the complete batch there, of any format; CorruptMessage when it is damaged."""
    header = parse_header(view, position, position)
    data = view[position : position + header.size]
    if not is_valid_batch(header, data):
        raise damaged(header.base_offset)
    return header, data


def damaged(offset: int) -> CorruptMessage:
    """Return the error of a batch that is not what its header says."""
    return CorruptMessage(f"the batch at offset {offset} is damaged")


class KeyIndexer:
    """Fills the map with the keys of a log's dirty part."""

    def __init__(
        self, scan: KeyScan, transactions: CleanedTransactions, *, start_offset: int
    ) -> None:
        self._scan = scan
        self._map = scan.offset_map
        self._transactions = transactions
        self._start_offset = start_offset
        self._decompressor = Decompressor()
        self.is_full = False

    def index(self, view: memoryview) -> int:
        """Take the keys of the complete batches in view; return their bytes, fewer when full."""
        position = 0
        while True:
            reason = self._scan.index_batches(view, position, len(view), self._start_offset)
            position = self._scan.position
            if reason == WHOLE:
                return position
            if reason == UNUSUAL:
                header, data = _read(view, position)
                reason = self._index_unusual(header, data)
            if reason == FULL:
                self.is_full = True
                return position
            if reason == DAMAGED:
                raise damaged(self._map.latest_offset + 1)
            self._map.latest_offset = max(self._map.latest_offset, header.last_offset)
            position += header.size

    def _index_unusual(self, header: BatchHeader, data: memoryview) -> int:
        if header.magic < 2:
            return self._index_legacy(LegacyBatch(data).records())
        if header.is_control:
            self._transactions.marker_read(header, data)
            return WHOLE
        if self._transactions.data_read(header) or not header.record_count:
            return WHOLE
        payload = RecordBatch(data).decompressed_payload(decompressor=self._decompressor)
        return self._scan.index_records(
            memoryview(payload), header.record_count, header.base_offset, self._start_offset
        )

    def _index_legacy(self, records: list[Record]) -> int:
        for record in records:
            if record.offset < self._start_offset:
                continue
            if record.key is not None and not self._map.note(record.key, record.offset):
                return FULL
            self._map.latest_offset = max(self._map.latest_offset, record.offset)
        return WHOLE


class BatchFilter:
    """Copies what is kept of a log's batches."""

    def __init__(
        self,
        scan: KeyScan,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        now_ms: int,
        upper_offset: int,
    ) -> None:
        """upper_offset is the limit of the cleaning: the last batch below it stays."""
        self._scan = scan
        self.transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._upper_offset = upper_offset
        self._decompressor = Decompressor()
        self.keeps_legacy_tombstones = True
        scan.select({record.last_data_offset for record in last_records.values()}, upper_offset)

    def filter(self, view: memoryview) -> Filtered:
        """Return what is kept of the complete batches in view."""
        scan = self._scan
        filtered = Filtered(0, [], [])
        position = 0
        while True:
            scan.make_room(len(view) - position)
            reason = scan.filter_batches(view, position, len(view))
            position = scan.position
            if scan.filled:
                filtered.buffers.append(bytes(memoryview(scan.out)[: scan.filled]))
                filtered.places.extend(scan.take_places())
            if reason == WHOLE:
                return filtered._replace(consumed=position)
            kept: Buffer | None
            if reason == PARTIAL:
                header = parse_header(view, position, position)
                scan.copy_plain(header.record_count, header.base_timestamp)
                kept = self._rebuilt(header)
            else:
                header, data = _read(view, position)
                if reason == DAMAGED:
                    raise damaged(header.base_offset)
                kept = self._filter_unusual(header, data)
            if kept is not None:
                fields = parse_header(kept, 0, 0)
                filtered.buffers.append(kept)
                filtered.places.append((fields.last_offset, fields.max_timestamp, len(kept)))
            position += header.size

    def _filter_unusual(self, header: BatchHeader, data: memoryview) -> Buffer | None:
        if header.magic < 2:
            return self._filter_legacy(header, data)
        is_over = self._is_over(header, data)
        kept: Buffer | None
        if header.is_control:
            kept = data if not is_over else self._keep_marker(header, data)
        else:
            kept = None if is_over else self._keep_records(header, data, keeps_all=False)
        if kept is None and self._must_stay(header):
            return _empty(header)
        return kept

    def _is_over(self, header: BatchHeader, data: memoryview) -> bool:
        """Whether it is of an aborted transaction, or the marker of one without data."""
        if header.is_control:
            return self.transactions.marker_read(header, data)
        return self.transactions.data_read(header)

    def _keep_marker(self, header: BatchHeader, data: memoryview) -> Buffer | None:
        """Keep the marker of a transaction without data until its horizon has passed."""
        if header.attributes & DELETE_HORIZON_FLAG and header.base_timestamp <= self._now_ms:
            return None
        return self._keep_records(header, data, keeps_all=True)

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the batch holds a producer's last sequence, or ends the cleaned part."""
        if header.last_offset + 1 == self._upper_offset:
            return True
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _keep_records(
        self, header: BatchHeader, data: memoryview, *, keeps_all: bool
    ) -> Buffer | None:
        if not header.record_count:
            return None
        scan, batch = self._scan, RecordBatch(data)
        payload = memoryview(batch.decompressed_payload(decompressor=self._decompressor))
        has_horizon = header.attributes & DELETE_HORIZON_FLAG != 0
        if not scan.filter_records(
            payload,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            has_horizon,
            keeps_all,
        ):
            raise damaged(header.base_offset)
        if scan.kept == header.record_count and not scan.is_rewritten:
            return data
        return self._rebuilt(header) if scan.kept else None

    def _rebuilt(self, header: BatchHeader) -> Buffer:
        """Return a batch of the records that the scan kept."""
        scan = self._scan
        codec = Compression.from_id(header.attributes & COMPRESSION_MASK)
        has_append_time = header.attributes & LOG_APPEND_TIME_FLAG
        return assemble_batch(
            compress(codec, memoryview(scan.out)[: scan.filled]),
            attributes=header.attributes | (DELETE_HORIZON_FLAG if scan.is_rewritten else 0),
            record_count=scan.kept,
            last_offset_delta=header.last_offset - header.base_offset,
            base_timestamp=scan.horizon_ms if scan.is_rewritten else header.base_timestamp,
            max_timestamp=header.max_timestamp if has_append_time else scan.largest,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    def _filter_legacy(self, header: BatchHeader, data: memoryview) -> Buffer | None:
        """Keep an old message as it is when a record in it is kept; Kafka takes out the others."""
        records = LegacyBatch(data).records()
        if header.last_offset + 1 == self._upper_offset:
            return data
        return data if any(map(self._is_retained, records)) else None

    def _is_retained(self, record: Record) -> bool:
        offset_map = self._scan.offset_map
        if record.offset > offset_map.latest_offset:
            return True
        if record.key is None or record.offset < offset_map.offset_of(record.key):
            return False
        return record.value is not None or self.keeps_legacy_tombstones


def _empty(header: BatchHeader) -> Buffer:
    """Return a batch without records that has the offsets and sequences of another."""
    return assemble_batch(
        b"",
        attributes=header.attributes & _KEPT_FLAGS,
        record_count=0,
        last_offset_delta=header.last_offset - header.base_offset,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
