"""Disk work: `run` executes in a worker, `done` on the node's loop.

Kafka: the background tasks of kafka.log.LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    RunInWorker = Callable[
        [Callable[[], None], Callable[[None, Exception | None], None]],
        object,
    ]


class StorageJob(Protocol):
    """One unit of disk work; a directory whose job fails goes offline."""

    def run(self) -> None:
        """Do the work; OSError when the disk fails. Touches no shared state."""

    def done(self, error: BaseException | None) -> None:
        """Apply the result on the owner's thread."""


def run_now(job: StorageJob) -> None:
    """Run a job on this thread, which waits for the disk."""
    error = None
    try:
        job.run()
    except OSError as failure:
        error = failure
    job.done(error)


def run_all(jobs: Sequence[StorageJob], run_in_worker: RunInWorker) -> Pending[None]:
    """Run jobs in workers; complete when the last is done, whether or not some failed."""
    all_done: Pending[None] = Pending()
    left = len(jobs)
    if not jobs:
        all_done.complete(None)

    def finished(job: StorageJob, error: Exception | None) -> None:
        nonlocal left
        job.done(error)
        left -= 1
        if not left:
            all_done.complete(None)

    for job in jobs:
        run_in_worker(job.run, lambda _none, error, job=job: finished(job, error))  # type: ignore[misc] # a lambda's default binds the loop's value
    return all_done
