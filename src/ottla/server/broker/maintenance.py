"""Periodic tasks of a broker (retention, expiry, flushes, checkpoints), and its disks' space.

Kafka: the scheduled tasks of kafka.log.LogManager and kafka.server.ReplicaManager.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ottla.config.own import reserve_bytes
from ottla.errors import KafkaError, LocalDiskError
from ottla.purgatory.work import NEXT_TURN
from ottla.server.broker.directory_returns import offline_reason
from ottla.server.system.timers import next_aligned_tick
from ottla.storage.log.retention import ClockJumpDetector
from ottla.storage.log_set.checkpoint_queue import CheckpointJob
from ottla.storage.log_set.retention_check import ProducerExpiry, RetentionCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.config.broker import BrokerConfig
    from ottla.errors import CorruptMessage
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.work import Work
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.log_cleaner import LogCleaner
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.jobs import StorageJob
    from ottla.types import TopicPartition

log = logging.getLogger("ottla.maintenance")
JOBS_INTERVAL_MS = 250
LOGS_READ_AHEAD = 256
"""Logs for which workers read the ages of segments at a time: one job a volume."""


class Maintenance:
    """Timers over one node's logs; jobs that wait for a disk run in its workers."""

    def __init__(
        self,
        replicas: ReplicaSet,
        config: BrokerConfig,
        cleaning: LogCleaner,
        *,
        loop: Loop,
        run_on_volume: RunOnVolume,
        on_failure: Callable[[Exception], None],
        on_offline: Callable[[LogDirectory], None] = lambda _log_dir: None,
    ) -> None:
        """on_failure(error) is called when no directory is left, or the metadata's is gone.

        on_offline(log_dir) is called once for each other directory that goes offline.
        """
        self._replicas = replicas
        self._logs = replicas.logs
        self._cleaning = cleaning
        self._config = config
        self._logs.flushes.on_awaited(self._flush_soon)
        self._clock = clock = loop.clock
        self._steps = ClockJumpDetector(clock.now_ms(), clock.monotonic_ms())
        self._timer = loop.timer
        self._worker = loop.worker
        self._run_on_volume = run_on_volume
        self._on_failure = on_failure
        self._on_offline = on_offline
        self._space = SpaceWatch(replicas, config.own.log_dir_reserve_bytes)
        self._offline: set[str] = set()
        self._damaged: set[TopicPartition] = set()
        self._is_stopped = False
        self._saved_at = -1

    def start(self) -> None:
        """Begin; retention first waits for log.initial.task.delay.ms."""
        config = self._config
        self._every(JOBS_INTERVAL_MS, self._run_jobs)
        self._every(config.replica_high_watermark_checkpoint_interval_ms, self._save_watermarks)
        self._every(config.log_flush_offset_checkpoint_interval_ms, self._save_recovery_points)
        self._every(
            config.log_retention_check_interval_ms,
            lambda: self._run_attempt("retention", self._apply_retention()),
            first_ms=config.log_initial_task_delay_ms,
        )
        self._every(
            config.producer_id_expiration_check_interval_ms,
            lambda: self._run_attempt("producers", self._expire_producers()),
        )
        self._every(config.log_flush_scheduler_interval_ms, self._flush_due)
        self._cleaning.start()
        self._space.measure_now()
        self._measure_space(0)

    def close(self) -> None:
        """Begin no further task (KAFKA-13315)."""
        self._is_stopped = True
        self._cleaning.stop()

    @property
    def is_checking(self) -> bool:
        """Whether a retention check is under way."""
        return (self, "retention") in self._worker

    def _every(
        self, interval_ms: int, task: Callable[[], None], *, first_ms: int | None = None
    ) -> None:
        def run(_now_ms: int) -> None:
            if self._is_stopped:
                return
            self._timer.add(next_aligned_tick(self._clock.monotonic_ms(), interval_ms), run)
            _attempt(task)

        delay_ms = interval_ms if first_ms is None else first_ms
        self._timer.add(self._clock.monotonic_ms() + delay_ms, run)

    def _run_attempt(self, name: str, work: Work[None]) -> None:
        """Run a work, unless one of its name is running; log its error."""
        pending = self._worker.run(work, (self, name))
        pending.on_done(lambda done: _attempt(lambda: done.value))

    def _measure_space(self, _now_ms: int) -> None:
        if not self._is_stopped:
            self._space.measure(self._run_on_volume)
            next_ms = next_aligned_tick(self._clock.monotonic_ms(), self._space.interval_ms)
            self._timer.add(next_ms, self._measure_space)

    def _submit(self, jobs: Iterable[StorageJob]) -> None:
        for job in jobs:
            if isinstance(job, CheckpointJob):
                self._worker.run(self._write(job))
            else:
                self._run_job(job)

    def _run_job(self, job: StorageJob) -> None:
        self._run_on_volume(job.volume, job.run, lambda _none, error: job.done(error))

    def _write(self, job: CheckpointJob) -> Work[None]:
        """Collect the offsets of a checkpoint, then have a worker write it."""
        for _ in job.collect():
            yield
            if self._is_stopped:
                return  # the shutdown writes all checkpoints
        self._run_job(job)

    def _flush_soon(self, log: PartitionLog) -> None:
        self._submit(self._logs.flushes.take_one(log, self._clock.now_ms()))

    def _run_jobs(self) -> None:
        self._watch_directories()
        self._watch_clock()
        self._submit(self._logs.take_jobs(self._clock.now_ms()))
        self._submit(self._logs.removals.take_due(self._clock.now_ms()))

    def _watch_directories(self) -> None:
        """Report each directory that went offline once; without a usable one the node halts."""
        for log_dir in self._logs.directories:
            if log_dir.is_online or log_dir.path in self._offline:
                continue
            self._offline.add(log_dir.path)
            self._replicas.report_failures()
            is_last = not self._logs.online_directories
            is_final = is_last or log_dir.path == self._config.metadata_directory
            interval_ms = 0 if is_final else self._config.own.log_dir_return_interval_ms
            log_dir.offline_reason = offline_reason(log_dir, interval_ms)
            text = f"log directory {log_dir.path} is offline: {log_dir.offline_reason}"
            log.error(text, extra={"event": "directory.offline", "path": log_dir.path})
            if is_final:
                self._on_failure(LocalDiskError(text))
            else:
                self._on_offline(log_dir)

    def returned(self, log_dir: LogDirectory) -> None:
        """Watch a directory again that was offline."""
        self._offline.discard(log_dir.path)

    def _save_watermarks(self) -> None:
        if self._replicas.append_count != self._saved_at:
            self._saved_at = self._replicas.append_count
            self._submit(self._logs.checkpoints.high_watermark_jobs())

    def _save_recovery_points(self) -> None:
        self._logs.checkpoints.request_all()

    def _apply_retention(self) -> Work[None]:
        """Check all logs; a check that fails ends, and the next interval begins a new one."""
        check, step_before = RetentionCheck(self._logs, self._report_damage), self._steps.step
        is_unfinished = True
        while is_unfinished:
            yield check.read_ages(self._clock.now_ms(), LOGS_READ_AHEAD, self._run_on_volume)
            for _ in range(LOGS_READ_AHEAD):
                if self._is_stopped:
                    return
                self._watch_clock()
                deleted_count = check.deleted
                is_unfinished = check.step(self._clock.now_ms(), self._steps.step, 1)
                is_deleted = check.deleted > deleted_count  # as far as `read_ages` has read
                yield NEXT_TURN if is_deleted else None
                if is_deleted or not is_unfinished:
                    break
        if self._steps.step == step_before and not self._logs.is_holding_back:
            self._steps.forget()  # not a step during the check: its first logs did not know it

    def _expire_producers(self) -> Work[None]:
        expiry = ProducerExpiry(self._logs)
        while not self._is_stopped and expiry.step(self._clock.now_ms()):
            yield

    def _report_damage(self, damaged: PartitionLog, error: CorruptMessage) -> None:
        """Report a log that retention cannot read, once; the other logs are still checked."""
        if damaged.topic_partition not in self._damaged:
            self._damaged.add(damaged.topic_partition)
            log.error(
                "retention cannot read the log of %s and deletes nothing of it: %s; "
                "stop the node and run ottla log-repair",
                damaged.topic_partition,
                error,
                extra={"event": "log.damaged", "partition": str(damaged.topic_partition)},
            )

    def _watch_clock(self) -> None:
        """Report a step of the clock once; retention slows down until the step has no effect."""
        if self._steps.look(self._clock.now_ms(), self._clock.monotonic_ms()):
            assert self._steps.step is not None
            log.warning(
                "the clock of this machine stepped %d s ahead: of what is too old only by that, "
                "retention deletes one segment of each log every %d s; set the clock right if it "
                "is wrong now",
                round(self._steps.step.size_ms / 1000),
                self._config.log_retention_check_interval_ms // 1000,
                extra={"event": "clock.step"},
            )

    def _flush_due(self) -> None:
        self._logs.flushes.request_due(self._clock.now_ms())


