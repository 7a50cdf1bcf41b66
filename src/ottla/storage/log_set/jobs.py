"""Disk work: `run` executes in a worker, `done` on the node's loop.

Kafka: the background tasks of kafka.log.LogManager.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.purgatory.pending import Pending, all_done

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from ottla.storage.log.timestamp_reads import TimestampRead

    RunOnVolume = Callable[
        [Hashable, Callable[[], None], Callable[[None, Exception | None], None]],
        object,
    ]
    """Runs job in a worker of a volume (see `Directory.volume`), then done(None, error)."""


class StorageJob(Protocol):
    """One unit of disk work; a directory whose job fails goes offline."""

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""

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


def run_all(jobs: Iterable[StorageJob], run_on_volume: RunOnVolume) -> Pending[None]:
    """Run jobs in workers; complete when the last is done, whether or not some failed."""
    return all_done(_submitted(job.volume, job.run, run_on_volume, job.done) for job in jobs)


def run_reads(
    reads: Iterable[tuple[Hashable, Callable[[], None]]], run_on_volume: RunOnVolume
) -> Pending[None]:
    """Run reads, each of a volume; complete when the last is done, whether or not some failed."""
    by_volume: defaultdict[Hashable, list[Callable[[], None]]] = defaultdict(list)
    for volume, read in reads:
        by_volume[volume].append(read)
    return all_done(
        _submitted(volume, partial(_call_each, calls), run_on_volume)
        for volume, calls in by_volume.items()
    )


def run_timestamp_reads(
    reads: Sequence[TimestampRead], run_on_volume: RunOnVolume
) -> Pending[None]:
    """Run reads in workers, then apply their results; complete after that."""
    result: Pending[None] = Pending()

    def completed(_none: object) -> None:
        for read in reads:
            read.done()
        result.complete(None)

    run_reads([(read.volume, read.read) for read in reads], run_on_volume).on_done(completed)
    return result


def _submitted(
    volume: Hashable,
    run: Callable[[], None],
    run_on_volume: RunOnVolume,
    done: Callable[[Exception | None], None] = lambda _error: None,
) -> Pending[None]:
    """Run in a worker, then call done(error); complete after that."""
    step: Pending[None] = Pending()

    def finished(_none: None, error: Exception | None) -> None:
        done(error)
        step.complete(None)

    run_on_volume(volume, run, finished)
    return step


def _call_each(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()
