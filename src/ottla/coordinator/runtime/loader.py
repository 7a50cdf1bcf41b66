"""Rebuilds a shard's state from its partition, one slice of the log at a time.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl.

No snapshots are taken while loading, so undo logs cost nothing. A new leader's high watermark may
be lower than what the old one had acknowledged. The shard therefore serves no request until all
loaded records are committed, so that no response is older than an earlier one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.records.batches import iterate_batches
from ottla.records.control import ControlRecordType, decode_control_type

if TYPE_CHECKING:
    from ottla.coordinator.runtime.log import CoordinatorLog
    from ottla.coordinator.runtime.shard import Shard
    from ottla.records.batch import RecordBatch

SLICE_BYTES: Final = 256 * 1024
"""Bytes read per slice."""
SLICE_RECORDS: Final = 400
"""Records replayed per slice, 13 µs each: this bounds how long loading blocks the event loop."""


class Loader:
    """Replays a partition up to the log end offset at the start of loading."""

    def __init__(self, log: CoordinatorLog, partition: int, shard: Shard) -> None:
        self._log = log
        self._partition = partition
        self._shard = shard
        self.position = log.start_offset(partition)
        self.target = log.end_offset(partition)
        self.record_count = 0

    def step(self) -> bool:
        """Replay one slice; return whether loading is complete.

        Compaction may run at the same time: offsets may have gaps, and a slice may be empty.
        """
        if self.position >= self.target:
            return True
        data = self._log.read(self._partition, self.position, SLICE_BYTES)
        begin, last_count = self.position, self.record_count + SLICE_RECORDS
        for batch in iterate_batches(memoryview(data), partial_tail=True):
            if batch.base_offset >= self.target:
                self.position = self.target
                return True
            if self.record_count >= last_count:
                return False
            self._replay(batch)
            self.position = max(self.position, batch.next_offset)
        if len(data) and self.position == begin:
            raise CorruptMessage(f"A record batch is truncated: {len(data)} bytes are left.")
        return not len(data) or self.position >= self.target

    def _replay(self, batch: RecordBatch) -> None:
        batch.check_crc()
        if batch.is_control:
            self._replay_marker(batch)
            return
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in batch.records():
            if record.offset < self.position or record.key is None:
                continue
            self.record_count += 1
            decoded = self._shard.decode(record.key, record.value)
            if decoded is not None:
                self._shard.replay(record.offset, producer_id, decoded)

    def _replay_marker(self, batch: RecordBatch) -> None:
        for record in batch.records():
            kind = decode_control_type(record.key)
            if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                self._shard.replay_end_transaction(
                    batch.producer_id, committed=kind == ControlRecordType.COMMIT
                )
