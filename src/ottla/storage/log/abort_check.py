"""Check of transaction indexes against the records of a log; no node may run.

A start finds indexes that contradict themselves. This looks at all batches and finds those too that
leave out an abort, name records of a committed transaction, or say too high a last stable offset.
An entry may begin before the first record that is left of its transaction: compaction, retention
and DeleteRecords remove records.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.directory import join
from ottla.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.layout import (
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from ottla.storage.producers.state import PartitionProducers
from ottla.storage.producers.update import replay_batch

if TYPE_CHECKING:
    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory
    from ottla.storage.producers.append import CompletedTransaction

_NEVER_MS = 1 << 62


class WrongIndex(NamedTuple):
    """A transaction index that contradicts the records, and what it should hold."""

    path: str
    entries: list[AbortedTransaction]


class AbortCheck:
    """Replays the transactions of an inspected log, and compares each segment's index with them."""

    def __init__(self, directory: Directory, subdirectory: str) -> None:
        self._directory = directory
        self._subdirectory = subdirectory
        self._state = PartitionProducers(
            directory, subdirectory, partition=subdirectory, producer_id_expiration_ms=_NEVER_MS
        )
        self._markers: dict[int, int] = {}
        """By producer: the end of its last transaction."""
        self._preceding: dict[CompletedTransaction, int] = {}
        """For each completed transaction of a segment the end of its producer's one before."""
        self._base_offset = -1
        self._expected: list[AbortedTransaction] = []
        self._is_over = False
        self._wrong: list[WrongIndex] = []

    def begin_segment(self, base_offset: int, _size: int) -> None:
        """Compare the index of the segment before this one."""
        self._finish_segment()
        self._base_offset = base_offset

    def batch(self, header: BatchHeader, data: memoryview) -> None:
        """Replay a batch, until one contradicts those before it."""
        if header.producer_id < 0 or self._is_over:
            return
        state = self._state
        try:
            completed_here = replay_batch(state, header, lambda _: data)
        except CorruptMessage:
            self._is_over = True
            return
        for completed in completed_here:
            if completed.is_aborted:
                stable = state.last_stable_offset(completed)
                self._expected.append(AbortedTransaction(*completed[:3], stable))
            self._preceding[completed] = self._markers.get(completed.producer_id, -1)
            self._markers[completed.producer_id] = completed.last_offset
            state.complete(completed)

    def wrong_indexes(self, *, is_damaged: bool) -> list[WrongIndex]:
        """Return the indexes that contradict the records, without that of a damaged segment."""
        self._is_over |= is_damaged
        self._finish_segment()
        return self._wrong

    def _finish_segment(self) -> None:
        if self._base_offset >= 0 and not self._is_over:
            name = segment_file_name(self._base_offset, TRANSACTION_INDEX_SUFFIX)
            path = join(self._subdirectory, name)
            index = TransactionIndex(self._directory, path)
            right = _merged(index, self._base_offset, self._expected, self._preceding)
            if right is not None:
                self._wrong.append(WrongIndex(path, right))
        self._expected, self._preceding = [], {}


def _merged(
    index: TransactionIndex,
    base_offset: int,
    expected: list[AbortedTransaction],
    completed: dict[CompletedTransaction, int],
) -> list[AbortedTransaction] | None:
    """Return what an index should hold, None when it is right.

    Right entries are kept: they may know more than the records that are left.
    """
    if not index.is_consistent(base_offset):
        return expected
    stored = {
        (transaction.producer_id, transaction.last_offset): transaction
        for transaction in index.entries()
    }
    preceding = {
        (transaction.producer_id, transaction.last_offset): end
        for transaction, end in completed.items()
    }
    right, is_right = [], True
    for one in expected:
        key = one.producer_id, one.last_offset
        known = stored.pop(key, None)
        if known is None or not (
            preceding[key] < known.first_offset <= one.first_offset
            and known.last_stable_offset <= one.last_stable_offset
        ):
            known, is_right = one, False
        right.append(known)
    for key, known in stored.items():  # compaction left none of its records
        hidden = [
            one
            for one in completed
            if one.producer_id == key[0] and known.first_offset <= one.last_offset <= key[1]
        ]
        if hidden:
            is_right = False
        else:
            right.append(known)
    return None if is_right else sorted(right, key=lambda one: one.last_offset)
