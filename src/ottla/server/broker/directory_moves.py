"""Moves of replicas between this broker's log directories: requests, progress, completion.

A limited number of moves copy at a time; the others are queued. Reads and flushes run in workers of
their own. Appends run on the loop in pieces of at most 128 batches and 256 KiB, or of one batch,
with a pause after each: requests go first.

Kafka: kafka.server.{ReplicaAlterLogDirsManager, ReplicaAlterLogDirsThread},
ReplicaManager.alterReplicaLogDirs.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError, LocalDiskError
from ottla.replication.directory_move import DirectoryMove, MoveState, Need, Read
from ottla.storage.directories.partition_dir_names import check_future_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.partition import PartitionRegistration
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.timing_wheel import TimerTask
    from ottla.quota.replication import ReplicationQuota
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.directory_assignments import DirectoryAssignments
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.types import TopicPartition

log = logging.getLogger("ottla.replication")
_PAUSE_MS: Final = 1
"""Pause after each appended piece."""
_POLL_INTERVAL_MS: Final = 100
"""Interval of polls of a move that waits for the controller or for the throttle."""
_TAIL_BYTES: Final = 65_536
"""Limit of a read on the loop that completes the copy: just appended, it is in the page cache."""
_TAIL_PIECES: Final = 8
"""Such reads in one turn."""


def concurrent_moves(config: BrokerConfig) -> int:
    """Return num.replica.alter.log.dirs.threads, by default one for each directory."""
    return max(config.num_replica_alter_log_dirs_threads or len(config.data_directories), 1)


class DirectoryMoves:
    """The moves of one broker by partition; owned by its loop."""

    def __init__(
        self,
        metadata: BrokerMetadata,
        replicas: ReplicaSet,
        assignments: DirectoryAssignments,
        *,
        quota: ReplicationQuota,
        run_on_volume: RunOnVolume,
        loop: Loop,
        on_exchanged: Callable[[PartitionLog], object],
    ) -> None:
        """on_exchanged(old) is called with each log that was replaced by its future log."""
        config = metadata.config
        self._metadata = metadata
        self._replicas = replicas
        self._logs = replicas.logs
        self._assignments = assignments
        self._quota = quota
        self._run_on_volume = run_on_volume
        self._clock = loop.clock
        self._timer = loop.timer
        self._on_exchanged = on_exchanged
        self._max_copying = concurrent_moves(config)
        self._moves: dict[TopicPartition, DirectoryMove] = {}
        self._queue: deque[DirectoryMove] = deque()
        self._copying: set[DirectoryMove] = set()
        self._continuations: dict[DirectoryMove, TimerTask | None] = {}
        """The one thing that continues each started move: a timer, or a worker (None)."""
        self.failed_count = 0
        """Moves that ended with an error since the start."""
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._moves)

    @property
    def max_lag(self) -> int:
        """The largest lag of a future log behind its partition's log, in records."""
        return max((move.lag for move in self._moves.values()), default=0)

    def close(self) -> None:
        """Stop all moves; the next start continues them from their future logs."""
        self._is_closed = True

    # Requests

    def request(self, name: TopicPartition, path: str) -> None:
        """Begin to move a replica into a directory, or change or end a move in progress.

        Raises KafkaError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR for an offline directory or
        replica, INVALID_REPLICA_ASSIGNMENT for a cordoned directory (KIP-1066),
        REPLICA_NOT_AVAILABLE for a replica that this broker does not have; the directory is then
        used when the replica is created.
        """
        log_dir = self._target(name, path)
        partition = self._replicas.find(*name)
        if partition is not None and partition.log.failure is not None:
            raise LocalDiskError(f"Partition {name} is offline")
        future_dir = self._logs.futures.log_dir_of(name)
        if future_dir is not None and future_dir is not log_dir:
            self.cancel(name)
        current_dir = self._logs.log_dir_of(name)
        if log_dir not in (current_dir, self._logs.futures.log_dir_of(name)):
            self._logs.preferred[name] = log_dir
        if partition is None:
            raise KafkaError(self._why_missing(name))
        if log_dir is current_dir:
            return
        if future_dir is not log_dir:
            self._logs.futures.create(
                name, log_dir, topic_id=partition.topic_id, now_ms=self._clock.now_ms()
            )
        self._begin(partition, is_assigned=False)

    def _target(self, name: TopicPartition, path: str) -> LogDirectory:
        """Return the directory; KafkaError when no replica may move there."""
        try:
            check_future_name(name)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
        found = next(
            (directory for directory in self._logs.directories if directory.path == path), None
        )
        if found is None:
            text = f"Log dir {path} is not found in the config."
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, text)
        if not found.is_online:
            raise LocalDiskError(f"Log directory {path} is offline")
        if path in self._logs.cordoned:
            text = f"Log directory {path} is cordoned"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        return found

    def _why_missing(self, name: TopicPartition) -> ErrorCode:
        code = self._replicas.why_missing(*name)
        # a name from before KIP-320, which clients expect here
        is_elsewhere = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else code

    def lag_of(self, future: PartitionLog) -> int:
        """Return the records that a future log misses, -1 when its replica is not served."""
        partition = self._replicas.find(*future.topic_partition)
        if partition is None or partition.log.failure is not None:
            return -1
        return partition.log.log_end_offset - future.log_end_offset

    # From the metadata

    def resume(self, partition: Partition, image: PartitionRegistration) -> None:
        """Continue the move of a partition whose future log an earlier run left."""
        name = partition.topic_partition
        if name not in self._moves and self._logs.futures.get(name) is not None:
            target = self._logs.futures.log_dir_of(name)
            assigned = image.directory_of(self._metadata.node_id)
            self._begin(
                partition, is_assigned=target is not None and target.directory_id == assigned
            )

    def is_exchange_due(self, name: TopicPartition, image: PartitionRegistration) -> bool:
        """Whether the metadata already name the directory to which a replica moves."""
        target = self._logs.futures.log_dir_of(name)
        assigned = image.directory_of(self._metadata.node_id)
        return target is not None and name in self._moves and target.directory_id == assigned

    def forget(self, name: TopicPartition) -> None:
        """End the move of a partition; its future log stays."""
        move = self._moves.pop(name, None)
        if move is not None:
            task = self._continuations.pop(move, None)
            if task is not None:
                task.cancel()
            self._logs.flushes.release(move.partition.log)
            self._release(move)

    def cancel(self, name: TopicPartition) -> None:
        """End a move and delete the future log; the replica's directory is reported again."""
        self._leave(name)
        self._logs.futures.discard(name, now_ms=self._clock.now_ms())

    def _leave(self, name: TopicPartition) -> None:
        move = self._moves.get(name)
        self.forget(name)
        if move is None or move.state is MoveState.COPYING:
            return
        log_dir = self._logs.log_dir_of(name) or self._directory_of_lost(move)
        if log_dir is not None and log_dir.directory_id is not None:
            partition = move.partition
            self._assignments.placed(partition.topic_id, name.partition, log_dir.directory_id)
            self._assignments.wake()

    def _directory_of_lost(self, move: DirectoryMove) -> LogDirectory | None:
        """Return the failed directory of a partition that had to move."""
        directory = move.partition.log.directory
        return next(
            (log_dir for log_dir in self._logs.directories if log_dir.directory is directory), None
        )

    def stalls(self) -> Iterator[str]:
        """Yield the moves that nothing which is to come continues."""
        if self._is_closed:
            return
        queue = set(self._queue)
        if queue and len(self._copying) < self._max_copying:
            yield f"{len(queue)} moves wait although fewer than {self._max_copying} copy"
        for move in self._moves.values():
            if move not in queue and move not in self._continuations:
                yield f"the move of {move.partition.topic_partition} waits for nothing"

    # Turns

    def _begin(self, partition: Partition, *, is_assigned: bool) -> None:
        name = partition.topic_partition
        future = self._logs.futures.get(name)
        if future is None or name in self._moves:
            return
        move = self._moves[name] = DirectoryMove(partition, future, is_assigned=is_assigned)
        log.info(
            "replica %s moves to log directory %s",
            name,
            self._target_of(name),
            extra={"event": "replica.moving", "partition": str(name)},
        )
        self._queue.append(move)
        self._start_next()

    def _target_of(self, name: TopicPartition) -> str:
        log_dir = self._logs.futures.log_dir_of(name) or self._logs.log_dir_of(name)
        return "" if log_dir is None else log_dir.path

    def _start_next(self) -> None:
        while self._queue and len(self._copying) < self._max_copying:
            move = self._queue.popleft()
            self._copying.add(move)
            self._later(move, _PAUSE_MS)

    def _release(self, move: DirectoryMove) -> None:
        """Start the next waiting move."""
        self._copying.discard(move)
        if move in self._queue:
            self._queue.remove(move)
        self._start_next()

    def _later(self, move: DirectoryMove, delay_ms: int) -> None:
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._continuations[move] = self._timer.add(due_ms, lambda _now_ms: self._turn(move))

    def _is_current(self, move: DirectoryMove) -> bool:
        return not self._is_closed and self._moves.get(move.partition.topic_partition) is move

    def _turn(self, move: DirectoryMove, read: Read | None = None, data: bytes = b"") -> None:
        """Continue a move, with the data that was read for it; an error ends the move."""
        self._continuations.pop(move, None)
        if not self._is_current(move):
            return
        name = move.partition.topic_partition
        if (
            move.partition.log.failure is not None
            or self._logs.futures.get(name) is not move.future
        ):
            self._failed(move, "a disk failed")
            return
        try:
            if read is not None:
                move.received(read, data)
            self._step(move)
        except CorruptMessage as error:
            self._failed(move, str(error))
            self._logs.futures.discard(name, now_ms=self._clock.now_ms())
        except KafkaError as error:
            log_dir = self._logs.futures.log_dir_of(name)
            if move.future.failure is not None and log_dir is not None:
                self._logs.fail(log_dir, move.future.failure)
            self._failed(move, str(error))
        except OSError as error:
            self._failed(move, f"a disk failed: {error}")

    def _failed(self, move: DirectoryMove, why: str) -> None:
        """End a move after an error; the next request or the next start continues it."""
        self.failed_count += 1
        name = move.partition.topic_partition
        text = "replica %s was not moved to another log directory: %s; request the move again"
        extra = {"event": "replica.not_moved", "partition": str(name)}
        log.error(text, name, why, extra=extra)
        self._leave(name)

    def _step(self, move: DirectoryMove) -> None:
        for _ in range(_TAIL_PIECES):
            need = move.poll(self._clock.now_ms())
            if isinstance(need, Read):
                if not need.is_last or need.piece.size > _TAIL_BYTES:
                    self._read(move, need)
                    return
                move.received(need, need.piece.read())
            elif need is Need.FLUSH:
                if not self._flush(move):
                    return
            elif need is Need.EXCHANGE:
                self._exchange(move)
                return
            elif need is Need.ASSIGNMENT:
                self._assign(move)
                self._later(move, _POLL_INTERVAL_MS)
                return
            else:
                break
        self._later(move, _PAUSE_MS)

    def _read(self, move: DirectoryMove, read: Read) -> None:
        """Read in a worker, unless the throttle is exceeded."""
        now_ms = self._clock.monotonic_ms()
        if self._quota.is_exceeded(now_ms):
            self._later(move, _POLL_INTERVAL_MS)
            return
        self._quota.record(read.piece.size, now_ms)
        read.piece.file.pin()

        def done(data: bytes | None, error: Exception | None) -> None:
            read.piece.file.unpin()
            self._continuations.pop(move, None)
            if not self._is_current(move):
                return
            if data is None:
                self._failed(move, f"its log cannot be read: {error}")
                return
            self._turn(move, read, data)

        self._continuations[move] = None
        self._run_on_volume(move.partition.log.directory.volume, read.piece.read, done)

    def _flush(self, move: DirectoryMove) -> bool:
        """Return whether the future log is durable; begin its flush in a worker otherwise.

        Before the exchange it must be as durable as the partition's log, whose flushes are held
        until then.
        """
        if move.state is MoveState.ASSIGNED:
            self._logs.flushes.hold(move.partition.log)
        jobs = self._logs.flushes.take_whole(move.future, self._clock.now_ms())
        if not jobs:
            if move.future.flushes.is_durable:
                move.flushed()
                return True
            self._later(move, _PAUSE_MS)
            return False
        (job,) = jobs

        def done(_none: None, error: Exception | None) -> None:
            job.done(error)
            if error is None:
                move.flushed()
            self._turn(move)

        self._continuations[move] = None
        self._run_on_volume(job.volume, job.run, done)
        return False

    def _assign(self, move: DirectoryMove) -> None:
        """Report the replica's future directory to the controller (KIP-858)."""
        self._release(move)
        if move.state is not MoveState.COPYING:
            return
        name = move.partition.topic_partition
        log_dir = self._logs.futures.log_dir_of(name)
        assert log_dir is not None
        if log_dir.directory_id is None or not self._assignments.is_recorded:
            move.state = MoveState.ASSIGNED
            return
        move.state = MoveState.ASSIGNING
        self._assignments.placed(
            move.partition.topic_id,
            name.partition,
            log_dir.directory_id,
            lambda: self._assigned(move),
        )
        self._assignments.wake()

    def _assigned(self, move: DirectoryMove) -> None:
        """Record the controller's answer; go on now, unless a worker is busy for the move."""
        if not self._is_current(move):
            return
        move.state = MoveState.ASSIGNED
        task = self._continuations.get(move)
        if task is not None and task.cancel():
            self._turn(move)

    def _exchange(self, move: DirectoryMove) -> None:
        """Replace the partition's log by the future log."""
        name, old = move.partition.topic_partition, move.partition.log
        move.partition.changed()
        move.partition.log = self._logs.futures.promote(name, now_ms=self._clock.now_ms())
        self._replicas.exchange_count += 1
        self._logs.flushes.release(old)
        self.forget(name)
        log.info(
            "replica %s is in log directory %s now, up to offset %d",
            name,
            self._target_of(name),
            move.partition.log.log_end_offset,
            extra={"event": "replica.moved", "partition": str(name)},
        )
        self._on_exchanged(old)
