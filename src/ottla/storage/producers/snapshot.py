"""The producer state on disk: one file per segment and one at every clean shutdown.

Kafka: ProducerStateManager.readSnapshot/writeSnapshot, ProducerSnapshot.json.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage
from ottla.records.crc32c import crc32c
from ottla.storage.producers.entry import BatchMetadata, ProducerEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the file's bytes."""
    packed = [
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.batches[-1].offset_delta if entry.batches else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for entry in entries
    ]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the entries; CorruptMessage when version, checksum or length is wrong."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptMessage(f"a producer snapshot of {len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptMessage(f"a producer snapshot of version {version}")
    if crc32c(data[_HEAD.size :]) != crc:
        raise CorruptMessage("a producer snapshot with a wrong checksum")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    start = _HEAD.size + _COUNT.size
    if count < 0 or len(data) - start != count * _ENTRY.size:
        raise CorruptMessage(f"a producer snapshot of {len(data)} bytes with {count} entries")
    return [_decode_entry(fields) for fields in _ENTRY.iter_unpack(data[start:])]


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
    batches = (BatchMetadata(sequence, offset, delta, timestamp),) if offset >= 0 else ()
    return ProducerEntry(
        producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        transaction_first_offset=first,
        batches=batches,
    )
