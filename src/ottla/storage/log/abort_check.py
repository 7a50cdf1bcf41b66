"""Check of transaction indexes against the records of a log; no node may run.

A start finds indexes that contradict themselves. This reads all batches and finds those too that
leave out an abort, name records of a committed transaction, or say too high a last stable offset.
An entry may begin before the first record that is left of its transaction: compaction, retention
and DeleteRecords remove records.

Kafka: none.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.batches import walk_file
from ottla.storage.directory import join
from ottla.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.layout import (
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offset_of,
    segment_file_name,
)
from ottla.storage.producers.state import PartitionProducers
from ottla.storage.producers.update import replay_batch

if TYPE_CHECKING:
    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory, File
    from ottla.storage.producers.append import CompletedTransaction

_NEVER_MS = 1 << 62


class WrongIndex(NamedTuple):
    """A transaction index that contradicts the records, and what it should hold."""

    path: str
    entries: list[AbortedTransaction]


class _Replay:
    """The transactions of a log, batch by batch."""

    def __init__(self, directory: Directory, subdirectory: str) -> None:
        self._state = PartitionProducers(
            directory, subdirectory, partition=subdirectory, producer_id_expiration_ms=_NEVER_MS
        )
        self._markers: dict[int, int] = {}
        """By producer: the end of its last transaction."""
        self.preceding: dict[CompletedTransaction, int] = {}
        """For each completed transaction of a segment the end of its producer's one before."""

    def segment(self, file: File, end: int) -> list[AbortedTransaction]:
        """Return what the index of a segment should hold."""
        aborted = []
        self.preceding = {}
        state = self._state

        def read(header: BatchHeader) -> bytes:
            return file.read(header.position, header.size)

        for header in walk_file(file, 0, end):
            for completed in replay_batch(state, header, read):
                if completed.is_aborted:
                    stable = state.last_stable_offset(completed)
                    aborted.append(AbortedTransaction(*completed[:3], stable))
                self.preceding[completed] = self._markers.get(completed.producer_id, -1)
                self._markers[completed.producer_id] = completed.last_offset
                state.complete(completed)
        return aborted


def check_aborts(directory: Directory, subdirectory: str) -> list[WrongIndex]:
    """Return the transaction indexes that contradict the records, up to the first damage."""
    found = [base_offset_of(name, LOG_SUFFIX) for name in directory.list(subdirectory)]
    replay, wrong = _Replay(directory, subdirectory), []
    for base_offset in sorted(offset for offset in found if offset is not None):
        path = join(subdirectory, segment_file_name(base_offset, LOG_SUFFIX))
        with closing(directory.open(path)) as file:
            try:
                expected = replay.segment(file, file.size())
            except CorruptMessage:
                break  # it is shown by `inspect_log`
        path = join(subdirectory, segment_file_name(base_offset, TRANSACTION_INDEX_SUFFIX))
        right = _merged(TransactionIndex(directory, path), base_offset, expected, replay)
        if right is not None:
            wrong.append(WrongIndex(path, right))
    return wrong


def _merged(
    index: TransactionIndex,
    base_offset: int,
    expected: list[AbortedTransaction],
    replay: _Replay,
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
        for transaction, end in replay.preceding.items()
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
            for one in replay.preceding
            if one.producer_id == key[0] and known.first_offset <= one.last_offset <= key[1]
        ]
        if hidden:
            is_right = False
        else:
            right.append(known)
    return None if is_right else sorted(right, key=lambda one: one.last_offset)
