"""Executes the effects of the quorum state machine: on this node's disk, and to other members.

Kafka: the polling thread of org.apache.kafka.raft.KafkaRaftClient.

Changes of the log are made at once, so that the machine decides on the newest state. What others
can see (requests, responses, announcements) waits in order while the election state is being
written: nothing that follows from a vote leaves before the vote is on disk. Flushes, the election
state and snapshots are written by workers: the loop waits for no disk.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.errors.base import ConnectionRefused
from ottla.purgatory.pending import Pending
from ottla.raft.messages import (
    AnnounceEpoch,
    AnnounceHighWatermark,
    AnnounceLeader,
    AnnounceResignation,
    AnnounceSnapshot,
    AppendBatch,
    AppendRecords,
    AppendRejected,
    FlushLog,
    KRaftVersionOffered,
    LogFlushed,
    PersistElection,
    RecordsAppended,
    RecordsOffered,
    RequestReceived,
    Respond,
    ResponseReceived,
    RestartLog,
    Send,
    ShutdownRequested,
    SnapshotPartStored,
    SnapshotRejected,
    SnapshotVerified,
    StoreSnapshotPart,
    TruncateLog,
    VerifySnapshot,
)
from ottla.raft.replicated_log import READ_BYTES, whole_batches
from ottla.raft.requests import (
    NO_LEADER,
    FetchResponse,
    FetchSnapshotResponse,
    LeaderAndEpoch,
    Vote,
    VoteResponse,
)
from ottla.raft.roles import Resigned
from ottla.raft.snapshot import PART_BYTES
from ottla.storage.disk_errors import is_exhaustion
from ottla.storage.log.append_info import UnexpectedAppendOffset
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ottla.clock import Clock
    from ottla.raft.messages import Effect, Event
    from ottla.raft.node import RaftNode
    from ottla.raft.quorum_state import QuorumStateStore
    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.raft.requests import Request, Response
    from ottla.raft.voter_set import VoterAddress
    from ottla.types import Buffer, OffsetAndEpoch

    RunInWorker: TypeAlias = Callable[
        [Callable[[], Any], Callable[[Any, Exception | None], None]], None
    ]
    SendRequest: TypeAlias = Callable[[int, tuple[VoterAddress, ...], Request], Pending[Response]]
    """Sends to a node, or for ids below -1 to a bootstrap server; fails when there is no answer."""

COMMITS_KEPT = 100
_LATE_MS: Final = 5000
"""A timer that is later than this was not set; a busy loop delays it by less."""
log = logging.getLogger("ottla.raft")


def _unsupported(request: Request, error: BaseException | None) -> Response | None:
    """Return the answer of a voter that knows no pre-votes; None for one that does not answer."""
    if not isinstance(request, Vote) or not isinstance(error, KafkaError):
        return None
    if error.code is not ErrorCode.UNSUPPORTED_VERSION:
        return None
    return VoteResponse(error.code, LeaderAndEpoch(NO_LEADER, -1))


class RaftListener(Protocol):
    """Receives the changes of the quorum's state."""

    def became_leader(self, epoch: int, epoch_start_offset: int, /) -> None:
        """Handle that this node leads; its epoch's first record is committed."""

    def batch_appended(self, last_offset: int, size_bytes: int, /) -> None:
        """Handle that offered records are in the log, not yet durable."""

    def high_watermark_moved(self, offset: int, /) -> None:
        """Handle that everything below offset is committed."""

    def epoch_changed(self, leader: LeaderAndEpoch, /) -> None:
        """Handle that another node leads, or none that is known."""

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch, /) -> None:
        """Handle that the log begins at the end of a snapshot from the leader now."""

    def resigned(self, epoch: int, /) -> None:
        """Handle that this node no longer leads."""

    def failed(self, error: Exception) -> None:
        """Handle a disk failure: no write may be acknowledged any more."""


