"""Record batches of sessions: valid and flawed ones to produce, and fetched ones to compare.

Kafka: none.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.records.batch import HEADER_BYTES, RecordBatch, TimestampType
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from tests.conformance.differential.side import BASE_TIME_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.sessions.steps import Records

TRANSACTIONAL = "transactional"
FLAWS = (
    *("crc", "cut", "control", "two", "empty", "no key", "no key", "no value", "magic 1"),
    *("magic 7", "short", TRANSACTIONAL),
)
_LENGTH_AT, _MAGIC_AT, _CRC_AT = 8, 16, 17
_LAST_TIME_MS = 1_750_000_000_000


def encode(records: Records, producer_id: int, epoch: int, sequence: int) -> bytes:
    """Return the batch of a step."""
    time_ms = BASE_TIME_MS + 1000 * records.number + records.time_step_ms
    entries = [
        (
            time_ms + index,
            None if records.flaw == "no key" else b"k%d" % (index % 3),
            None if records.flaw == "no value" else b"v%d-%d" % (records.number, index),
            (),
        )
        for index in range(records.count)
    ]
    options: dict[str, Any] = {}
    if producer_id >= 0:
        options = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    options["compression"] = Compression(records.codec)
    options["control"] = records.flaw == "control"
    options["transactional"] = records.is_transactional or records.flaw == TRANSACTIONAL
    batch = encode_batch(entries, **options)
    return _FLAWED.get(records.flaw, bytes)(batch)


def _wrong_crc(batch: bytearray) -> bytes:
    batch[_CRC_AT] ^= 1
    return bytes(batch)


def _magic(magic: int) -> Callable[[bytearray], bytes]:
    def changed(batch: bytearray) -> bytes:
        batch[_MAGIC_AT] = magic
        return bytes(batch)

    return changed


def _short(batch: bytearray) -> bytes:
    struct.pack_into(">i", batch, _LENGTH_AT, 5)
    return bytes(batch)


_FLAWED: dict[str, Callable[[bytearray], bytes]] = {
    "crc": _wrong_crc,
    "magic 1": _magic(1),
    "magic 7": _magic(7),
    "short": _short,
    "cut": lambda batch: bytes(batch[:-3]),
    "two": lambda batch: bytes(batch + batch),
    "empty": lambda _batch: b"",
}


def decode(data: bytes | memoryview, name_producer: Callable[[int], str]) -> list[Any]:
    """Return fetched batches as plain data; times of now and what follows from them are left out.

    The bytes of recompressed batches differ between the two implementations, their records do not.
    """
    found: list[Any] = []
    view = memoryview(data)
    while len(view) >= HEADER_BYTES:
        size = _LENGTH_AT + 4 + int.from_bytes(view[_LENGTH_AT : _LENGTH_AT + 4], "big")
        if size > len(view):
            break
        batch = RecordBatch(view[:size])
        found.append(_decode_batch(batch, name_producer))
        view = view[batch.size :]
    if len(view):
        found.append("incomplete batch")
    return found


def _decode_batch(batch: RecordBatch, name_producer: Callable[[int], str]) -> dict[str, Any]:
    batch.check_crc()
    appended = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    shown: dict[str, Any] = {
        "base_offset": batch.base_offset,
        "leader_epoch": batch.leader_epoch,
        "attributes": batch.attributes,
        "last_offset_delta": batch.last_offset_delta,
        "base_timestamp": _time(batch.base_timestamp),
        "max_timestamp": _time(batch.max_timestamp),
        "producer": name_producer(batch.producer_id),
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
    }
    shown["records"] = [
        f"{record.offset} {'' if appended else _time(record.timestamp)} {record.key!r}"
        f" {record.value!r} {record.headers}"
        for record in batch.records()
    ]
    return shown


def _time(timestamp: int) -> int | str:
    return "<time>" if timestamp > _LAST_TIME_MS else timestamp
