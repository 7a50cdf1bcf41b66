"""Runs the controller's shard over the quorum's log: replay on append, respond on commit.

Kafka: the event queue, purgatory and log listener inside QuorumController; MetadataLoader's feed.

The records of an operation are replayed when they are appended, so that the next operation reads
the newest state; the response is released when they are committed. Committed records are applied to
the metadata image and passed to its listeners.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.bootstrap import activation_records
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import NO_OP_VALUE, MessageAndVersion, decode_record, encode_record
from ottla.protocol.records.metadata import AbortTransactionRecord, NoOpRecord
from ottla.purgatory.pending import Pending
from ottla.raft.batch_accumulator import MAX_BATCH_BYTES
from ottla.raft.snapshot import SnapshotEncoder
from ottla.storage.disk_errors import is_exhaustion
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clock import Clock
    from ottla.controller.controller import Controller
    from ottla.controller.result import ControllerResult
    from ottla.metadata.loader import MetadataLoader
    from ottla.metadata.snapshot import SnapshotPolicy
    from ottla.raft.driver import RaftDriver
    from ottla.records.batch import RecordBatch
    from ottla.types import Buffer

T = TypeVar("T")
log = logging.getLogger("ottla.controller")
_RECORD_OVERHEAD_BYTES = 32
_RECORDS_PER_SLICE = 250
"""Records of a snapshot encoded in one turn of the event loop: about two milliseconds."""
_RECORDS_PER_BATCH = 10_000
"""Records of one batch of a result that is not atomic; each has at most a few hundred bytes."""


class _Appended(NamedTuple):
    """Appended records that are not committed yet."""

    last_offset: int
    epoch: int
    timestamp: int
    records: Sequence[MessageAndVersion]


class ControllerRuntime:
    """The listener of one quorum; set `driver` before it starts."""

    driver: RaftDriver

    def __init__(
        self,
        controller: Controller,
        loader: MetadataLoader,
        *,
        clock: Clock,
        snapshots: SnapshotPolicy,
        bootstrap: Sequence[MessageAndVersion],
        min_insync_replicas: int,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.controller = controller
        self.loader = loader
        self.active = False
        self.failure: Exception | None = None
        self.committed_offset = -1
        """The offset of the last committed record."""
        self.on_active: Callable[[], None] = _nobody
        self.retention: Callable[[], None] = _nobody
        self.last_append_ms = 0
        """Monotonic time of the last append, for the idle NoOp."""
        self._clock = clock
        self._snapshots = snapshots
        self._bootstrap = bootstrap
        self._min_insync_replicas = min_insync_replicas
        self._on_failure = on_failure
        self._uncommitted: deque[_Appended] = deque()
        self._waiting: deque[tuple[int, Callable[[], None], Callable[[Exception], None]]] = deque()
        self._last_offset = -1
        self._last_timestamp = 0
        self._is_writing_snapshot = False

    # Start

    def load_snapshot(
        self, values: Sequence[bytes], snapshot_id: OffsetAndEpoch, timestamp: int
    ) -> None:
        """Start from a snapshot, which is committed."""
        last = OffsetAndEpoch(snapshot_id.offset - 1, snapshot_id.leader_epoch)
        records = [decode_record(value) for value in values]
        for record in records:
            self.controller.replay(record, last.offset)
        self.loader.load_snapshot(records, last)
        self._last_offset = last.offset
        self._last_timestamp = timestamp

    def load_batch(self, batch: RecordBatch) -> None:
        """Replay a batch of the log; it is applied to the image when it is committed."""
        records: list[MessageAndVersion] = []
        for record in batch.records():
            if record.value == NO_OP_VALUE:
                continue
            decoded = decode_record(record.value)
            self.controller.replay(decoded, record.offset)
            records.append(decoded)
        if records:
            appended = _Appended(
                batch.last_offset, batch.leader_epoch, batch.max_timestamp, records
            )
            self._uncommitted.append(appended)
        self._last_offset = batch.last_offset
        self._last_timestamp = batch.max_timestamp
        self._snapshots.committed(batch.size)

    # Events of the quorum

    def became_leader(self, _epoch: int, epoch_start_offset: int) -> None:
        """Accept operations; in a new cluster, append the bootstrap records."""
        self._last_offset = max(self._last_offset, epoch_start_offset)
        if not self.controller.in_transaction:
            self.controller.registry.snapshot(self._last_offset)
        self.active = True
        if self.controller.in_transaction:  # the previous leader did not complete it
            self._append([MessageAndVersion(AbortTransactionRecord(reason="a new leader"), 0)])
        if not self.controller.features.levels:
            self._append(
                activation_records(self._bootstrap, min_insync_replicas=self._min_insync_replicas)
            )
        now_ms = self._clock.monotonic_ms()
        for broker_id in self.controller.cluster.brokers:
            self.controller.cluster.heartbeats.begin(broker_id, now_ms)
        self.on_active()

    def batch_appended(self, _last_offset: int, size_bytes: int) -> None:
        """Count the bytes for the snapshot policy."""
        self._snapshots.committed(size_bytes)

    def high_watermark_moved(self, offset: int) -> None:
        """Apply committed records to the image, notify its listeners and release responses."""
        delta = MetadataDelta(is_snapshot=self.committed_offset < 0)
        epoch = self.driver.node.epoch
        try:
            while self._uncommitted and self._uncommitted[0].last_offset < offset:
                appended = self._uncommitted.popleft()
                self.loader.load_batch(
                    appended.records, OffsetAndEpoch(appended.last_offset, appended.epoch), delta
                )
                if not self.controller.in_transaction:  # an abort reverts to its start
                    self.controller.registry.delete_up_to(appended.last_offset)
            if not self.loader.in_transaction:
                self.loader.image.offset_and_epoch = OffsetAndEpoch(offset - 1, epoch)
            first = self.committed_offset < 0
            self.committed_offset = offset - 1
            if first or not delta.is_empty:
                self.loader.publish_from(delta, everything=first)
        except Exception as error:  # noqa: BLE001 - a record that cannot be applied stops this node
            self.failed(error)
            return
        self._release()
        self._maybe_snapshot()

    def resigned(self, _epoch: int) -> None:
        """Fail waiting operations: the next leader decides whether they are committed."""
        self.active = False
        self._fail_all(KafkaError(ErrorCode.NOT_CONTROLLER))

    def failed(self, error: Exception) -> None:
        """Stop permanently and notify the node."""
        if self.failure is not None:
            return
        self.failure = error
        self.active = False
        self._fail_all(
            KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log has failed: {error}")
        )
        self._on_failure(error)

    # Operations

    def write(self, operation: Callable[[int], ControllerResult[T]]) -> Pending[T]:
        """Run operation(next offset) now; the result is complete when its records are committed.

        The Pending fails with KafkaError NOT_CONTROLLER where this node does not lead, and with
        any KafkaError that the operation raises.
        """
        pending: Pending[T] = Pending()
        if not self.active:
            pending.fail(KafkaError(ErrorCode.NOT_CONTROLLER))
            return pending
        try:
            result = operation(self.driver.node.next_offset)
            response = result.response
            waiter = (lambda: pending.complete(response), pending.fail)
            batches = _batches(result)
            for batch in batches[:-1]:
                self._append(batch)
            if batches:
                self._append(batches[-1], waiter)
            else:
                self._wait(waiter)
        except KafkaError as error:
            pending.fail(error)
        return pending

    def write_no_op(self) -> None:
        """Advance the log end, so that followers and brokers see an active leader."""
        self._append([MessageAndVersion(NoOpRecord(), 0)])

    def _wait(self, waiter: tuple[Callable[[], object], Callable[[Exception], object]]) -> None:
        """Release a response when all preceding records are committed."""
        complete, fail = waiter
        if self._last_offset <= self.committed_offset:
            complete()
        else:
            self._waiting.append((self._last_offset, complete, fail))  # type: ignore[arg-type]  # results are dropped

    def _append(
        self,
        records: Sequence[MessageAndVersion],
        waiter: tuple[Callable[[], object], Callable[[Exception], object]] | None = None,
    ) -> None:
        values = [encode_record(record) for record in records]
        if sum(map(len, values)) + _RECORD_OVERHEAD_BYTES * len(values) > MAX_BATCH_BYTES:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "The request needs more records than one batch holds."
            )
        registry = self.controller.registry
        offset = self.driver.node.next_offset
        try:
            for record in records:
                self.controller.replay(record, offset)
                offset += 1
        except Exception:
            registry.revert_to(registry.latest_epoch)
            raise
        self._last_offset = offset - 1
        registry.snapshot(self._last_offset)
        now_ms = self._clock.now_ms()
        self._last_timestamp = now_ms
        self.last_append_ms = self._clock.monotonic_ms()
        epoch = self.driver.node.epoch
        self._uncommitted.append(_Appended(self._last_offset, epoch, now_ms, records))
        if waiter is not None:
            self._wait(waiter)
        self.driver.offer(values, now_ms)

    def _release(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.committed_offset:
            _, complete, _ = waiting.popleft()
            try:
                complete()
            except Exception:  # one failing callback must not block the others
                log.exception("a response could not be released")

    def _fail_all(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, _, fail in waiting:
            fail(error)

    # Snapshots

    def _maybe_snapshot(self) -> None:
        if self._is_writing_snapshot or self.loader.in_transaction:
            return
        if not self.loader.image.features.levels:  # the bootstrap records are not committed yet
            return
        if self._snapshots.due(self._clock.monotonic_ms()) is not None:
            self.write_snapshot()

    def write_snapshot(self) -> OffsetAndEpoch:
        """Write a snapshot of the current image, in slices; return its id."""
        last, node = self.loader.image.offset_and_epoch, self.driver.node
        snapshot_id = OffsetAndEpoch(last.offset + 1, last.leader_epoch)
        encoder = SnapshotEncoder(
            map(encode_record, self.loader.image.records()),
            now_ms=self._clock.now_ms(),
            leader_epoch=last.leader_epoch,
            last_contained_log_timestamp=self._last_timestamp,
            kraft_version=node.kraft_version,
            voters=node.voters,
        )
        self._snapshots.written(self._clock.monotonic_ms())
        self._is_writing_snapshot = True
        self._encode_slice(snapshot_id, encoder)
        return snapshot_id

    def _encode_slice(self, snapshot_id: OffsetAndEpoch, encoder: SnapshotEncoder) -> None:
        """Encode a slice; passing through a worker lets the event loop run in between."""
        if encoder.step(_RECORDS_PER_SLICE):
            self.driver.run_in_worker(_nobody, lambda *_: self._encode_slice(snapshot_id, encoder))
        else:
            self._write_down(snapshot_id, encoder.finish())

    def _write_down(self, snapshot_id: OffsetAndEpoch, parts: Sequence[Buffer]) -> None:
        write, written = self.driver.log.snapshot_writer(snapshot_id, parts)

        def done(_result: object, error: Exception | None) -> None:
            self._is_writing_snapshot = False
            if is_exhaustion(error):
                log.warning(
                    "the metadata snapshot %s is postponed: %s",
                    snapshot_id,
                    error,
                    extra={"event": "snapshot.put_off"},
                )
                return  # the log still has all records; the next snapshot follows when due
            if error is not None:
                self.failed(error)
                return
            written()
            self.retention()

        self.driver.run_in_worker(write, done)


def _nobody() -> None:
    """Do nothing."""


def _batches(result: ControllerResult[T]) -> list[Sequence[MessageAndVersion]]:
    """Split the records into batches: a single one if the result is atomic."""
    records = result.records
    step = len(records) if result.is_atomic else _RECORDS_PER_BATCH
    return [records[first : first + step] for first in range(0, len(records), max(1, step))]
