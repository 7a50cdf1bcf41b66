"""The transactions of a cleaning: aborted data are removed, markers kept while needed.

Kafka: org.apache.kafka.storage.internals.log.CleanedTransactionMetadata.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.records.batch import RecordBatch
from ottla.records.control import ControlRecordType, decode_control_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.storage.batches import BatchHeader
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.types import Buffer

_CONTROL_LIMIT_BYTES = 1 << 20


class CleanedTransactions:
    """Follows the batches of a log in order of their offsets."""

    __slots__ = ("_committed", "_observed", "_ongoing", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Take the aborted transactions of the whole range, each once."""
        self._waiting = sorted(aborted, key=attrgetter("first_offset"), reverse=True)
        self._ongoing: dict[int, AbortedTransaction] = {}
        self._observed: set[int] = set()
        """Producers whose ongoing aborted transaction still has a batch in the log."""
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Entries for the transaction index of the new segment; its writer takes them."""

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            one = self._waiting.pop()
            self._ongoing.setdefault(one.producer_id, one)

    def data_read(self, batch: BatchHeader) -> bool:
        """Pass a batch of data; return whether its transaction was aborted."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._ongoing:
            self._observed.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def marker_read(self, batch: BatchHeader, data: Buffer) -> bool:
        """Pass a control batch; return whether no batch of its transaction is left."""
        self._begin_up_to(batch.last_offset)
        records = RecordBatch(data).records(_CONTROL_LIMIT_BYTES)
        if not records:
            return True
        kind = decode_control_type(records[0].key)
        if kind is ControlRecordType.ABORT:
            return self._aborted(batch.producer_id)
        if kind is ControlRecordType.COMMIT:
            is_empty = batch.producer_id not in self._committed
            self._committed.discard(batch.producer_id)
            return is_empty
        return False

    def _aborted(self, producer_id: int) -> bool:
        one = self._ongoing.pop(producer_id, None)
        if one is None or producer_id not in self._observed:
            return True
        self._observed.discard(producer_id)
        self.kept.append(one)
        return False
