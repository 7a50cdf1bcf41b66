"""Rebuilds a shard's state from its partition, one slice of the log at a time.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl.

Where a shard's topic is compacted, only the newest record of a key is replayed, in the order of
offsets: what the cleaner would have left, which a shard must be able to load. As the cleaner does,
it leaves records out below the first open transaction only: a tombstone there removes what the
transaction has staged. Records of transactions are replayed one by one, as are all records of
topics that are not compacted.

No snapshots are taken while loading, so undo logs cost nothing. A new leader's high watermark may
be lower than what the old one had acknowledged. The shard therefore serves no request until all
loaded records are committed, so that no response is older than an earlier one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.runtime.shared_turns import SLICE_RECORDS
from ottla.errors import CorruptMessage
from ottla.records.batches import iterate_batches
from ottla.records.control import ControlRecordType, decode_control_type
from ottla.records.newest_values import collect_newest

if TYPE_CHECKING:
    from ottla.coordinator.runtime.log import CoordinatorLog
    from ottla.coordinator.runtime.shard import Shard
    from ottla.records.batch import RecordBatch

MAX_READ_BYTES: Final = 1 << 20
"""Bytes read at once, however large the load buffer is: reading blocks the event loop."""
WALKED_IN_A_REPLAY: Final = 20
"""Records that are walked over in the time of one replay."""
COPIED_IN_A_REPLAY: Final = 200
"""Collected records that are ordered for their replay in the time of one replay."""
MAX_KEYS: Final = 25_000
"""Keys whose newest records are collected before a replay: some megabytes of memory."""


class Loader:
    """Replays a partition up to the log end offset at the start of loading."""

    def __init__(
        self, log: CoordinatorLog, partition: int, shard: Shard, buffer_bytes: int = MAX_READ_BYTES
    ) -> None:
        self._log = log
        self._partition = partition
        self._shard = shard
        self._read_bytes = min(buffer_bytes, MAX_READ_BYTES)
        self.position = log.start_offset(partition)
        """The next offset to walk over."""
        self.target = log.end_offset(partition)
        self._newest_end = 0
        """Up to where a newer record replaces earlier ones of its key."""
        if shard.is_compacted:
            self._newest_end = min(self.target, log.first_unstable_offset(partition))
        self.record_count = 0
        self.is_complete = False
        """Whether all is replayed: what was walked over may be waiting for its replay."""
        self._data = b""
        self._place = 0
        """Where the next batch begins in the data."""
        self._left = 0
        """Records that this step may still replay."""
        self._may_read = True
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}
        self._replays: list[tuple[bytes, tuple[int, bytes | None]]] = []
        """Collected records to be replayed, in reverse order: each is freed by its pop."""

    @property
    def spent(self) -> int:
        """How many records of a slice the last step took."""
        return SLICE_RECORDS - self._left

    def step(self) -> bool:
        """Work for one turn of the event loop; return whether loading is complete.

        Compaction may run at the same time: offsets may have gaps, and a read may be empty.
        """
        self._left = SLICE_RECORDS
        self._may_read = True
        while self._left > 0:
            if self._replays:
                self._replay_newest()
            elif self.position >= self.target and not self._newest:
                self.is_complete = True
                return True
            elif not self._walk():
                break
        return False

    def _walk(self) -> bool:
        """Walk over batches that were read; return False where the step has to end."""
        if self.position >= self._newest_end and not self._newest:
            self._replay_some()
            return self.position >= self.target or self._left <= 0 or self._read()
        walk = collect_newest(
            self._newest,
            self._data,
            self._place,
            self.position,
            self._newest_end,
            max(1, self._left * WALKED_IN_A_REPLAY),
        )
        self._place, self.position = walk.position, walk.next_offset
        self.record_count += walk.record_count
        self._left -= walk.record_count // WALKED_IN_A_REPLAY
        is_at_end = self.position >= self._newest_end
        if self._newest and (is_at_end or walk.is_unusual or len(self._newest) >= MAX_KEYS):
            self._replays = list(self._newest.items())
            self._replays.reverse()
            self._newest = {}
            self._left -= len(self._replays) // COPIED_IN_A_REPLAY
        elif walk.is_unusual:
            self._replay_some()
        elif not is_at_end and self._left > 0:
            return self._read()
        return True

    def _read(self) -> bool:
        """Read more, once in a step; return False where the step has read before."""
        if not self._may_read:
            return False
        self._may_read = False
        begin = self.position
        self._data = bytes(self._log.read(self._partition, begin, self._read_bytes))
        self._place = 0
        batch = next(iterate_batches(memoryview(self._data), partial_tail=True), None)
        if batch is None and self._data:
            raise CorruptMessage(f"A record batch is truncated: {len(self._data)} bytes are left.")
        if batch is None or batch.base_offset >= self.target:
            self.position = self.target
        elif batch.base_offset >= self._newest_end:  # a gap of compaction lies before it
            self.position = batch.base_offset
        return True

    def _replay_newest(self) -> None:
        """Replay a slice of what was collected."""
        replays = self._replays
        while replays and self._left > 0:
            key, (offset, value) = replays.pop()
            self._replay_record(key, value, offset, -1)
            self._left -= 1

    def _replay_some(self) -> None:
        """Replay whole batches one by one, up to a slice."""
        for batch in iterate_batches(memoryview(self._data), self._place, partial_tail=True):
            if batch.base_offset >= self.target:
                self.position = self.target
                return
            if self._left <= 0:
                return
            self._replay(batch)
            self._place += batch.size
            self.position = max(self.position, batch.next_offset)

    def _replay(self, batch: RecordBatch) -> None:
        batch.check_crc()
        if batch.is_control:
            self.record_count += 1
            self._left -= 1
            self._replay_marker(batch)
            return
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in batch.records():
            if record.offset < self.position or record.key is None:
                continue
            self.record_count += 1
            self._left -= 1
            self._replay_record(record.key, record.value, record.offset, producer_id)

    def _replay_record(
        self, key: bytes, value: bytes | None, offset: int, producer_id: int
    ) -> None:
        decoded = self._shard.decode(key, value)
        if decoded is not None:
            self._shard.replay(offset, producer_id, decoded)

    def _replay_marker(self, batch: RecordBatch) -> None:
        for record in batch.records():
            kind = decode_control_type(record.key)
            if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                self._shard.replay_end_transaction(
                    batch.producer_id, committed=kind == ControlRecordType.COMMIT
                )
