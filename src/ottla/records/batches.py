"""Iterates over consecutive record batches of all formats.

Kafka: org.apache.kafka.common.record.{ByteBufferLogInputStream, MemoryRecords}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage
from ottla.records.batch import MAGIC_POSITION, RecordBatch, claimed_bytes
from ottla.records.legacy import LegacyBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.types import Buffer


def iterate_batches(
    view: Buffer, position: int = 0, *, partial_tail: bool = False
) -> Iterator[RecordBatch]:
    """Iterate over consecutive batches of any magic.

    A truncated batch raises CorruptMessage; with partial_tail it ends the iteration, as fetch
    responses need: brokers may truncate the last batch. A batch with an invalid magic or size
    in its header always raises CorruptMessage.
    """
    view = memoryview(view)
    end = len(view)
    while position < end:
        left = end - position
        size = claimed_bytes(view, position)
        if size > left:
            if partial_tail:
                return
            raise CorruptMessage(f"A record batch is truncated: {left} bytes are left.")
        batch = batch_at(view, position)
        yield batch
        position += batch.size


def batch_at(view: memoryview, position: int) -> RecordBatch:
    """Return the batch of any magic at position; raises CorruptMessage unless it is complete."""
    if len(view) - position > MAGIC_POSITION and view[position + MAGIC_POSITION] < 2:
        return LegacyBatch(view, position)
    return RecordBatch(view, position)
