"""Executes the effects of the quorum state machine on this node's disk.

Kafka: the polling thread of org.apache.kafka.raft.KafkaRaftClient.

Only the flush of the log leaves the loop: it runs in a worker, and records that arrive during a
flush share the next one. The quorum state is written synchronously: later effects must not overtake
it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ottla.errors import KafkaError
from ottla.raft.messages import (
    AnnounceHighWatermark,
    AnnounceLeader,
    AnnounceResignation,
    AppendBatch,
    FlushLog,
    LogFlushed,
    PersistElection,
    RecordsOffered,
    ShutdownRequested,
    Started,
)
from ottla.storage.disk_errors import is_exhaustion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clock import Clock
    from ottla.raft.messages import Effect
    from ottla.raft.node import RaftNode
    from ottla.raft.quorum_state import QuorumStateStore
    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.types import Buffer

    RunInWorker: TypeAlias = Callable[
        [Callable[[], Any], Callable[[Any, Exception | None], None]], None
    ]


COMMITS_KEPT = 100


class RaftListener(Protocol):
    """Receives the changes of the quorum's state."""

    def became_leader(self, epoch: int, epoch_start_offset: int, /) -> None:
        """Handle that this node leads; its first record is written but not committed."""

    def batch_appended(self, last_offset: int, size_bytes: int, /) -> None:
        """Handle that offered records are in the log, not yet durable."""

    def high_watermark_moved(self, offset: int, /) -> None:
        """Handle that everything below offset is committed."""

    def resigned(self, epoch: int, /) -> None:
        """Handle that this node no longer leads."""

    def failed(self, error: Exception) -> None:
        """Handle a disk failure: no write may be acknowledged any more."""


class RaftDriver:
    """Connects one quorum state machine with one log."""

    __slots__ = (
        "_clock",
        "_flush_is_due",
        "_listener",
        "_store",
        "commit_latencies_ms",
        "failure",
        "log",
        "node",
        "run_in_worker",
    )

    def __init__(
        self,
        node: RaftNode,
        log: ReplicatedLog,
        store: QuorumStateStore,
        *,
        clock: Clock,
        run_in_worker: RunInWorker,
        listener: RaftListener,
    ) -> None:
        self.node = node
        self.log = log
        self.failure: Exception | None = None
        self.commit_latencies_ms: deque[int] = deque(maxlen=COMMITS_KEPT)
        """Of the last commits: milliseconds from the append to the end of its flush."""
        self._flush_is_due = False
        self._store = store
        self._clock = clock
        self.run_in_worker = run_in_worker
        self._listener = listener

    def start(self, now_ms: int) -> None:
        """Join the quorum."""
        self._run(self.node.handle(Started(self.log.end_offset), now_ms))

    def offer(self, values: Sequence[Buffer], now_ms: int) -> int:
        """Submit encoded records for one batch; return the last one's offset."""
        effects = self.node.handle(RecordsOffered(values), now_ms)
        last_offset = self.node.next_offset - 1
        self._run(effects)
        return last_offset

    def stop(self, now_ms: int) -> None:
        """Resign."""
        self._run(self.node.handle(ShutdownRequested(), now_ms))

    def _run(self, effects: list[Effect]) -> None:
        try:
            for effect in effects:
                self._carry_out(effect)
        except (OSError, KafkaError) as error:  # disk errors, raw or converted
            self._fail(error)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case AppendBatch(data, _, last_offset):
                epoch = self.node.epoch
                self.log.append(data, epoch=epoch, now_ms=self._clock.now_ms())
                self._listener.batch_appended(last_offset, len(data))
            case FlushLog():
                self._flush()
            case AnnounceHighWatermark(offset):
                self.log.update_high_watermark(offset)
                self._listener.high_watermark_moved(offset)
            case PersistElection(state):
                self._store.write(state, kraft_version=self.node.kraft_version)
            case AnnounceLeader(epoch, epoch_start_offset):
                self._listener.became_leader(epoch, epoch_start_offset)
            case AnnounceResignation(epoch):
                self._listener.resigned(epoch)

    def flush_again(self) -> None:
        """Retry a flush that failed for lack of file descriptors; called periodically."""
        if self._flush_is_due and self.failure is None:
            self._flush()

    def _flush(self) -> None:
        end_offset = self.log.end_offset
        start_ms = self._clock.monotonic_ms()
        job = self.log.start_flush(self._clock.now_ms())
        self._flush_is_due = job is None
        if job is None:
            return  # no descriptor was left: after an append there is always something to flush

        def flushed(_result: Any, error: Exception | None) -> None:
            failure = None if is_exhaustion(error) else error
            if error is None or isinstance(error, OSError):
                try:
                    self.log.flush_completed(job, error)
                except Exception as problem:  # noqa: BLE001 - after any error the log is not durable
                    failure = problem
            if failure is not None:
                self._fail(failure)
                return
            if error is not None:
                self._flush_is_due = True
                return
            self.commit_latencies_ms.append(self._clock.monotonic_ms() - start_ms)
            now_ms = self._clock.now_ms()
            self._run(self.node.handle(LogFlushed(end_offset), now_ms))

        self.run_in_worker(job.run, flushed)

    def _fail(self, error: Exception) -> None:
        """Stop for good: after a failed fsync the page cache may be clean and the data lost."""
        if self.failure is None:
            self.failure = error
            self._listener.failed(error)
