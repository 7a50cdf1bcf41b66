"""The batches of a Fetch answer that a reader should see.

Kafka: org.apache.kafka.clients.consumer.internals.CompletedFetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.batch import iterate_batches
from ottla.records.control import ControlRecordType, decode_control_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.records.batch import RecordBatch
    from ottla.spark.fetching import Chunk


def readable_batches(chunk: Chunk) -> Iterator[tuple[RecordBatch, bool]]:
    """Yield each whole batch and whether its records are for the reader.

    Control batches are not, nor, when the chunk carries the list, those of aborted transactions.
    """
    waiting = sorted(chunk.aborted or (), key=lambda one: one[1], reverse=True)
    aborted: set[int] = set()
    for batch in iterate_batches(chunk.records, partial_tail=True):
        while waiting and waiting[-1][1] <= batch.last_offset:
            aborted.add(waiting.pop()[0])
        if batch.is_control:
            if batch.producer_id in aborted and _is_abort(batch):
                aborted.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, not (batch.is_transactional and batch.producer_id in aborted)


def _is_abort(batch: RecordBatch) -> bool:
    records = batch.records()
    return bool(records) and decode_control_type(records[0].key) == ControlRecordType.ABORT
