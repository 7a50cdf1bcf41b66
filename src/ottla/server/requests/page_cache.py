"""Reads ahead, in a worker, what a fetch is to send and the page cache does not hold.

Sending a file waits for the disk where its pages are not in memory, and the loop must not wait.

Kafka: its request handler threads, which wait in sendfile for the disk themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.server.system.environment import RunInWorker
    from ottla.storage.directory import File
    from ottla.types import FileSlice

T = TypeVar("T")
CHUNK_BYTES = 1024 * 1024


def when_warm(slices: Sequence[FileSlice], answer: T, run_in_worker: RunInWorker) -> Pending[T]:
    """Return the answer once its slices were read; a disk that fails then shows when it is sent."""
    pending: Pending[T] = Pending()
    files: list[File] = [one.file for one in slices]  # type: ignore[misc] # a log's own files
    for file in files:
        file.pin()

    def done(_: None, __: Exception | None) -> None:
        for file in files:
            file.unpin()
        pending.complete(answer)

    run_in_worker(lambda: _read(slices), done)
    return pending


def _read(slices: Sequence[FileSlice]) -> None:
    for one in slices:
        end = one.position + one.size
        for position in range(one.position, end, CHUNK_BYTES):
            one.file.read(position, min(CHUNK_BYTES, end - position))
