"""The batches of a fetch, by their headers: what acquisition needs to know of records.

Kafka: org.apache.kafka.common.record.internal.RecordBatch, as SharePartition uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.records.batch import (
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
    RecordBatch,
    claimed_bytes,
)
from ottla.records.batches import iterate_batches
from ottla.records.control import ControlRecordType, decode_control_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.storage.indexes.transaction_index import AbortedTransaction
    from ottla.types import Buffer


WINDOW_BYTES: Final = 64 * 1024
"""Bytes that are read at once; of larger batches only the header is read."""
_MAGIC: Final = 2


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


def walk(
    read: Callable[[int, int], Buffer],
    size: int,
    aborted: list[AbortedTransaction] | None,
    last_offset: int,
) -> Fetched:
    """Return the whole batches of fetched bytes, up to the one that has last_offset.

    read(position, size) reads part of the bytes: a member takes few of many small batches, and
    examining all of them would block the event loop. CorruptMessage for malformed batches.
    """
    found: list[FetchedBatch] = []
    position, begin, window = 0, 0, memoryview(b"")
    while position < size and not (found and found[-1].last_offset >= last_offset):
        if position + HEADER_BYTES > begin + len(window):
            begin, window = position, memoryview(read(position, min(WINDOW_BYTES, size - position)))
        place = position - begin
        is_old = len(window) > place + MAGIC_POSITION and window[place + MAGIC_POSITION] < _MAGIC
        if is_old or len(window) - place < HEADER_BYTES:
            found += _old_batches(read, position, size)
            break
        header = HEADER.unpack_from(window, place)
        count = claimed_bytes(window, place)
        if position + count > size:
            break
        is_abort = bool(aborted and header[5] & CONTROL_FLAG and _is_abort(read(position, count)))
        is_transactional = bool(header[5] & TRANSACTIONAL_FLAG)
        ends = (header[0], header[0] + header[6])
        found.append(FetchedBatch(*ends, position, count, header[9], is_transactional, is_abort))
        position += count
    return Fetched(found, aborted or [])


def _is_abort(control: Buffer) -> bool:
    records = RecordBatch(memoryview(control), 0).records()
    return any(decode_control_type(one.key) is ControlRecordType.ABORT for one in records)


def _old_batches(
    read: Callable[[int, int], Buffer], position: int, size: int
) -> Iterator[FetchedBatch]:
    """Yield the batches of message formats 0 and 1, and those of format 2 after them."""
    for batch in iterate_batches(read(position, size - position), partial_tail=True):
        last = batch.next_offset - 1
        yield FetchedBatch(
            batch.base_offset, last, position, batch.size, batch.producer_id, False, False
        )
        position += batch.size
