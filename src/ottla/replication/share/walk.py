"""The batches of a fetch, by their headers: what acquisition needs to know of records.

Kafka: org.apache.kafka.common.record.internal.RecordBatch, as SharePartition uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.records.batches import iterate_batches
from ottla.records.control import ControlRecordType, decode_control_type

if TYPE_CHECKING:
    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.types import Buffer


class FetchedBatch(NamedTuple):
    """A batch, where it lies in what was fetched, and its producer where that is transactional."""

    base_offset: int
    last_offset: int
    position: int
    size: int
    producer_id: int
    is_transactional: bool
    is_abort: bool


class Acquired(NamedTuple):
    """Consecutive offsets after the same number of deliveries."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(slots=True)
class Fetched:
    """The whole batches of a fetch, and the aborted transactions that overlap with them."""

    batches: list[FetchedBatch]
    aborted: list[AbortedTransaction] = field(default_factory=list)


def walk(data: Buffer, aborted: list[AbortedTransaction] | None) -> Fetched:
    """Return the whole batches in fetched bytes; CorruptMessage for what is none."""
    found = []
    position = 0
    for batch in iterate_batches(memoryview(data), partial_tail=True):
        is_abort = False
        if aborted and batch.is_control:
            records = batch.records()
            is_abort = any(
                decode_control_type(one.key) is ControlRecordType.ABORT for one in records
            )
        found.append(
            FetchedBatch(
                batch.base_offset,
                batch.next_offset - 1,
                position,
                batch.size,
                batch.producer_id,
                batch.is_transactional,
                is_abort,
            )
        )
        position += batch.size
    return Fetched(found, aborted or [])
