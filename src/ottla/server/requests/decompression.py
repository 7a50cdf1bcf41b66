"""Batches too large to be checked on the loop: workers check them in a bounded amount of memory.

A job is granted the memory that its codec needs for its window (`large_batches.memory_bytes`); jobs
beyond the node's `decompression.memory.bytes` wait in order of arrival. The caller appends the
checked batch.

Kafka: none; there every request is checked on one of num.io.threads threads.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Pending
from ottla.records import large_batches
from ottla.records.compression import DecompressionLimitExceeded
from ottla.records.large_batches import DecompressionLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.own import LimitSettings
    from ottla.records.validation_rules import CheckedBatch, OffloadRequired
    from ottla.server.system.environment import RunInWorker

log = logging.getLogger("ottla.decompression")
MAX_WAITING_BYTES = 256 * 1024 * 1024
"""Bytes of waiting batches; further ones are refused."""


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
        """`cpu_s` returns the CPU seconds of the calling thread; it is called in the worker."""
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
        """Batches that workers have checked, valid and invalid."""
        self.refused_count = 0
        """Checked batches that exceeded the limits of time or size."""

    @property
    def waiting_count(self) -> int:
        """Batches that wait for a worker."""
        return len(self._waiting)

    def check(self, large: OffloadRequired, *, now_ms: int, client: str) -> Pending[CheckedBatch]:
        """Return the batch once a worker has checked it; fails as `validate` for invalid records.

        DecompressionLimitExceeded (INVALID_RECORD) over the limits; REQUEST_TIMED_OUT, which
        clients retry, when too many bytes of batches wait.
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
        """Start jobs while there is memory; one always runs, however much it needs."""
        while self._waiting and (
            not self.running_count
            or self._granted_bytes + self._waiting[0].memory_bytes <= self._memory_bytes
        ):
            job = self._waiting.popleft()
            self._waiting_bytes -= len(job.large.view)
            self._granted_bytes += job.memory_bytes
            self.running_count += 1
            check = partial(
                large_batches.check_large_batch,
                job.large,
                now_ms=job.now_ms,
                limits=self._limits,
                cpu_s=self._cpu_s,
            )
            self._run_in_worker(check, partial(self._done, job))

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
        """Complete no further check: the logs are about to be closed."""
        self._is_closed = True
        self._waiting.clear()
