"""Batches that would hold the loop: workers check them within a bounded amount of memory.

A job is granted the memory that its codec needs for its window (`large_batches.memory_bytes`);
jobs beyond the node's `decompression.memory.bytes` wait in order of arrival. Nothing of the log is
touched here: the caller appends the checked batch.

Kafka: none; there every request is checked on one of num.io.threads threads.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.records import large_batches
from ottla.records.compression import DecompressionLimitExceeded
from ottla.records.large_batches import DecompressionLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.limits import LimitSettings
    from ottla.records.validation_rules import CheckedBatch, OffloadRequired
    from ottla.server.system.environment import RunInWorker

log = logging.getLogger("ottla.decompression")
MAX_WAITING_BYTES = 256 * 1024 * 1024


class _Job(NamedTuple):
    """One batch, when it came (ms), who sent it, its result, and the memory it needs."""

    large: OffloadRequired
    now_ms: int
    client: str
    pending: Pending[CheckedBatch]
    memory_bytes: int


class Decompression:
    """The batches of one node that workers check; everything here runs on the loop."""

    def __init__(
        self,
        settings: LimitSettings,
        run_in_worker: RunInWorker,
        cpu_s: Callable[[], float],
    ) -> None:
        """`cpu_s` is asked on the worker's thread for the time that this thread used."""
        self._limits = DecompressionLimits(
            settings.decompressed_max_bytes,
            settings.decompression_max_cpu_ms,
            settings.decompression_memory_bytes // 2,
        )
        self._memory_bytes = settings.decompression_memory_bytes
        self._run_in_worker = run_in_worker
        self._cpu_s = cpu_s
        self._waiting: deque[_Job] = deque()
        self._waiting_bytes = 0
        self._is_closed = False
        self._granted_bytes = 0
        self.running_count = 0
        self.checked_count = 0
        """Batches that workers have checked, good and bad."""
        self.refused_count = 0
        """Those of them that cost more than the limits."""

    @property
    def waiting_count(self) -> int:
        """Batches that no worker has begun with."""
        return len(self._waiting)

    def check(self, large: OffloadRequired, *, now_ms: int, client: str) -> Pending[CheckedBatch]:
        """Return the batch once a worker has checked it, or what `validate` raises for records.

        DecompressionLimitExceeded (INVALID_RECORD) when it costs more than the limits;
        REQUEST_TIMED_OUT, on which clients retry, when too many bytes of batches wait.
        """
        memory_bytes = large_batches.memory_bytes(large, self._limits)
        job = _Job(large, now_ms, client, Pending(), memory_bytes)
        if self._waiting_bytes + len(large.view) > MAX_WAITING_BYTES or self._is_closed:
            job.pending.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            return job.pending
        self._waiting.append(job)
        self._waiting_bytes += len(large.view)
        self._start()
        return job.pending

    def _start(self) -> None:
        """Begin with those that there is memory for; one batch always may run."""
        while self._waiting and (
            not self.running_count
            or self._granted_bytes + self._waiting[0].memory_bytes <= self._memory_bytes
        ):
            job = self._waiting.popleft()
            self._waiting_bytes -= len(job.large.view)
            self._granted_bytes += job.memory_bytes
            self.running_count += 1
            self._run(job)

    def _run(self, job: _Job) -> None:
        def check() -> CheckedBatch:
            return large_batches.check_large_batch(
                job.large, now_ms=job.now_ms, limits=self._limits, cpu_s=self._cpu_s
            )

        def done(checked: CheckedBatch | None, error: Exception | None) -> None:
            self._done(job, checked, error)

        self._run_in_worker(check, done)

    def _done(self, job: _Job, checked: CheckedBatch | None, error: Exception | None) -> None:
        if self._is_closed:
            return  # the logs may be closed already
        self._granted_bytes -= job.memory_bytes
        self.running_count -= 1
        self.checked_count += 1
        self._start()
        if isinstance(error, DecompressionLimitExceeded):
            self.refused_count += 1
            log.warning(
                "batch of %d bytes refused: %s; if the client is trusted, raise "
                "decompressed.max.bytes or decompression.max.cpu.ms",
                len(job.large.view),
                error,
                extra={"event": "batch.decompression_limit_exceeded", "client": job.client},
            )
        if checked is not None:
            job.pending.complete(checked)
        else:
            job.pending.fail(error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def close(self) -> None:
        """Append nothing any more; pending checks are not answered."""
        self._is_closed = True
        self._waiting.clear()
