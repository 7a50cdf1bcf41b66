"""Reads ahead, in a worker, what a fetch is to send and the page cache does not hold.

Sending a file waits for the disk where its pages are not in memory, and the loop must not wait.

Kafka: its request handler threads, which wait in sendfile for the disk themselves.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.purgatory.pending import Pending
from ottla.storage.log_set.jobs import run_reads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.directory import File
    from ottla.types import FileSlice

T = TypeVar("T")
CHUNK_BYTES = 1024 * 1024


def when_warm(slices: Sequence[FileSlice], answer: T, run_on_volume: RunOnVolume) -> Pending[T]:
    """Return the answer once its slices were read; a disk that fails then shows when it is sent."""
    pending: Pending[T] = Pending()
    files: list[File] = [one.file for one in slices]  # type: ignore[misc] # a log's own files
    for file in files:
        file.pin()

    def done(_none: object) -> None:
        for file in files:
            file.unpin()
        pending.complete(answer)

    reads = [(file.volume, partial(_read, one)) for file, one in zip(files, slices, strict=True)]
    run_reads(reads, run_on_volume).on_done(done)
    return pending


def _read(one: FileSlice) -> None:
    end = one.position + one.size
    for position in range(one.position, end, CHUNK_BYTES):
        one.file.read(position, min(CHUNK_BYTES, end - position))
