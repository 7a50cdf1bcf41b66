"""One loaded or loading partition: appends and replays records, waits for commits, reverts.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime.CoordinatorContext.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ottla.coordinator.runtime.loader import Loader
from ottla.coordinator.runtime.shard import (
    Result,
    Shard,
    ShardEnvironment,
    ShardTimers,
    empty_result,
)
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.purgatory.pending import OffsetQueue, Pending
from ottla.purgatory.work import NEXT_TURN
from ottla.records.batch import HEADER_BYTES, NO_PRODUCER_ID
from ottla.records.builder import assemble_batch, encode_batch
from ottla.records.control import encode_end_txn_marker
from ottla.timeline import SnapshotRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.coordinator.runtime.loader import LoadTimes
    from ottla.coordinator.runtime.log import CoordinatorLog
    from ottla.coordinator.runtime.shard import (
        Bulk,
        CoordinatorRecord,
        EndTransaction,
        Operation,
        TransactionalProducer,
    )
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.timing_wheel import TimerTask
    from ottla.purgatory.work import Work
    from ottla.records.builder import RecordInput

log = logging.getLogger("ottla.coordinator")
_LED_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_MAX_RECORD_OVERHEAD_BYTES = 21  # besides key and value: lengths, deltas, attributes
_END: Final[list[Any]] = []
"""The end of an iteration over lists, none of which is this one."""

S = TypeVar("S", bound=Shard)
T = TypeVar("T")


class ShardState(Enum):
    """The lifecycle states of a partition's shard."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    CLOSED = "Closed"


@dataclass(frozen=True, slots=True)
class RuntimeEnvironment:
    """Dependencies that all partitions of a runtime share."""

    log: CoordinatorLog
    loop: Loop
    write_timeout_ms: int
    on_fault: Callable[[Exception], None]
    name: str
    """Of the coordinator: "group"."""
    load_buffer_bytes: int


@dataclass(slots=True, eq=False)
class _Deferred:
    """A result that waits for its records' commit."""

    offset: int
    result: Result[Any]
    pending: Pending[Any]
    timeout: TimerTask | None = None
    done: bool = False

    def committed(self) -> None:
        """Take note that the records are committed, after a timeout as well."""
        if self.result.on_commit is not None:
            self.result.on_commit(self.offset - 1)
        self.finish(None)

    def finish(self, error: KafkaError | None) -> None:
        if self.done:
            return
        self.done = True
        if self.timeout is not None:
            self.timeout.cancel()
        if self.result.on_append is not None:
            self.result.on_append(error)
        if error is None:
            self.pending.complete(self.result.response)
        else:
            self.pending.fail(error)


