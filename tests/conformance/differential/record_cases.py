"""Produce: records that LogValidator takes, refuses or changes, in every codec.

Kafka: org.apache.kafka.storage.internals.log.LogValidator, UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.batch import HEADER_BYTES
from ottla.records.builder import assemble_batch
from ottla.records.compression import Compression, compress, decompress
from ottla.records.crc32c import crc32c
from ottla.records.scan import append_varint
from tests.conformance.differential.case import case
from tests.conformance.differential.produce_cases import sent
from tests.conformance.differential.side import BASE_TIME_MS

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case
    from tests.conformance.differential.side import Side

E_ = ErrorCode
CODECS = tuple(Compression)
COMPRESSED = tuple(codec for codec in Compression if codec)
YEAR_3000_MS = 32_503_680_000_000
LATE = YEAR_3000_MS - BASE_TIME_MS
LOG_APPEND_TIME = 0x08
HORIZON = 0x40
UNUSED = 0x7F80


def varint(value: int) -> bytes:
    """Return a zig-zag varint."""
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def record(
    offset: int,
    delta: int = 0,
    key: bytes | None = b"k",
    *,
    headers: bytes = b"\0",
    attributes: int = 0,
    **sizes: int,
) -> bytes:
    """Return a record; `sizes` claims other sizes for the record, its key or its value."""
    key_size = varint(sizes.get("key", -1 if key is None else len(key)))
    body = bytes([attributes]) + varint(delta) + varint(offset) + key_size + (key or b"")
    body += varint(sizes.get("value", 1)) + b"v" * (sizes.get("value", 1) > 0) + headers
    return varint(sizes.get("record", len(body))) + body


def batch_of(
    payload: bytes,
    codec: Compression,
    count: int = 2,
    *,
    flags: int = 0,
    max_timestamp: int = BASE_TIME_MS,
) -> bytes:
    """Return a batch with good header and checksum around any payload."""
    return bytes(
        assemble_batch(
            compress(codec, payload),
            attributes=int(codec) | flags,
            record_count=count,
            last_offset_delta=count - 1,
            base_timestamp=BASE_TIME_MS,
            max_timestamp=max_timestamp,
        )
    )


def _stored(at: Side, topic: str) -> str:
    """Return the header and the records of the last batch in the log."""
    partition = {"fetch_offset": at.end_offset(topic) - 1, "partition_max_bytes": 1 << 20}
    requested = [{"topic": topic, "partitions": [partition | {"partition": 0}]}]
    options = {"replica_id": -1, "max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20}
    answer = at.ask(ApiKey.FETCH, 11, session_epoch=-1, topics=requested, **options)
    data = bytes(answer.responses[0].partitions[0].records)
    if not data:
        return "nothing"
    codec = Compression.from_id(data[22] & 7)
    attributes, delta, first, newest = struct.unpack_from(">hiqq", data, 21)
    if attributes & LOG_APPEND_TIME:
        first = newest = 0
    records = bytes(decompress(codec, data[HEADER_BYTES:]))
    return f"{attributes:x} {delta} {first} {newest} {records.hex()}"


def _make(name: str, data: bytes, topic: str, *errors: int, **configs: Any) -> Case:
    return case(
        ProduceRequest,
        name,
        sent(data, topic, **configs),
        errors=errors,
        versions=(9, 9),
        after=None if errors else lambda at, version: _stored(at, topic),
    )


def _in_codecs(
    name: str, payload: bytes, *errors: int, codecs: Any = CODECS, count: int = 2, **fields: int
) -> list[Case]:
    return [
        _make(
            f"{name}, {codec.name}",
            batch_of(payload, codec, count, **fields),
            "records-kept",
            *errors,
        )
        for codec in codecs
    ]


def _rebuilt(name: str, payload: bytes, *errors: int) -> list[Case]:
    """Return batches that the broker compresses itself."""
    ways = (
        (Compression.NONE, "gzip"),
        (Compression.LZ4, "gzip"),
        (Compression.LZ4, "uncompressed"),
    )
    return [
        _make(
            f"{name}, {codec.name} to {target}",
            batch_of(payload, codec),
            f"records-{target}",
            *errors,
            compression_type=target,
        )
        for codec, target in ways
    ]


def _in_broker_time(name: str, data: bytes, *errors: int) -> Case:
    return _make(name, data, "records-appended", *errors, message_timestamp_type="LogAppendTime")


def _resealed(data: bytes) -> bytes:
    """Return a batch with its length and checksum right again."""
    out = bytearray(data)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
    return bytes(out)


KEY_OF_SIZE_MINUS_5 = b"\x0e\0\0\0" + varint(-5) + b"\x02v\0"
GOOD = record(0) + record(1)
MALFORMED = {
    "bytes after the last record": GOOD + b"\0\0\0",
    "one record more than the count": GOOD + record(2),
    "one record less than the count": record(0),
    "last record cut short": GOOD[:-3],
    "record longer than its fields": record(0, record=11) + b"zzzz" + record(1),
    "record of no bytes": b"\0" + record(1),
    "negative record size": varint(-1) + record(1),
    "negative header count": record(0, headers=varint(-1)) + record(1),
    "more headers than bytes": record(0, headers=varint(50)) + record(1),
    "negative size of a header's name": record(0, headers=varint(1) + varint(-1)) + record(1),
    "key longer than the record": record(0, record=9)[:5] + record(1),
    "value longer than the record": record(0, value=9) + record(1),
    "varint too long": record(0, headers=b"\x80" * 5 + b"\x01") + record(1),
    "late record before a malformed one": record(0, LATE) + record(1)[:-2],
}
TAKEN = {
    "record attributes": record(0, attributes=0xFF) + record(1),
    "header without a value": record(0, headers=b"\x02\x02h\x01") + record(1),
    "header name that is not UTF-8": record(0, headers=b"\x02\x02\xff\x02x") + record(1),
    "key size -5": KEY_OF_SIZE_MINUS_5 + record(1),
    "value size -5": record(0, value=-5) + record(1),
    "times that go down": record(0, 50) + record(1, -50),
}
SEQUENCES = {
    "0, 2": record(0) + record(2),
    "1, 2": record(1) + record(2),
    "0, 0": record(0) + record(0),
    "1, 0": record(1) + record(0),
    "-1, 0": record(-1) + record(0),
}
CASES: list[Case] = [
    *(
        one
        for name, payload in MALFORMED.items()
        for make in (_in_codecs, _rebuilt)
        for one in make(name, payload, E_.INVALID_RECORD)
    ),
    *(
        one
        for name, payload in TAKEN.items()
        for make in (_in_codecs, _rebuilt)
        for one in make(name, payload)
    ),
    *(
        one
        for name, payload in SEQUENCES.items()
        for one in (
            *_in_codecs(f"offsets {name}", payload, codecs=CODECS[:1]),
            *_in_codecs(f"offsets {name}", payload, E_.UNKNOWN_SERVER_ERROR, codecs=COMPRESSED),
            *_rebuilt(f"offsets {name}", payload),
        )
    ),
    *_in_codecs("offsets and a late record", record(4) + record(1, LATE), E_.INVALID_TIMESTAMP),
    *_in_codecs("late records", record(0, LATE) + record(1, LATE), E_.INVALID_TIMESTAMP),
    *(
        _make(
            f"record shorter than its fields, {codec.name}",
            batch_of(record(0, record=5) + record(1), codec),
            "records-shorter",
        )
        for codec in COMPRESSED
    ),
    *_in_codecs("other largest time", GOOD, max_timestamp=BASE_TIME_MS - 999),
    *_in_codecs("other largest time, flags", GOOD, flags=UNUSED, max_timestamp=1),
    *_in_codecs("unused flags", GOOD, flags=UNUSED),
    *_in_codecs("delete horizon", GOOD, flags=HORIZON),
    *_in_codecs("flag for the broker's time", GOOD, flags=LOG_APPEND_TIME),
    *_in_codecs(
        "flag for the broker's time, which is late",
        GOOD,
        E_.INVALID_TIMESTAMP,
        flags=LOG_APPEND_TIME,
        max_timestamp=YEAR_3000_MS,
    ),
    *_in_codecs(
        "flag for the broker's time, none",
        GOOD,
        E_.INVALID_TIMESTAMP,
        flags=LOG_APPEND_TIME,
        max_timestamp=-1,
    ),
    *(
        one
        for codec in CODECS
        for one in (
            _in_broker_time(
                f"flag and topic with the broker's time, {codec.name}",
                batch_of(GOOD, codec, flags=LOG_APPEND_TIME),
                E_.INVALID_TIMESTAMP,
            ),
            _in_broker_time(
                f"unused flags, the broker's time, {codec.name}",
                batch_of(GOOD, codec, flags=UNUSED | HORIZON),
            ),
            _in_broker_time(
                f"late, the broker's time, {codec.name}",
                batch_of(record(0, LATE) + record(1), codec),
            ),
            _in_broker_time(
                f"offsets 0, 2, the broker's time, {codec.name}",
                batch_of(record(0) + record(2), codec),
                *([E_.UNKNOWN_SERVER_ERROR] if codec else []),
            ),
            _make(
                f"no key, {codec.name}",
                batch_of(record(0) + record(1, key=None), codec),
                "records-compacted",
                E_.INVALID_RECORD,
                cleanup_policy="compact",
            ),
            _make(
                f"no key, offsets, {codec.name}",
                batch_of(record(3) + record(1, key=None), codec),
                "records-compacted",
                E_.INVALID_RECORD,
                cleanup_policy="compact",
            ),
            _make(
                f"no key before a late record, {codec.name}",
                batch_of(record(0, key=None) + record(1, LATE), codec),
                "records-compacted",
                E_.INVALID_TIMESTAMP,
                cleanup_policy="compact",
            ),
        )
    ),
    *(
        _make(
            f"stream cut by {cut}, {codec.name}",
            _resealed(batch_of(GOOD, codec)[:-cut]),
            "records-kept",
            E_.UNKNOWN_SERVER_ERROR,
        )
        for codec in COMPRESSED
        for cut in (1, 4)
    ),
    *(
        _make(
            f"bytes after the stream, {codec.name}",
            _resealed(batch_of(GOOD, codec) + b"abcd"),
            "records-kept",
            *errors,
        )
        for codec, errors in (
            (Compression.GZIP, ()),
            (Compression.LZ4, ()),
            (Compression.SNAPPY, (E_.UNKNOWN_SERVER_ERROR,)),
            (Compression.ZSTD, (E_.UNKNOWN_SERVER_ERROR,)),
        )
    ),
    *(
        _make(
            f"stream twice, {codec.name}",
            _resealed(batch_of(GOOD, codec) + batch_of(GOOD, codec)[HEADER_BYTES:]),
            "records-kept",
            *errors,
        )
        for codec, errors in (
            (Compression.GZIP, (E_.INVALID_RECORD,)),
            (Compression.LZ4, ()),
            (Compression.SNAPPY, (E_.INVALID_RECORD,)),
            (Compression.ZSTD, (E_.INVALID_RECORD,)),
        )
    ),
]