def _attempt(task: Callable[[], None]) -> None:
    """Run a task and log its error: the other tasks must still run."""
    try:
        task()
    except (KafkaError, OSError) as error:
        text = "maintenance: %s; the task runs again, check the disk"
        log.error(text, error, extra={"event": "maintenance.failed"})  # noqa: TRY400 - the text says all


disk_log = logging.getLogger("ottla.disk")
MAX_INTERVAL_MS = 1000
MIN_INTERVAL_MS = 50
MAX_INGEST_BYTES_PER_MS = 250_000
"""Assumed maximum ingest rate: more than the loop of one node takes from clients."""


class SpaceWatch:
    """Compares free space with the reserve; only the event loop changes the state."""

    def __init__(self, replicas: ReplicaSet, setting_bytes: int) -> None:
        """setting_bytes is `log.dir.reserve.bytes`; 0 disables the reserve."""
        self._replicas = replicas
        self._setting_bytes = setting_bytes
        self._measuring: set[LogDirectory] = set()
        self.interval_ms = MAX_INTERVAL_MS
        """Time until the next measurement: shorter the nearer the reserve is."""

    def measure_now(self) -> None:
        """Measure on this thread; for the start of a node."""
        for log_dir in self._replicas.logs.online_directories:
            with suppress(OSError):
                self._measured(log_dir, _measure(log_dir), None)

    def measure(self, run_on_volume: RunOnVolume) -> None:
        """Measure in workers, except directories whose last measurement hangs."""
        for log_dir in self._replicas.logs.online_directories:
            if log_dir not in self._measuring:
                self._measuring.add(log_dir)
                run_on_volume(
                    log_dir.directory.volume,
                    partial(_measure, log_dir),
                    partial(self._measured, log_dir),
                )

    def _measured(
        self, log_dir: LogDirectory, found: tuple[int, int] | None, _error: Exception | None
    ) -> None:
        """Apply a measurement; an error changes nothing: the next write fails for its reason."""
        self._measuring.discard(log_dir)
        if found is not None:
            free_bytes, total_bytes = found
            if log_dir.measured(free_bytes, reserve_bytes(self._setting_bytes, total_bytes)):
                _log_state(log_dir)
        online = self._replicas.logs.online_directories
        self._replicas.is_short_of_space = any(log_dir.is_short_of_space for log_dir in online)
        self.interval_ms = min(map(_interval_ms, online), default=MAX_INTERVAL_MS)