class ActivePartition(Generic[S]):
    """A shard with its timelines, its position in the log and the deferred responses."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        environment: RuntimeEnvironment,
        make_shard: Callable[[ShardEnvironment], S],
        load_times: LoadTimes,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self._environment = environment
        self._registry = SnapshotRegistry()
        self._loop = environment.loop
        self._timers = ShardTimers(self._loop, self._run_timer, self._begin_writes)
        self.shard = make_shard(
            ShardEnvironment(partition, self._registry, self._timers, self._loop.clock)
        )
        self._load_times = load_times
        self._start_ms = self._loop.clock.monotonic_ms()
        self._loader = Loader(environment.log, partition, self.shard, environment.load_buffer_bytes)
        self._deferred: OffsetQueue[_Deferred] = OffsetQueue()
        self._written_offset = -1
        self._high_watermark = environment.log.high_watermark(partition)
        self._queue: deque[Callable[[], None]] = deque()
        self._is_running = False
        self._is_restarted = False
        """Whether the soft state was rebuilt after the load."""

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Start loading, in turns with other partitions."""
        self._loop.worker.run(self._load(), self)

    def close(self) -> None:
        """Stop; pending responses fail with NOT_COORDINATOR."""
        if self.state == ShardState.CLOSED:
            return
        was_active, self.state = self.state == ShardState.ACTIVE, ShardState.CLOSED
        self._timers.cancel_all()
        for waiting in self._deferred.take_all():
            self._guarded(partial(waiting.finish, KafkaError(ErrorCode.NOT_COORDINATOR)))
        if was_active:
            self.shard.on_unloaded()
        self._timers.cancel_all()  # timers that the responses above may have scheduled

    def _load(self) -> Work[None]:
        try:
            for _ in self._loader.run():
                yield
                if self.state != ShardState.LOADING:
                    return
            self._maybe_activate()
        except CorruptMessage as error:
            text = f"partition {self.partition} is damaged after offset {self._loader.position}"
            self._fail(CorruptMessage(f"{text}: {error.message}"))
        except Exception as error:  # noqa: BLE001 - a log that cannot be replayed must not kill the node
            self._fail(error)

    def _maybe_activate(self) -> None:
        target = self._loader.target
        if not self._loader.is_complete or self._high_watermark < target:
            return
        self._written_offset = target
        self._registry.snapshot(target)
        self.state = ShardState.ACTIVE
        now_ms = self._loop.clock.monotonic_ms()
        self._load_times.add(now_ms - self._start_ms, now_ms)
        self._log_loaded(now_ms - self._start_ms)
        self._loop.worker.run(self._restart(self.shard.on_loaded()))

    def _restart(self, steps: Iterator[None]) -> Work[None]:
        """Rebuild the soft state, while requests are served."""
        try:
            for _ in steps:
                yield
                if self.state != ShardState.ACTIVE:
                    return
            self._is_restarted = True
        except Exception as error:  # noqa: BLE001 - the same for inconsistent records
            self._fail(error)

    def _log_loaded(self, duration_ms: int) -> None:
        name, count = self._environment.name, self._loader.record_count
        if not count:
            return
        log.info(
            "%s coordinator loaded partition %d: %d records in %d ms",
            name,
            self.partition,
            count,
            duration_ms,
            extra={"event": "coordinator.loaded", "partition": self.partition},
        )

    def _fail(self, error: Exception) -> None:
        """Stop serving this partition; other partitions are unaffected."""
        self.state = ShardState.FAILED
        self._timers.cancel_all()
        self._environment.on_fault(error)

    # ---------------------------------------------------------------- operations

    def write(
        self, operation: Callable[[S], Result[T]], producer: TransactionalProducer | None = None
    ) -> Pending[T]:
        """Run operation, append and replay its records; respond when they are committed.

        Operations run one at a time: work triggered by a response runs after its operation ends.
        """
        pending: Pending[T] = Pending()
        self._in_turn(self._run_write, operation, pending, producer)
        return pending

    def end_transaction(self, end: EndTransaction) -> Pending[None]:
        """Append and replay the marker of a transaction; done when it is committed."""
        pending: Pending[None] = Pending()
        self._in_turn(self._run_end, end, pending)
        return pending

    def read(self, operation: Callable[[S, int], T]) -> Pending[T]:
        """Run operation on the committed state; it receives the committed epoch."""
        pending: Pending[T] = Pending()

        def run() -> None:
            try:
                self._check_active()
                value = operation(self.shard, self.committed_epoch)
            except KafkaError as error:
                pending.fail(error)
            except Exception as error:  # noqa: BLE001 - a fault in one request is answered, not fatal
                self._environment.on_fault(error)
                pending.fail(error)
            else:
                pending.complete(value)

        self._in_turn(run)
        return pending

    @property
    def committed_epoch(self) -> int:
        """The snapshot that holds the committed state."""
        return self._registry.oldest_epoch

    def _in_turn(self, step: Callable[..., None], *arguments: Any) -> None:
        """Run a step now; one that is begun within another step runs after that.

        The error of a step reaches its caller; the caller of a queued one is gone.
        """
        if self._is_running:
            self._queue.append(partial(step, *arguments))
            return
        self._is_running = True
        try:
            step(*arguments)
        finally:
            # Run the steps that were begun within another one, and within these.
            try:
                while self._queue:
                    self._guarded(self._queue.popleft())
            finally:
                self._is_running = False

    def _run_end(self, end: EndTransaction, pending: Pending[None]) -> None:
        try:
            self._check_active()
        except KafkaError as error:
            pending.fail(error)
        else:
            self._finish_when_committed(empty_result(), pending, lambda: self._append_marker(end))

    def _run_write(
        self,
        operation: Callable[[S], Result[T]],
        pending: Pending[T],
        producer: TransactionalProducer | None,
    ) -> None:
        try:
            self._check_active()
            result = operation(self.shard)
        except KafkaError as error:
            pending.fail(error)
        except Exception as error:  # noqa: BLE001 - a fault in one request is answered, not fatal
            self._environment.on_fault(error)
            pending.fail(error)
        else:
            append = None
            if result.bulk is not None:
                append = partial(self._append_bulk, result.bulk)
            elif result.records:
                append = partial(self._append_all, result, producer)
            self._finish_when_committed(result, pending, append)

    def _check_active(self) -> None:
        if self.state == ShardState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state != ShardState.ACTIVE:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _run_timer(self, operation: Operation, on_error: Callable[[Exception], None]) -> None:
        def finished(done: Pending[None]) -> None:
            if done.error is not None and self.state == ShardState.ACTIVE:
                on_error(done.error)

        self.write(lambda _shard: operation()).on_done(finished)

    def _begin_writes(self, slices: Iterator[list[CoordinatorRecord] | None]) -> Pending[None]:
        def report(done: Pending[None]) -> None:
            if done.error is not None and not isinstance(done.error, KafkaError):
                self._environment.on_fault(done.error)

        written = self._loop.worker.begin(self._write_each(slices))
        written.on_done(report)
        return written

    def _write_each(self, slices: Iterator[list[CoordinatorRecord] | None]) -> Work[None]:
        """Write lists of records, each once the one before it is committed.

        A list is appended in the step that computes it: no operation comes between.
        """
        while self.state == ShardState.ACTIVE:
            records = next(slices, _END)
            if records is _END:
                return
            if records is None:
                yield
                continue
            written: Pending[None] = Pending.of(None)
            if records:
                result = Result(None, records, atomic=False)
                written = self.write(lambda _shard, result=result: result)  # type: ignore[misc] # a lambda's default binds the loop's value
            yield NEXT_TURN if written.succeeded else written

    # ---------------------------------------------------------------- append and commit

    def _finish_when_committed(
        self, result: Result[T], pending: Pending[T], append: Callable[[], None] | None
    ) -> None:
        deferred = _Deferred(self._written_offset, result, pending)
        if append is not None:
            try:
                append()
            except KafkaError as error:
                if not result.atomic and error.code not in _LED_ELSEWHERE:
                    self._environment.on_fault(error)  # no caller sees this error
                deferred.finish(error)
                return
            except Exception as error:  # noqa: BLE001 - state was reverted; answered as unknown
                self._environment.on_fault(error)
                deferred.finish(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
                return
            deferred.offset = self._written_offset
        if deferred.offset <= self._high_watermark and not self._deferred:
            deferred.committed()
            return
        self._deferred.add(deferred.offset, deferred)
        deferred.timeout = self._loop.timer.add(
            self._loop.clock.monotonic_ms() + self._environment.write_timeout_ms,
            lambda _now_ms: deferred.finish(KafkaError(ErrorCode.REQUEST_TIMED_OUT)),
        )
        self._release()

    def _append_all(self, result: Result[Any], producer: TransactionalProducer | None) -> None:
        now_ms = self._loop.clock.now_ms()
        entries: list[RecordInput] = [
            (now_ms, *self.shard.encode(record), ()) for record in result.records
        ]
        if result.atomic:
            self._append(result.records, entries, producer)
            return
        limit_bytes = self._environment.log.max_batch_bytes(self.partition)
        start = 0
        for end in _ends_of_batches(entries, limit_bytes):
            self._append(result.records[start:end], entries[start:end], producer)
            start = end

    def _append(
        self,
        records: list[CoordinatorRecord],
        entries: list[RecordInput],
        producer: TransactionalProducer | None,
    ) -> None:
        """Replay, then append as one batch; either both happen or neither."""
        before = self._written_offset
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        verification: object = None
        if producer is None:
            batch = encode_batch(entries, leader_epoch=self.leader_epoch)
        else:
            verification = producer.verification
            batch = encode_batch(
                entries,
                leader_epoch=self.leader_epoch,
                producer_id=producer_id,
                producer_epoch=producer.producer_epoch,
                transactional=True,
            )

        if len(batch) > self._environment.log.max_batch_bytes(self.partition):
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)  # before the replay, which may be long

        def replay() -> None:
            replay_one = self.shard.replay
            for offset, record in enumerate(records, before):
                replay_one(offset, producer_id, record)

        self._replay_and_append(replay, batch, verification=verification)

    def _append_bulk(self, bulk: Bulk) -> None:
        now_ms = self._loop.clock.now_ms()
        batch = assemble_batch(
            bulk.encode(),
            attributes=0,
            record_count=bulk.count,
            last_offset_delta=bulk.count - 1,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            leader_epoch=self.leader_epoch,
        )
        if len(batch) > self._environment.log.max_batch_bytes(self.partition):
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        self._replay_and_append(partial(bulk.replay, self._written_offset), batch)

    def _append_marker(self, end: EndTransaction) -> None:
        batch = encode_end_txn_marker(
            commit=end.committed,
            coordinator_epoch=end.coordinator_epoch,
            timestamp=self._loop.clock.now_ms(),
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            leader_epoch=self.leader_epoch,
        )

        def replay() -> None:
            self.shard.replay_end_transaction(end.producer_id, committed=end.committed)

        self._replay_and_append(replay, batch, transaction_version=end.transaction_version)

    def _replay_and_append(
        self,
        replay: Callable[[], None],
        batch: bytearray,
        *,
        verification: object = None,
        transaction_version: int = -1,
    ) -> None:
        before = self._written_offset
        try:
            replay()
            self._written_offset = self._environment.log.append(
                self.partition,
                batch,
                self.leader_epoch,
                verification=verification,
                transaction_version=transaction_version,
            )
        except Exception:
            self._registry.revert_to(before)
            raise
        self._registry.snapshot(self._written_offset)
        self._forget_past()

    def on_high_watermark(self, offset: int) -> None:
        """Record that all offsets below offset are committed; release the deferred responses."""
        if offset <= self._high_watermark:
            return
        self._high_watermark = offset
        self._in_turn(self._after_commit)

    def _after_commit(self) -> None:
        if self.state == ShardState.LOADING:
            self._maybe_activate()
        elif self.state == ShardState.ACTIVE:
            self._forget_past()
            self._release()

    def stalls(self) -> Iterator[str]:
        """Yield what waits here although nothing that is to come ends it."""
        committed = self._high_watermark
        if self.state is ShardState.LOADING:
            is_loaded = self._loader.is_complete
            if not is_loaded and self not in self._loop.worker:
                yield f"partition {self.partition} loads in no turn"
            if is_loaded and committed >= self._loader.target:
                yield f"partition {self.partition} is loaded and not active"
        elif self.state is ShardState.ACTIVE:
            first_offset = self._deferred.first_offset
            if self._queue or self._is_running:
                yield f"partition {self.partition} has operations that are not run"
            if first_offset is not None and first_offset <= committed:
                yield f"partition {self.partition} does not answer what is committed"
            if self._is_restarted:
                yield from self.shard.stalls(is_writing=first_offset is not None)

    def _forget_past(self) -> None:
        self._registry.delete_before_last_at(self._high_watermark)

    def _release(self) -> None:
        for waiting in self._deferred.take(self._high_watermark):
            self._guarded(waiting.committed)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step, such as a response; its error must not block the others."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - reported
            self._environment.on_fault(error)


def _ends_of_batches(entries: list[RecordInput], limit_bytes: int) -> list[int]:
    """Return the split points that keep each batch within the limit; one record may exceed it."""
    ends = []
    size = HEADER_BYTES
    for index, (_, key, value, _) in enumerate(entries):
        more = _MAX_RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        if size + more > limit_bytes and size > HEADER_BYTES:
            ends.append(index)
            size = HEADER_BYTES
        size += more
    return [*ends, len(entries)]