class RaftDriver:
    """Connects one quorum state machine with one log and the other members."""

    __slots__ = (
        "_clock",
        "_detects_failures",
        "_effects",
        "_flush_is_due",
        "_held",
        "_is_persisting",
        "_is_running",
        "_listener",
        "_on_deadline",
        "_part_bytes",
        "_read_bytes",
        "_send",
        "_stopped",
        "_store",
        "_unreachable",
        "_unwritten",
        "commit_latencies_ms",
        "failure",
        "log",
        "node",
        "run_in_worker",
    )

    def __init__(  # noqa: PLR0913 - its environment, by name
        self,
        node: RaftNode,
        log: ReplicatedLog,
        store: QuorumStateStore,
        *,
        clock: Clock,
        run_in_worker: RunInWorker,
        listener: RaftListener,
        send: SendRequest,
        on_deadline: Callable[[int], None],
        part_bytes: int = PART_BYTES,
        read_bytes: int = READ_BYTES,
        detects_failures: bool = True,
    ) -> None:
        """on_deadline(ms) is called with the time at which `tick` is due, in monotonic ms.

        part_bytes is how much of a snapshot a response carries, read_bytes how much of the log.
        detects_failures lets a voter stand for election when its leader's port refuses connections.
        """
        self.node = node
        self.log = log
        self.failure: Exception | None = None
        self.commit_latencies_ms: deque[int] = deque(maxlen=COMMITS_KEPT)
        """Of the last commits: milliseconds from the append to the end of its flush."""
        self._effects: deque[Effect] = deque()
        self._held: deque[Effect] = deque()
        """Effects that others can see, while the election state is being written."""
        self._is_persisting = False
        self._is_running = False
        self._flush_is_due = False
        self._unwritten: StoreSnapshotPart | VerifySnapshot | None = None
        """The snapshot step to retry: no descriptor was free."""
        self._stopped: Pending[None] | None = None
        self._unreachable: set[int] = set()
        """Nodes that could not be notified of the resignation: they are down, or stop as well."""
        self._store = store
        self._clock = clock
        self.run_in_worker = run_in_worker
        self._listener = listener
        self._send = send
        self._on_deadline = on_deadline
        self._part_bytes = part_bytes
        self._read_bytes = read_bytes
        self._detects_failures = detects_failures

    def tick(self) -> None:
        """Process expired deadlines; the first call joins the quorum."""
        self._run([])

    def offer(self, values: Sequence[Buffer], timestamp_ms: int) -> int:
        """Submit encoded records for one batch; return the last one's offset."""
        effects = self._handle(RecordsOffered(values, timestamp_ms))
        last_offset = self.node.next_offset - 1
        self._run(effects)
        return last_offset

    def raise_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Raise the quorum's feature level; KafkaError when the quorum cannot have it."""
        self.node.check_kraft_version(level)
        if not validate_only:
            self._happened(KRaftVersionOffered(level))

    def request(self, request: Request) -> Pending[Any]:
        """Take another member's request; the result is the response."""
        pending: Pending[Any] = Pending()
        self._happened(RequestReceived(request, pending))
        return pending

    def stop(self) -> Pending[None]:
        """Resign; complete when the other voters have acknowledged it, or cannot be reached.

        It is complete at once where this node does not lead.
        """
        stopped = self._stopped = Pending()
        self._happened(ShutdownRequested())
        self._check_stopped()
        return stopped

    def stalls(self) -> Iterator[str]:
        """Yield what waits between two events although nothing that is to come ends it."""
        if self.failure is not None or self._is_running:
            return
        if self._effects:
            yield f"{len(self._effects)} effects of the quorum are not executed"
        if self._held and not self._is_persisting:
            yield f"{len(self._held)} effects of the quorum are held for no write"
        if self._clock.monotonic_ms() > self.node.deadline_ms + _LATE_MS:
            yield "the quorum's deadline has passed, and no timer has come"
        is_due = self._flush_is_due or self._unwritten is not None  # `retry` comes periodically
        if not is_due:
            yield from self.node.stalls()

    def _check_stopped(self) -> None:
        role = self.node.role
        if self._stopped is None:
            return
        if not isinstance(role, Resigned) or role.unacknowledged <= self._unreachable:
            self._stopped.complete(None)

    # The machine

    def _handle(self, event: Event) -> list[Effect]:
        return self.node.handle(event, self._clock.monotonic_ms())

    def _happened(self, event: Event) -> None:
        if self.failure is None:
            self._run(self._handle(event))

    def _run(self, effects: list[Effect]) -> None:
        """Execute effects, and those that are due after them, until none is left."""
        self._effects.extend(effects)
        if self._is_running or self.failure is not None:
            return
        self._is_running = True
        try:
            self._execute_all()
        except (OSError, KafkaError) as error:  # disk errors, raw or converted
            self._fail(error)
        finally:
            self._is_running = False
        self._check_stopped()
        self._on_deadline(self.node.deadline_ms)

    def _execute_all(self) -> None:
        while True:
            while self._held and not self._is_persisting:
                self._perform(self._held.popleft())
            while self._effects:
                self._execute(self._effects.popleft())
            self._effects.extend(self.node.poll(self._clock.monotonic_ms()))
            if not self._effects:
                return

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Send():  # the most frequent one
                self._show(effect)
            case AppendBatch(data, _, last_offset):
                now_ms = self._clock.now_ms()
                self.log.append(data, epoch=self.node.epoch, now_ms=now_ms)
                self._listener.batch_appended(last_offset, len(data))
            case AppendRecords(data, epoch):
                self._append_records(data, epoch, self._clock.now_ms())
            case TruncateLog(end_offset):
                self.log.truncate_to(end_offset, now_ms=self._clock.now_ms())
            case RestartLog(snapshot_id):
                self.log.restart_at(snapshot_id, now_ms=self._clock.now_ms())
            case FlushLog(truncation_count):
                self._flush(truncation_count)
            case StoreSnapshotPart() | VerifySnapshot():
                self._write_snapshot(effect)
            case Respond():
                self._respond(effect)
            case _:
                self._show(effect)

    def _append_records(self, data: Buffer, epoch: int, now_ms: int) -> None:
        try:
            control = self.log.append_replicated(data, epoch=epoch, now_ms=now_ms)
        except (CorruptMessage, UnexpectedAppendOffset) as error:
            text = "records of the quorum's leader are invalid: %s; they are fetched again"
            log.warning(text, error, extra={"event": "quorum.refused"})
            self._effects.extend(self._handle(AppendRejected()))
        else:
            self._effects.extend(self._handle(RecordsAppended(control)))

    def _respond(self, effect: Respond) -> None:
        """Answer with what is read for it; a worker reads what may wait for the disk."""
        token, response = effect
        if isinstance(response, FetchResponse) and response.read_offset >= 0:
            data = self.log.find_bytes(response.read_offset, self._read_bytes)
            if isinstance(data, FileSlice):
                self._read_cold(token, response, data)
                return
            response = response._replace(records=data)
        elif isinstance(response, FetchSnapshotResponse) and response.size_bytes:
            self._read_part(token, response)
            return
        self._show(Respond(token, response))

    def _read_cold(self, token: Pending[Any], response: FetchResponse, piece: FileSlice) -> None:
        piece.file.pin()
        read_from = self._log_version

        def read(data: bytes | None, error: Exception | None) -> None:
            piece.file.unpin()
            if error is not None and not is_exhaustion(error):
                self._fail(error)
            elif data is not None and read_from == self._log_version:
                self._show(Respond(token, response._replace(records=whole_batches(data))))
            else:  # the log may hold other records there now; the follower retries
                self._show(Respond(token, response))

        self.run_in_worker(piece.read, read)

    @property
    def _log_version(self) -> tuple[int, int]:
        """While it stays the same, the records below the log's end do."""
        return self.node.epoch, self.node.truncation_count

    def _read_part(self, token: Pending[Any], response: FetchSnapshotResponse) -> None:
        snapshot_id, position = response.snapshot_id, response.position

        def read(data: bytes | None, error: Exception | None) -> None:
            if data is not None:
                self._show(Respond(token, response._replace(data=data)))
            elif is_exhaustion(error) or isinstance(error, FileNotFoundError):
                text = (
                    "a part of snapshot %s cannot be read for a follower, which retries: %s; "
                    "if it goes on, raise the limit of open files"
                )
                log.warning(text, snapshot_id, error, extra={"event": "snapshot.unread"})
                code = ErrorCode.UNKNOWN_SERVER_ERROR
                refused = FetchSnapshotResponse(code, response.leader, snapshot_id)
                self._show(Respond(token, refused))
            elif error is not None:
                self._fail(error)

        part = partial(self.log.read_snapshot_part, snapshot_id, position, self._part_bytes)
        self.run_in_worker(part, read)

    # What others see

    def _show(self, effect: Effect) -> None:
        """Execute a visible effect, once an election state that is being written is durable."""
        if self._is_persisting or self._held:
            self._held.append(effect)
        else:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case PersistElection():
                self._persist(effect)
            case Respond(token, response):
                token.complete(response)
            case Send():
                self._send_request(effect)
            case AnnounceHighWatermark(offset):
                self.log.update_high_watermark(offset)
                self._listener.high_watermark_moved(offset)
            case AnnounceLeader(epoch, epoch_start_offset):
                self._listener.became_leader(epoch, epoch_start_offset)
            case AnnounceEpoch(leader):
                self._listener.epoch_changed(leader)
            case AnnounceSnapshot(snapshot_id):
                self._listener.snapshot_loaded(snapshot_id)
            case AnnounceResignation(epoch):
                self._listener.resigned(epoch)

    def _persist(self, effect: PersistElection) -> None:
        self._is_persisting = True
        store, state, kraft_version = self._store, effect.state, self.node.kraft_version

        def persisted(_result: Any, error: Exception | None) -> None:
            self._is_persisting = False
            if error is not None:
                self._fail(error)
            else:
                self._run([])

        self.run_in_worker(lambda: store.write(state, kraft_version=kraft_version), persisted)

    def _send_request(self, effect: Send) -> None:
        correlation_id = effect.correlation_id

        def answered(done: Pending[Response]) -> None:
            response = _unsupported(effect.request, done.error)
            if done.error is None:
                response = done.value
            if response is None and self._stopped is not None:
                self._unreachable.add(effect.node_id)
            is_refused = isinstance(done.error, ConnectionRefused) and self._detects_failures
            self._happened(ResponseReceived(correlation_id, response, is_refused))

        self._send(effect.node_id, effect.endpoints, effect.request).on_done(answered)

    # The disk

    def retry(self) -> None:
        """Retry what failed for lack of file descriptors; called periodically."""
        if self._flush_is_due and self.failure is None:
            self._flush(self.node.truncation_count)
        effect, self._unwritten = self._unwritten, None
        if effect is not None and self.failure is None:
            self._write_snapshot(effect)

    def _flush(self, truncation_count: int) -> None:
        end_offset = self.log.end_offset
        start_ms = self._clock.monotonic_ms()
        job = self.log.start_flush(self._clock.now_ms())
        self._flush_is_due = job is None and not self.log.is_durable
        if job is None:
            if not self._flush_is_due:  # everything that was written is truncated again
                self._effects.extend(self._handle(LogFlushed(end_offset, truncation_count)))
            return  # no descriptor was left

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
            self._happened(LogFlushed(end_offset, truncation_count))

        self.run_in_worker(job.run, flushed)

    def _write_snapshot(self, effect: StoreSnapshotPart | VerifySnapshot) -> None:
        snapshot_id = effect.snapshot_id
        download = self.log.download(snapshot_id)

        def done(result: Any, error: Exception | None) -> None:
            if isinstance(error, CorruptMessage):
                self._happened(SnapshotRejected(snapshot_id))
            elif is_exhaustion(error):
                self._unwritten = effect
            elif error is not None:
                self._fail(error)
            elif result is None:
                self._happened(SnapshotPartStored(snapshot_id))
            else:
                self._happened(SnapshotVerified(snapshot_id, *result))

        if isinstance(effect, StoreSnapshotPart):
            self.run_in_worker(lambda: download.store(effect.position, effect.data), done)
        else:
            self.run_in_worker(lambda: download.finish(snapshot_id), done)

    def _fail(self, error: Exception) -> None:
        """Stop for good: after a failed fsync the page cache may be clean and the data lost."""
        if self.failure is None:
            self.failure = error
            self._listener.failed(error)
