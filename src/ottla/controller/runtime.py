"""Runs the controller's shard over the quorum's log: replay ahead, answer at commit.

Kafka: the event queue, purgatory and log listener inside QuorumController; MetadataLoader's feed.

An operation's records are replayed when they are offered, so that the next operation decides on
the newest state; its answer waits until they are committed. What was committed goes to the
broker-side image and its listeners.
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
_RECORDS_A_SLICE = 250
"""Of a snapshot, encoded in one turn of the loop: some two milliseconds."""
_RECORDS_A_PIECE = 10_000
"""Of a result that need not be in one batch; each record of such is at most a few hundred bytes."""


class _Written(NamedTuple):
    """Records in the log that are not known to be committed."""

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
        self._uncommitted: deque[_Written] = deque()
        self._waiting: deque[tuple[int, Callable[[], None], Callable[[Exception], None]]] = deque()
        self._last_offset = -1
        self._last_timestamp = 0
        self._is_writing_snapshot = False

    # Start

    def load_snapshot(
        self, values: Sequence[bytes], snapshot_id: OffsetAndEpoch, timestamp: int
    ) -> None:
        """Begin with a snapshot, which is committed by its nature."""
        last = OffsetAndEpoch(snapshot_id.offset - 1, snapshot_id.leader_epoch)
        records = [decode_record(value) for value in values]
        for record in records:
            self.controller.replay(record, last.offset)
        self.loader.load_snapshot(records, last)
        self._last_offset = last.offset
        self._last_timestamp = timestamp

    def load_batch(self, batch: RecordBatch) -> None:
        """Replay a batch of records that the log holds; the image waits for its commit."""
        records: list[MessageAndVersion] = []
        for record in batch.records():
            if record.value == NO_OP_VALUE:
                continue
            decoded = decode_record(record.value)
            self.controller.replay(decoded, record.offset)
            records.append(decoded)
        if records:
            written = _Written(batch.last_offset, batch.leader_epoch, batch.max_timestamp, records)
            self._uncommitted.append(written)
        self._last_offset = batch.last_offset
        self._last_timestamp = batch.max_timestamp
        self._snapshots.committed(batch.size)

    # What the quorum tells

    def became_leader(self, _epoch: int, epoch_start_offset: int) -> None:
        """Take operations from now on; a new cluster begins with its first records."""
        self._last_offset = max(self._last_offset, epoch_start_offset)
        if not self.controller.in_transaction:
            self.controller.registry.snapshot(self._last_offset)
        self.active = True
        if self.controller.in_transaction:  # its writer died in the middle of it
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
        """Count what the next snapshot will spare."""
        self._snapshots.committed(size_bytes)

    def high_watermark_moved(self, offset: int) -> None:
        """Show what is committed: to the image, its listeners, and those who wait for answers."""
        delta = MetadataDelta(is_snapshot=self.committed_offset < 0)
        epoch = self.driver.node.epoch
        try:
            while self._uncommitted and self._uncommitted[0].last_offset < offset:
                written = self._uncommitted.popleft()
                self.loader.load_batch(
                    written.records, OffsetAndEpoch(written.last_offset, written.epoch), delta
                )
                if not self.controller.in_transaction:  # an abort goes back to its beginning
                    self.controller.registry.delete_up_to(written.last_offset)
            if not self.loader.in_transaction:
                self.loader.image.offset_and_epoch = OffsetAndEpoch(offset - 1, epoch)
            first = self.committed_offset < 0
            self.committed_offset = offset - 1
            if first or not delta.is_empty:
                self.loader.publish_from(delta, everything=first)
        except Exception as error:  # noqa: BLE001 - a record we cannot apply stops this node
            self.failed(error)
            return
        self._release()
        self._maybe_snapshot()

    def resigned(self, _epoch: int) -> None:
        """Fail what waits: whoever leads next decides about it."""
        self.active = False
        self._fail_all(KafkaError(ErrorCode.NOT_CONTROLLER))

    def failed(self, error: Exception) -> None:
        """Stop for good and tell the node."""
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
        """Run operation(next offset) now; its answer comes when its records are committed.

        The Pending fails with KafkaError NOT_CONTROLLER where this node does not lead, and with
        whatever KafkaError the operation raises.
        """
        pending: Pending[T] = Pending()
        if not self.active:
            pending.fail(KafkaError(ErrorCode.NOT_CONTROLLER))
            return pending
        try:
            result = operation(self.driver.node.next_offset)
            response = result.response
            waiter = (lambda: pending.complete(response), pending.fail)
            pieces = _pieces(result)
            for piece in pieces[:-1]:
                self._append(piece)
            if pieces:
                self._append(pieces[-1], waiter)
            else:
                self._wait(waiter)
        except KafkaError as error:
            pending.fail(error)
        return pending

    def write_no_op(self) -> None:
        """Move the log's end, so that followers and brokers see that we live."""
        self._append([MessageAndVersion(NoOpRecord(), 0)])

    def _wait(self, waiter: tuple[Callable[[], object], Callable[[Exception], object]]) -> None:
        """Release an answer when all that was decided before it is committed."""
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
        self._uncommitted.append(_Written(self._last_offset, epoch, now_ms, records))
        if waiter is not None:
            self._wait(waiter)
        self.driver.offer(values, now_ms)

    def _release(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.committed_offset:
            _, complete, _ = waiting.popleft()
            try:
                complete()
            except Exception:  # whoever waits must not stop the log for all others
                log.exception("an answer could not be given")

    def _fail_all(self, error: KafkaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, _, fail in waiting:
            fail(error)

    # Snapshots

    def _maybe_snapshot(self) -> None:
        if self._is_writing_snapshot or self.loader.in_transaction:
            return
        if not self.loader.image.features.levels:  # the cluster's first records are still to come
            return
        if self._snapshots.due(self._clock.monotonic_ms()) is not None:
            self.write_snapshot()

    def write_snapshot(self) -> OffsetAndEpoch:
        """Write the image of this moment down, in slices; return the snapshot's id."""
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
        self._encode_on(snapshot_id, encoder)
        return snapshot_id

    def _encode_on(self, snapshot_id: OffsetAndEpoch, encoder: SnapshotEncoder) -> None:
        """Encode a slice; the way over a worker lets the loop have turns in between."""
        if encoder.step(_RECORDS_A_SLICE):
            self.driver.run_in_worker(_nobody, lambda *_: self._encode_on(snapshot_id, encoder))
        else:
            self._write_down(snapshot_id, encoder.finish())

    def _write_down(self, snapshot_id: OffsetAndEpoch, parts: Sequence[Buffer]) -> None:
        write, written = self.driver.log.snapshot_writer(snapshot_id, parts)

        def done(_result: object, error: Exception | None) -> None:
            self._is_writing_snapshot = False
            if is_exhaustion(error):
                log.warning(
                    "the metadata snapshot %s waits for descriptors: %s",
                    snapshot_id,
                    error,
                    extra={"event": "snapshot.put_off"},
                )
                return  # the log holds all of it; the next snapshot comes when it is due
            if error is not None:
                self.failed(error)
                return
            written()
            self.retention()

        self.driver.run_in_worker(write, done)


def _nobody() -> None:
    """Nobody listens."""


def _pieces(result: ControllerResult[T]) -> list[Sequence[MessageAndVersion]]:
    """Return the records for one batch each: all for one, where they belong together."""
    records = result.records
    step = len(records) if result.is_atomic else _RECORDS_A_PIECE
    return [records[first : first + step] for first in range(0, len(records), max(1, step))]
