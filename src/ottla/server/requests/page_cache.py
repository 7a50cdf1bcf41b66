"""Reads slices of files into the page cache, in a worker, before a fetch sends them.

Sending pages that are not in memory waits for the disk, and the loop must not wait.

Kafka: its request handler threads, which wait in sendfile for the disk themselves.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.purgatory.pending import Pending
from ottla.storage.log_set.jobs import run_reads

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.directory import File
    from ottla.types import FileSlice

T = TypeVar("T")
CHUNK_BYTES = 1024 * 1024


def reporting(
    run_on_volume: RunOnVolume, on_failure: Callable[[Hashable, OSError], None]
) -> RunOnVolume:
    """Return run_on_volume so that on_failure(volume, error) learns of disks that fail."""

    def run(
        volume: Hashable, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]
    ) -> None:
        def finished(result: T | None, error: Exception | None) -> None:
            if isinstance(error, OSError):
                on_failure(volume, error)
            done(result, error)

        run_on_volume(volume, job, finished)

    return run


def when_warm(slices: Sequence[FileSlice], answer: T, run_on_volume: RunOnVolume) -> Pending[T]:
    """Return the answer once its slices were read; sending them reports a failing disk, too."""
    pending: Pending[T] = Pending()
    pinned = [slice_ for slice_ in slices if _pin(_file(slice_))]

    def done(_none: object) -> None:
        for slice_ in pinned:
            _file(slice_).unpin()
        pending.complete(answer)

    reads = [(_file(slice_).volume, partial(_read, slice_)) for slice_ in pinned]
    run_reads(reads, run_on_volume).on_done(done)
    return pending


def _file(one: FileSlice) -> File:
    return one.file  # type: ignore[return-value] # a log's own file


def _pin(file: File) -> bool:
    """Pin a file; False when it cannot be opened."""
    try:
        file.pin()
    except OSError:
        return False
    return True


def _read(one: FileSlice) -> None:
    end = one.position + one.size
    for position in range(one.position, end, CHUNK_BYTES):
        one.file.read(position, min(CHUNK_BYTES, end - position))
