"""The append that nearly every request asks for: one plain batch at the end of the active segment.

It does what `PartitionLog.append_as_leader` does, in fewer steps; whatever needs a judgement (new
producers, gaps, duplicates, transactions), another segment or a record looked at twice is left to
that. tests/storage/test_plain_append.py holds the two against each other.

Hot path: `append_plain` (benchmarks/against_kafka).
Kafka: org.apache.kafka.storage.internals.log.UnifiedLog.append.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.records.plain_batch import plain_header
from ottla.records.validator import BatchSummary
from ottla.storage.log.append_info import AppendInfo
from ottla.storage.log.truncation import TruncatableLog
from ottla.storage.producers.append import follows

if TYPE_CHECKING:
    from ottla.storage.producers.entry import ProducerEntry

_PLACE: Final = Struct(">qii")  # base offset, length, leader epoch
_new_tuple: Final = tuple.__new__


class PlainAppends(TruncatableLog):
    """A log that takes plain batches in one step."""

    def append_plain(  # noqa: C901 - each function more costs half a microsecond here
        self, view: memoryview, leader_epoch: int, now_ms: int
    ) -> AppendInfo | None:
        """Append one batch of a client as the leader; None when nothing was done.

        Raises as `append_as_leader` does, and the view is then as it was.
        """
        if self.failure is not None or self.is_deleted or not self._active_is_prepared:
            return None
        header = plain_header(view, self._rules, now_ms)
        if header is None:
            return None
        _, length, _, _, _, _, delta, _, largest, producer_id, epoch, sequence, count = header
        producer = None
        if producer_id >= 0:
            producer = self._next_of(producer_id, epoch, sequence)
            if producer is None:
                return None
        first, active = self.log_end_offset, self.segments.active
        size, config = len(view), self.config
        last = first + delta
        if active.should_roll(
            size=size, max_timestamp=largest, last_offset=last, now_ms=now_ms, config=config
        ):
            return None
        last_sequence = -1 if sequence < 0 else (sequence + delta) & 0x7FFF_FFFF
        place = (first, last, producer_id, epoch, sequence, last_sequence, largest)
        batch: BatchSummary = _new_tuple(BatchSummary, (*place, False, False, 0, size))
        _PLACE.pack_into(view, 0, first, length, leader_epoch)
        try:
            active.append((view,), size, (batch,))
        except CorruptMessage:
            _PLACE.pack_into(view, 0, *header[:3])
            raise
        except OSError as error:
            _PLACE.pack_into(view, 0, *header[:3])
            if active.is_torn:
                self.failure = error
            raise self._storage_error("appending records to", error) from error
        end = self.producer_state.end_offset = self.log_end_offset = last + 1
        self.size_bytes += size
        if end - self.recovery_point >= config.flush_messages:
            self.on_flush_overdue(self)
        if producer is not None:
            producer.take_next(batch)
        epochs = self.leader_epochs.entries
        if leader_epoch >= 0 and (not epochs or epochs[-1].epoch != leader_epoch):
            self.assign_epoch(leader_epoch, first)
        return _new_tuple(
            AppendInfo, (first, last, largest, -1, self.log_start_offset, count, size, False)
        )

    def _next_of(self, producer_id: int, epoch: int, sequence: int) -> ProducerEntry | None:
        """Return the producer when this is its next batch in the epoch that is known."""
        entry = self.producer_state.producers.get(producer_id)
        if (
            entry is None
            or not entry.batches
            or entry.producer_epoch != epoch
            or entry.transaction_first_offset >= 0
            or sequence < 0
            or not follows(entry.batches[-1].last_sequence, sequence)
        ):
            return None
        return entry
