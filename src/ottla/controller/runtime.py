"""Runs the controller's shard over the quorum's log: replay, respond on commit, write snapshots.

The records of an operation are replayed when they are appended, so that the next operation reads
the newest state; the response is released when they are committed.

Kafka: the event queue, purgatory and log listener inside QuorumController;
org.apache.kafka.image.publisher.SnapshotGenerator, KafkaRaftClient's cleaner.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.controller.replayed_log import CatchUp
from ottla.errors import ErrorCode, KafkaError, LocalDiskError
from ottla.metadata.bootstrap import activation_records
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.protocol.records.metadata import AbortTransactionRecord, NoOpRecord
from ottla.purgatory.pending import OffsetQueue, Pending
from ottla.purgatory.work import NEXT_TURN
from ottla.raft.batch_accumulator import MAX_BATCH_BYTES
from ottla.raft.driver import RaftDriver
from ottla.raft.requests import NO_LEADER
from ottla.raft.snapshot import SnapshotEncoder
from ottla.storage.disk_errors import is_exhaustion
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.controller.replayed_log import ReplayedLog
    from ottla.controller.result import ControllerResult, Decision, Slices
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.work import Work
    from ottla.raft.driver import RunInWorker, SendRequest
    from ottla.raft.node import RaftNode
    from ottla.raft.quorum_state import QuorumStateStore
    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.raft.requests import LeaderAndEpoch

T = TypeVar("T")
log = logging.getLogger("ottla.controller")
_RECORD_OVERHEAD_BYTES = 32
_RECORDS_PER_BATCH = 10_000
"""Records of one batch of a result that is not atomic; each has at most a few hundred bytes."""
_MAX_UNCOMMITTED = 2000
"""Records beyond which the next slice waits: a commit applies all of them in one turn."""


class _SnapshotWriter:
    """Writes one snapshot at a time."""

    def __init__(
        self,
        replayed: ReplayedLog,
        driver: RaftDriver,
        *,
        loop: Loop,
        config: BrokerConfig,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._replayed = replayed
        self._driver = driver
        self._loop = loop
        self._clock = loop.clock
        self._config = config
        self._on_failure = on_failure
        self._is_writing = False

    def write_if_due(self) -> None:
        """Write a snapshot when one is due."""
        loader = self._replayed.loader
        if self._is_writing or loader.in_transaction:
            return
        if not loader.image.features.levels:  # the bootstrap records are not committed yet
            return
        if self._replayed.snapshots.due(self._clock.monotonic_ms()) is not None:
            self.write()

    def write(self) -> OffsetAndEpoch:
        """Begin to write a snapshot of the current image; return its id."""
        image, node = self._replayed.loader.image, self._driver.node
        last = image.offset_and_epoch
        snapshot_id = OffsetAndEpoch(last.offset + 1, last.leader_epoch)
        quorum = node.quorum_at(snapshot_id.offset)
        encoder = SnapshotEncoder(
            map(encode_record, image.records()),
            now_ms=self._clock.now_ms(),
            leader_epoch=last.leader_epoch,
            last_contained_log_timestamp=self._replayed.last_timestamp,
            kraft_version=quorum.kraft_version,
            voters=quorum.voters,
        )
        self._replayed.snapshots.written(self._clock.monotonic_ms())
        self._is_writing = True
        encoded = self._loop.worker.run(encoder.encode())
        encoded.on_done(lambda done: self._write_file(snapshot_id, encoder, done))
        return snapshot_id

    def _write_file(
        self, snapshot_id: OffsetAndEpoch, encoder: SnapshotEncoder, encoded: Pending[None]
    ) -> None:
        if encoded.error is not None:
            self._is_writing = False  # the next snapshot follows when due
            raise encoded.error
        write, written = self._driver.log.snapshot_writer(snapshot_id, encoder.finish())

        def done(_result: object, error: Exception | None) -> None:
            self._is_writing = False
            if is_exhaustion(error):
                log.warning(
                    "writing metadata snapshot %s is postponed: %s; free space on its disk",
                    snapshot_id,
                    error,
                    extra={"event": "snapshot.put_off"},
                )
                return  # the log still has all records; the next snapshot follows when due
            if error is not None:
                self._on_failure(error)
                return
            written()
            self._remove_old()

        self._driver.run_in_worker(write, done)

    def _remove_old(self) -> None:
        self._driver.log.clean(
            now_ms=self._clock.now_ms(),
            max_bytes=self._config.metadata_max_retention_bytes,
            max_age_ms=self._config.metadata_max_retention_ms,
        )


class _Waiter(NamedTuple):
    """What is called when records are committed, or cannot be any more."""

    complete: Callable[[], object]
    fail: Callable[[Exception], object]


class _Sliced(NamedTuple):
    """A decision that takes several turns of the event loop."""

    slices: Slices[ControllerResult[Any]]
    pending: Pending[Any]


class ControllerRuntime:
    """The active or standby controller of one member of the quorum."""

    def __init__(  # noqa: PLR0913 - it is built from all its parts
        self,
        replayed: ReplayedLog,
        raft: RaftNode,
        *,
        metadata_log: ReplicatedLog,
        store: QuorumStateStore,
        loop: Loop,
        config: BrokerConfig,
        run_in_worker: RunInWorker,
        send: SendRequest,
        on_deadline: Callable[[int], None],
        bootstrap: Sequence[MessageAndVersion],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Take the replayed log and the member of the quorum.

        send(node_id, endpoints, request) sends to another member; on_deadline(ms) is called with
        the time at which the driver's `tick` is due. on_failure(error) is called once when the disk
        failed or a record cannot be applied.
        """
        self.controller = replayed.controller
        self.active = False
        self.on_active: Callable[[], None] | None = None
        """Called when this controller begins to decide."""
        self.failure: Exception | None = None
        self.ready: Pending[None] = Pending()
        """Complete when everything committed is applied: by a standby what its leader says, by the
        active controller all of its log."""
        self.last_append_ms = 0
        """Monotonic time of the last append, for the idle NoOp."""
        self.driver = RaftDriver(
            raft,
            metadata_log,
            store,
            clock=loop.clock,
            run_in_worker=run_in_worker,
            listener=self,
            send=send,
            on_deadline=on_deadline,
            part_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
            read_bytes=config.controller_quorum_fetch_max_bytes,
            detects_failures=config.own.broker_failure_detection_enable,
        )
        self.snapshots = _SnapshotWriter(
            replayed, self.driver, loop=loop, config=config, on_failure=self.failed
        )
        self._catch_up = CatchUp(
            replayed,
            metadata_log,
            worker=loop.worker,
            run_in_worker=run_in_worker,
            on_caught_up=self._caught_up,
            on_failure=self.failed,
        )
        self._epoch_to_begin: int | None = None
        """That of a leadership which waits until all before it is applied."""
        self._replayed = replayed
        self._clock = loop.clock
        self._bootstrap = bootstrap
        self._min_insync_replicas = config.min_insync_replicas
        self._on_failure = on_failure
        self._waiting: OffsetQueue[_Waiter] = OffsetQueue()
        self._worker = loop.worker
        self._sliced: deque[_Sliced] = deque()
        self._room: Pending[None] | None = None
        """Complete when fewer records are uncommitted: the next slice waits for that."""

    def retry(self) -> None:
        """Retry what failed for lack of file descriptors; called periodically."""
        self.driver.retry()
        self._catch_up.retry_read()

    # Events of the quorum

    def became_leader(self, epoch: int, _epoch_start_offset: int) -> None:
        """Accept operations, once everything before the epoch is applied."""
        self._epoch_to_begin = epoch
        if self._catch_up.is_done:
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Accept operations; in a new cluster, append the bootstrap records."""
        epoch, self._epoch_to_begin = self._epoch_to_begin, None
        node = self.driver.node
        if self.failure is not None or (node.leader_id, node.epoch) != (node.node_id, epoch):
            return
        self._replayed.begin_epoch(node.next_offset - 1)
        self.active = True
        if self.controller.in_transaction:  # the previous leader did not complete it
            self._append([MessageAndVersion(AbortTransactionRecord(reason="a new leader"), 0)])
        if not self.controller.features.levels:
            self._append(
                activation_records(self._bootstrap, min_insync_replicas=self._min_insync_replicas)
            )
        now_ms = self._clock.monotonic_ms()
        cluster = self.controller.cluster
        for broker_id, broker in cluster.brokers.items():
            # This node's own broker starts with it and need not wait, other than in Kafka.
            is_own = broker_id == node.node_id
            cluster.heartbeats.begin(broker_id, now_ms, heard=not broker.fenced and not is_own)
        self._wait(_Waiter(lambda: self.ready.complete(None), lambda _error: None))
        if self.on_active is not None:
            self.on_active()

    def batch_appended(self, _last_offset: int, size_bytes: int) -> None:
        """Count the bytes for the snapshot policy."""
        self._replayed.snapshots.committed(size_bytes)

    def high_watermark_moved(self, offset: int) -> None:
        """Apply committed records to the image, notify its listeners and release responses."""
        if not self.active:
            self._catch_up.committed(offset)
            return
        try:
            self._replayed.commit(offset, self.driver.node.epoch)
        except Exception as error:  # noqa: BLE001 - a record that cannot be applied stops this node
            self.failed(error)
            return
        for waiter in self._waiting.take(self._replayed.committed_offset):
            _guarded(waiter.complete)
        self._make_room()
        self.snapshots.write_if_due()

    def _caught_up(self) -> None:
        """Begin a waiting epoch: everything that is committed is applied."""
        node = self.driver.node
        if node.leader_id not in {NO_LEADER, node.node_id}:
            self.ready.complete(None)
        self.snapshots.write_if_due()
        if self._epoch_to_begin is not None:
            self._begin_epoch()

    def epoch_changed(self, leader: LeaderAndEpoch) -> None:
        """Do nothing: operations fail where this node does not lead."""

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch) -> None:
        """Continue from a snapshot: one fetched from the leader, or the newest one at the start."""
        self._catch_up.snapshot_loaded(snapshot_id)

    def resigned(self, _epoch: int) -> None:
        """Fail waiting operations: the next leader decides whether they are committed."""
        self._epoch_to_begin = None
        if self.active:
            self.active = False
            self._replayed.end_epoch()
        self._fail_all(KafkaError(ErrorCode.NOT_CONTROLLER))

    def close(self) -> None:
        """Stop applying committed records: the log is being closed."""
        self._catch_up.close()

    def failed(self, error: Exception) -> None:
        """Stop permanently and notify the node."""
        if self.failure is not None:
            return
        self.failure = error
        self.active = False
        self.close()
        self.ready.fail(error)
        self._fail_all(LocalDiskError(f"the metadata log has failed: {error}"))
        self._on_failure(error)

    # Operations

    @property
    def next_offset(self) -> int:
        """The offset of the next record to be appended."""
        return self.driver.node.next_offset

    def write(self, operation: Callable[[], Decision[T]]) -> Pending[T]:
        """Run an operation now; the result is complete when its records are committed.

        Slices run one in a turn of the event loop, those of one operation after those of another:
        at 30 to 60 µs a partition each takes some milliseconds.
        The Pending fails with KafkaError NOT_CONTROLLER where this node does not lead, and with
        any KafkaError that the operation raises.
        """
        if not self.active:
            return Pending.failed(KafkaError(ErrorCode.NOT_CONTROLLER, self._where_it_is()))
        pending: Pending[T] = Pending()
        try:
            result = operation()
            if isinstance(result, Generator):
                self._sliced.append(_Sliced(result, pending))
                self._worker.run(self._run_slices(), self)
            else:
                self._finish(result, pending)
        except KafkaError as error:
            pending.fail(error)
        return pending

    def _run_slices(self) -> Work[None]:
        """Append the slices of the oldest sliced operation and its end, then those of the next."""
        while self._sliced:
            sliced = self._sliced[0]
            try:
                try:
                    records = next(sliced.slices)
                except StopIteration as end:
                    self._sliced.popleft()
                    self._finish(end.value, sliced.pending)
                else:
                    if records:
                        self._append(records)
            except Exception as error:
                if self._sliced and self._sliced[0] is sliced:
                    self._sliced.popleft()
                sliced.pending.fail(error)
                if not isinstance(error, KafkaError):
                    log.exception("a decision failed; report this as a bug of Ottla")
            if self._sliced:
                if self._uncommitted > _MAX_UNCOMMITTED:
                    self._room = Pending()
                yield NEXT_TURN if self._room is None else self._room

    @property
    def _uncommitted(self) -> int:
        return self._replayed.last_offset - self._replayed.committed_offset

    def _make_room(self) -> None:
        """Let the next slice run where it waits no longer for a commit."""
        room = self._room
        if room is not None and (not self._sliced or self._uncommitted <= _MAX_UNCOMMITTED):
            self._room = None
            room.complete(None)

    def _finish(self, result: ControllerResult[T], pending: Pending[T]) -> None:
        """Append the records of a result; its response is released when they are committed."""
        response = result.response
        waiter = _Waiter(lambda: pending.complete(response), pending.fail)
        # Split the records into batches: a single one if the result is atomic.
        records = result.records
        step = len(records) if result.is_atomic else _RECORDS_PER_BATCH
        batches = [records[first : first + step] for first in range(0, len(records), max(1, step))]
        for batch in batches[:-1]:
            self._append(batch)
        if batches:
            self._append(batches[-1], waiter)
        else:
            self._wait(waiter)

    def _where_it_is(self) -> str:
        leader_id = self.driver.node.leader_id
        if leader_id < 0:
            return "No controller appears to be active."
        return f"The active controller appears to be node {leader_id}."

    def write_no_op(self) -> None:
        """Advance the log end, so that followers and brokers see an active leader."""
        self._append([MessageAndVersion(NoOpRecord(), 0)])

    def _wait(self, waiter: _Waiter) -> None:
        """Release a response when all preceding records are committed."""
        last_offset = self._replayed.last_offset
        if last_offset <= self._replayed.committed_offset:
            waiter.complete()
        else:
            self._waiting.add(last_offset, waiter)

    def _append(
        self,
        records: Sequence[MessageAndVersion],
        waiter: _Waiter | None = None,
    ) -> None:
        values = [encode_record(record) for record in records]
        if sum(map(len, values)) + _RECORD_OVERHEAD_BYTES * len(values) > MAX_BATCH_BYTES:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "The request needs more records than one batch holds."
            )
        node, now_ms = self.driver.node, self._clock.now_ms()
        self._replayed.append(records, OffsetAndEpoch(node.next_offset, node.epoch), now_ms)
        self.last_append_ms = self._clock.monotonic_ms()
        if waiter is not None:
            self._wait(waiter)
        self.driver.offer(values, now_ms)

    def _fail_all(self, error: KafkaError) -> None:
        waiting = self._waiting.take_all()
        sliced, self._sliced = self._sliced, deque()
        self._make_room()
        for waiter in waiting:
            _guarded(partial(waiter.fail, error))
        for slices, pending in sliced:
            slices.close()
            _guarded(partial(pending.fail, error))


def _guarded(respond: Callable[[], object]) -> None:
    """Respond; a failing callback of one response must not block the others."""
    try:
        respond()
    except Exception:
        log.exception("a response could not be released; report this as a bug of Ottla")
