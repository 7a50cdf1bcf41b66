"""What a broker does by the clock: retention, flushes, checkpoints, removal of deleted files.

Kafka: the scheduled tasks of kafka.log.LogManager and kafka.server.ReplicaManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.workers import Workers
    from ottla.storage.log_jobs import StorageJob

JOBS_INTERVAL_MS = 250


class Upkeep:
    """Timers over one node's logs; jobs that wait for the disk go to the workers."""

    def __init__(
        self,
        replicas: ReplicaSet,
        config: BrokerConfig,
        *,
        clock: Clock,
        timer: TimingWheel,
        workers: Workers,
    ) -> None:
        self._replicas = replicas
        self._logs = replicas.logs
        self._config = config
        self._clock = clock
        self._timer = timer
        self._workers = workers
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
            self._apply_retention,
            first_ms=config.log_initial_task_delay_ms,
        )
        self._every(config.log_flush_scheduler_interval_ms, self._flush_due)

    def stop(self) -> None:
        """No task begins any more (KAFKA-13315)."""
        self._is_stopped = True

    def _every(
        self, interval_ms: int, task: Callable[[], None], *, first_ms: int | None = None
    ) -> None:
        def run(_now_ms: int) -> None:
            if not self._is_stopped:
                task()
                self._timer.add(self._clock.monotonic_ms() + interval_ms, run)

        delay_ms = interval_ms if first_ms is None else first_ms
        self._timer.add(self._clock.monotonic_ms() + delay_ms, run)

    def _submit(self, jobs: Iterable[StorageJob]) -> None:
        for job in jobs:
            self._workers.run(job.run, lambda _none, error, job=job: job.done(error))  # type: ignore[misc] # a lambda's default binds the loop's value

    def _run_jobs(self) -> None:
        self._submit(self._logs.take_jobs())
        self._submit(self._logs.remove_due(self._clock.now_ms()))

    def _save_watermarks(self) -> None:
        if self._replicas.append_count != self._saved_at:
            self._saved_at = self._replicas.append_count
            self._submit(self._logs.high_watermark_jobs())

    def _save_recovery_points(self) -> None:
        self._logs.checkpoint_recovery_points()

    def _apply_retention(self) -> None:
        self._logs.apply_retention(self._clock.now_ms())

    def _flush_due(self) -> None:
        self._logs.want_due_flushes(self._clock.now_ms())
