"""The producer state of a partition in `.snapshot` files.

Kafka: ProducerSnapshot. The schema starts after the version number, which is 1.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, int16, int32, int64, uint32


class ProducerSnapshot(Struct, versions="1", flexible="none"):
    """All producers of a partition at an offset: the body of a .snapshot file."""

    crc: uint32
    producer_entries: list[ProducerEntry]

    class ProducerEntry(Struct):
        producer_id: int64
        epoch: int16
        last_sequence: int32
        last_offset: int64
        offset_delta: int32
        timestamp: int64
        coordinator_epoch: int32
        current_txn_first_offset: int64
