"""Collects a leader's records until they are written to the log.

Offsets are assigned when records are added, so that the controller can run ahead of the disk.

Kafka: org.apache.kafka.raft.internals.BatchAccumulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.builder import encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.types import Buffer

MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
_RECORD_OVERHEAD_BYTES: Final = 21
_NO_HEADERS: Final = ()


class CompletedBatch(NamedTuple):
    """An encoded batch, ready for the log."""

    data: bytearray
    base_offset: int
    last_offset: int


class _Group(NamedTuple):
    """Records that must be written in one batch."""

    values: Sequence[Buffer]
    size_bytes: int
    offered_ms: int
    control: bytearray | None = None
    """The batch of control records, which share it with no others."""


class BatchAccumulator:
    """Belongs to one epoch of one leader. Records appended together are never split."""

    __slots__ = ("_epoch", "_groups", "_max_batch_bytes", "next_offset")

    def __init__(
        self, *, epoch: int, next_offset: int, max_batch_bytes: int = MAX_BATCH_BYTES
    ) -> None:
        self._epoch = epoch
        self._max_batch_bytes = max_batch_bytes
        self._groups: list[_Group] = []
        self.next_offset = next_offset

    @property
    def is_empty(self) -> bool:
        """Whether there are no records."""
        return not self._groups

    @property
    def first_offset(self) -> int:
        """The offset of the oldest record that is here."""
        return self.next_offset - sum(len(group.values) for group in self._groups)

    def append(self, values: Sequence[Buffer], now_ms: int) -> int:
        """Add encoded records for one batch; return the last one's offset.

        KafkaError RECORD_LIST_TOO_LARGE when they do not fit into one batch.
        """
        assert values, "no records to append"
        size = sum(len(value) + _RECORD_OVERHEAD_BYTES for value in values)
        if size > self._max_batch_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The total record(s) size of {size} exceeds the maximum allowed batch size of "
                f"{self._max_batch_bytes}",
            )
        self._groups.append(_Group(values, size, now_ms))
        self.next_offset += len(values)
        return self.next_offset - 1

    def append_control(self, batch: bytearray, record_count: int) -> None:
        """Add a batch of control records, which begins at next_offset."""
        self._groups.append(_Group([b""] * record_count, len(batch), 0, batch))
        self.next_offset += record_count

    def drain(self) -> list[CompletedBatch]:
        """Return all records in as few batches as the size limit allows."""
        batches: list[CompletedBatch] = []
        while self._groups:
            batches.append(self.next_batch())
        return batches

    def next_batch(self) -> CompletedBatch:
        """Return the oldest records in one batch, as many as the size limit allows."""
        size_bytes = count = 0
        for group in self._groups:
            if count and (group.control is not None or self._groups[0].control is not None):
                break
            if count and size_bytes + group.size_bytes > self._max_batch_bytes:
                break
            size_bytes += group.size_bytes
            count += 1
        offset = self.first_offset
        taken, self._groups = self._groups[:count], self._groups[count:]
        return self._complete(taken, offset)

    def _complete(self, groups: list[_Group], base_offset: int) -> CompletedBatch:
        """Make one batch; all its records get the batch's timestamp, as Kafka requires."""
        control = groups[0].control
        if control is not None:
            last_offset = base_offset + len(groups[0].values) - 1
            return CompletedBatch(control, base_offset, last_offset)
        now_ms = groups[0].offered_ms
        records = [(now_ms, None, value, _NO_HEADERS) for group in groups for value in group.values]
        data = encode_batch(records, base_offset=base_offset, leader_epoch=self._epoch)
        return CompletedBatch(data, base_offset, base_offset + len(records) - 1)
