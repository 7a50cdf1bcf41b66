"""Rebuilds a shard's state from its partition, in turns of the event loop; times of loads.

Where a shard's topic is compacted, only the newest record of a key is replayed, in the order of
offsets: what the cleaner would have left, which a shard must be able to load. As the cleaner does,
it leaves records out below the first open transaction only: a tombstone there removes what the
transaction has staged. Records of transactions are replayed one by one, as are all records of
topics that are not compacted.

No snapshots are taken while loading, so undo logs cost nothing. A new leader's high watermark may
be lower than what the old one had acknowledged. The shard therefore serves no request until all
loaded records are committed, so that no response is older than an earlier one.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl; the sensors with Avg,
Max and Meter of CoordinatorRuntimeMetricsImpl and ShareCoordinatorMetrics.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.records.batches import iterate_batches
from ottla.records.control import ControlRecordType, decode_control_type
from ottla.records.newest_values import collect_newest

if TYPE_CHECKING:
    from ottla.coordinator.runtime.log import CoordinatorLog
    from ottla.coordinator.runtime.shard import Shard
    from ottla.purgatory.work import Work
    from ottla.records.batch import RecordBatch


_WINDOW_MS: Final = 30_000
_MAX_RECENT: Final = 10_000
"""Durations that are kept; of more than these in 30 seconds the newest count."""


class LoadTimes:
    """The durations of the last 30 seconds, and how many there were in all."""

    def __init__(self) -> None:
        self.count = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=_MAX_RECENT)
        """When it ended, and how long it took, in milliseconds."""

    def add(self, duration_ms: int, now_ms: int) -> None:
        """Add a duration that has ended now."""
        self.count += 1
        self._recent.append((now_ms, duration_ms))
        self._forget_old(now_ms)

    def figures(self, now_ms: int) -> tuple[float, int]:
        """Return average and maximum; zeros without durations in the window."""
        self._forget_old(now_ms)
        durations = [duration_ms for _, duration_ms in self._recent]
        if not durations:
            return 0.0, 0
        return sum(durations) / len(durations), max(durations)

    def _forget_old(self, now_ms: int) -> None:
        while self._recent and self._recent[0][0] <= now_ms - _WINDOW_MS:
            self._recent.popleft()


MAX_READ_BYTES: Final = 1 << 20
"""Bytes read at once, however large the load buffer is: reading blocks the event loop."""
WALKED_AT_ONCE: Final = 1_000
"""Records walked over by one call of the compiled walk, at about 1 µs each."""
REPLAYED_IN_A_ROW: Final = 250
"""Records of transactions that are replayed before the walk is tried again."""
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
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}
        self._replays: list[tuple[bytes, tuple[int, bytes | None]]] = []
        """Collected records to be replayed, in reverse order: each is freed by its pop."""

    def run(self) -> Work[None]:
        """Load everything below the target.

        Compaction may run at the same time: offsets may have gaps, and a read may be empty.
        """
        while self.position < self.target or self._newest or self._replays:
            if self._replays:
                key, (offset, value) = self._replays.pop()
                self._replay_record(key, value, offset, -1)
            elif self.position < self._newest_end or self._newest:
                yield from self._walk()
            else:
                has_more = yield from self._replay_batches()
                if not has_more and self.position < self.target:
                    self._read()
            yield
        self.is_complete = True

    def _walk(self) -> Work[None]:
        """Collect the newest records of some batches; read more where they end."""
        walk = collect_newest(
            self._newest,
            self._data,
            self._place,
            self.position,
            self._newest_end,
            WALKED_AT_ONCE,
        )
        self._place, self.position = walk.position, walk.next_offset
        self.record_count += walk.record_count
        is_at_end = self.position >= self._newest_end
        if self._newest and (is_at_end or walk.is_unusual or len(self._newest) >= MAX_KEYS):
            self._replays = list(self._newest.items())
            self._replays.reverse()
            self._newest = {}
        elif walk.is_unusual:
            yield from self._replay_batches()
        elif not is_at_end and walk.record_count < WALKED_AT_ONCE:
            self._read()

    def _read(self) -> None:
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

    def _replay_batches(self) -> Work[bool]:
        """Replay some of the batches that were read, record by record; return whether more are."""
        end_count = self.record_count + REPLAYED_IN_A_ROW
        for batch in iterate_batches(memoryview(self._data), self._place, partial_tail=True):
            if batch.base_offset >= self.target:
                self.position = self.target
                return False
            if self.record_count >= end_count:
                return True
            yield from self._replay(batch)
            self._place += batch.size
            self.position = max(self.position, batch.next_offset)
        return False

    def _replay(self, batch: RecordBatch) -> Work[None]:
        batch.check_crc()
        if batch.is_control:
            self.record_count += 1
            self._replay_marker(batch)
            yield
            return
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in batch.records():
            if record.offset < self.position or record.key is None:
                continue
            self.record_count += 1
            self._replay_record(record.key, record.value, record.offset, producer_id)
            yield

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