def _measure(log_dir: LogDirectory) -> tuple[int, int]:
    """Return the free and the total bytes of the volume; runs in a worker."""
    return log_dir.directory.free_space(), log_dir.directory.total_space()


def _interval_ms(log_dir: LogDirectory) -> int:
    """Return how soon the reserve could be reached at the maximum ingest rate, within limits."""
    if log_dir.is_short_of_space or not log_dir.reserve_bytes:
        return MAX_INTERVAL_MS
    reached_ms = (log_dir.free_bytes - log_dir.reserve_bytes) // MAX_INGEST_BYTES_PER_MS
    return min(max(reached_ms, MIN_INTERVAL_MS), MAX_INTERVAL_MS)


def _log_state(log_dir: LogDirectory) -> None:
    """Log when produces begin to be refused, and when they are accepted again."""
    if not log_dir.is_short_of_space:
        disk_log.warning(
            "log directory %s has %d bytes left again; produces to its partitions are accepted",
            log_dir.path,
            log_dir.free_bytes,
            extra={"event": "disk.space", "path": log_dir.path},
        )
        return
    disk_log.error(
        "log directory %s has %d bytes left, %d less than its reserve of %d: produces to its "
        "partitions are refused with KAFKA_STORAGE_ERROR, all other requests are served; free some "
        "space, shorten the retention of topics, or lower log.dir.reserve.bytes (0 disables it)",
        log_dir.path,
        log_dir.free_bytes,
        log_dir.reserve_bytes - log_dir.free_bytes,
        log_dir.reserve_bytes,
        extra={"event": "disk.reserve", "path": log_dir.path},
    )
