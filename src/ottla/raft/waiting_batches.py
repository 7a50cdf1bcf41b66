"""A leader's batches that are not in its file yet, because the flush before them still runs.

A batch is written only after the flush of the one before it (`raft/log_check.py`). While the disk
stalls, the batches that follow wait here, at the log's end: the other voters fetch them, and commit
them without this disk.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ottla.records.batches import iterate_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.records.batch import RecordBatch
    from ottla.types import Buffer


class _Waiting(NamedTuple):
    """A batch."""

    base_offset: int
    next_offset: int
    data: Buffer


class WaitingBatches:
    """Batches of one epoch, in order."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: deque[_Waiting] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def end_offset(self) -> int:
        """The offset after the last record, of batches that are there."""
        return self._batches[-1].next_offset

    def append(self, data: Buffer) -> None:
        """Add a batch that begins at the end."""
        batch = next(iterate_batches(memoryview(data)))
        self._batches.append(_Waiting(batch.base_offset, batch.next_offset, data))

    def take(self) -> Buffer:
        """Remove and return the oldest batch."""
        return self._batches.popleft().data

    def truncate_to(self, offset: int) -> None:
        """Drop the batches that end above an offset."""
        while self._batches and self._batches[-1].next_offset > offset:
            self._batches.pop()

    def read_bytes(self, offset: int, size: int) -> bytes:
        """Return whole batches from one that holds an offset on, at least one."""
        found = b""
        for one in self._batches:
            if one.next_offset <= offset:
                continue
            if found and len(found) + len(one.data) > size:
                break
            found += bytes(one.data)
        return found

    def read(self, offset: int) -> Iterator[RecordBatch]:
        """Yield the batches from one that holds an offset on."""
        for one in list(self._batches):
            if one.next_offset > offset:
                yield from iterate_batches(memoryview(one.data))
