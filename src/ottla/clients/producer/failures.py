"""Failed sends whose results were not requested: `flush` and `close` raise them.

Kafka: no counterpart; its producer reports them to callbacks and futures only.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import TYPE_CHECKING

from ottla.errors import DeliveryError, TransactionAbortedError

if TYPE_CHECKING:
    from ottla.clients.producer.batches import ProducerBatch
    from ottla.errors import KafkaError

_log = logging.getLogger("ottla.clients")
MAX_BATCHES = 10_000
"""The most failed batches that are kept, without their records; older ones are only counted."""


class FailedSends:
    """The failed batches since the last report. Called under the client's lock."""

    def __init__(self) -> None:
        self._batches: deque[ProducerBatch] = deque()
        self._counts: Counter[str] = Counter()  # of batches that are no longer kept
        self._first: KafkaError | None = None
        self._logged: Counter[str] = Counter()

    def add(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Keep a failed batch; log the first of a topic whose results are not awaited."""
        if batch.asked is None:
            batch.asked = set()
        batch.encoded_count, batch.records = batch.record_count, []  # releases their memory
        batch.error = error
        if isinstance(error, TransactionAbortedError):  # requested by the application
            return
        topic = batch.topic_partition.topic
        if _unasked(batch) and topic not in self._logged:
            self._logged[topic] = _unasked(batch)
            text = "%d record(s) for topic %r were not delivered: %s: %s"
            _log.error(text, _unasked(batch), topic, error.code.name, error.message)
        self._batches.append(batch)
        if len(self._batches) > MAX_BATCHES:
            self._count(self._batches.popleft())

    def _count(self, batch: ProducerBatch) -> None:
        unasked = _unasked(batch)
        if unasked:
            self._counts[batch.topic_partition.topic] += unasked
            self._first = self._first or batch.error

    def take(self) -> DeliveryError | None:
        """Return the error for all records whose results were not requested, and forget them."""
        while self._batches:
            self._count(self._batches.popleft())
        counts, first, logged = dict(self._counts), self._first, self._logged.total()
        self._counts.clear()
        self._first = None
        self._logged.clear()
        if first is None:
            return None
        error = DeliveryError(counts, first)
        if sum(counts.values()) > logged:  # those lines have counted the first batches only
            _log.error("%s", error.message)
        return error


def _unasked(batch: ProducerBatch) -> int:
    return max(batch.record_count - len(batch.asked or ()), 0)
