"""Produce: what brokers accept, what they refuse, and with which words.

Kafka: KafkaApis.handleProduceRequest, LogValidator.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.batch import TimestampType
from ottla.records.builder import assemble_batch, encode_batch
from ottla.records.compression import Compression
from ottla.records.crc32c import crc32c
from ottla.records.scan import append_record
from ottla.types import ZERO_UUID, Uuid
from tests.conformance.differential.case import case
from tests.conformance.differential.side import BASE_TIME_MS, batch

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

OTHER_ID = Uuid(b"no such topic id")
LAST = (1 << 63) - 1
NOT_A_PRODUCER = 777_000  # an id that no node handed out


def _topic(at: Side, name: str, *partitions: tuple[int, bytes | None]) -> dict[str, Any]:
    data = [{"index": index, "records": records} for index, records in partitions]
    topic_id = at.topic_id(name) if name else ZERO_UUID
    return {"name": name, "topic_id": topic_id or OTHER_ID, "partition_data": data}


def sent(
    records: bytes | None,
    topic: str = "produced",
    partition: int = 0,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    **configs: str,
) -> Fields:
    """Return fields that produce bytes to a topic which is there."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        at.topic(topic, **configs)
        data = [_topic(at, topic, (partition, records))]
        return {
            "acks": acks,
            "timeout_ms": 5000,
            "transactional_id": transactional_id,
            "topic_data": data,
        }

    return fields


def _unknown(at: Side, version: int) -> dict[str, Any]:
    return {"acks": -1, "timeout_ms": 5000, "topic_data": [_topic(at, "absent", (0, batch()))]}


def _several(at: Side, version: int) -> dict[str, Any]:
    at.topic("produced-two", 2)
    topics = [
        _topic(at, "produced-two", (1, batch(1)), (0, batch(2)), (7, batch(3))),
        _topic(at, "absent", (0, batch())),
    ]
    return {"acks": 1, "timeout_ms": 5000, "topic_data": topics}


def _twice(at: Side, version: int) -> dict[str, Any]:
    at.topic("produced-twice")
    topic = _topic(at, "produced-twice", (0, batch(1)), (0, batch(2)))
    return {"acks": 1, "timeout_ms": 5000, "topic_data": [topic]}


def _scattered(at: Side, version: int) -> dict[str, Any]:
    at.topic("produced-two", 2)
    topics = [
        _topic(at, "produced-two", (1, batch(1))),
        _topic(at, "absent", (0, batch())),
        _topic(at, "produced-two", (9, batch(1))),
    ]
    return {"acks": 1, "timeout_ms": 5000, "topic_data": topics}


def _transactional_first(at: Side, version: int) -> dict[str, Any]:
    """Send a batch that no transaction covers, then another one that replaces it."""
    at.topic("produced-twice")
    batches = (batch(1, transactional=True, producer_id=5, producer_epoch=0), batch(2))
    topic = _topic(at, "produced-twice", *((0, one) for one in batches))
    return {"acks": 1, "timeout_ms": 5000, "topic_data": [topic, topic]}


def _internal(at: Side, version: int) -> dict[str, Any]:
    at.coordinator()
    topic = _topic(at, "__consumer_offsets", (0, batch()))
    return {"acks": -1, "timeout_ms": 5000, "topic_data": [topic]}


def _end(topic: str) -> Any:
    return lambda at, version: at.end_offset(topic)


def _stored(at: Side, topic: str) -> str:
    """Return what the last batch in the log says of times and producer, and how many records."""
    partition = {
        "partition": 0,
        "fetch_offset": at.end_offset(topic) - 1,
        "partition_max_bytes": 1 << 20,
    }
    requested = [{"topic": topic, "partitions": [partition]}]
    options = {"replica_id": -1, "max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20}
    answer = at.ask(ApiKey.FETCH, 11, session_epoch=-1, topics=requested, **options)
    return bytes(answer.responses[0].partitions[0].records)[21:61].hex()


def _sequence(first: int, epoch: int = 0, *, producer: int = 1) -> Fields:
    """Return a batch of one idempotent producer, after the batches 0 and 2 of epoch 0."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        topic, number = at.topic(f"sequences-{producer}"), NOT_A_PRODUCER + producer
        own = {"producer_id": number, "producer_epoch": 3}

        def begin() -> None:
            for start in (0, 2):
                assert at.produce(topic, batch(base_sequence=start, **own)) == 0

        at.once(f"sequences {producer}", begin)
        own["producer_epoch"] += epoch
        return sent(batch(base_sequence=first, **own), topic)(at, version)

    return fields


def _patched(offset: int, layout: str, value: int, *, checked: bool = True) -> bytes:
    """Return a batch with one header field replaced, and its checksum right again."""
    made = bytearray(batch())
    struct.pack_into(layout, made, offset, value)
    if checked:
        struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    return bytes(made)


def _old_message(magic: int) -> bytes:
    """Return one message of the formats before batches."""
    import zlib

    stamp = struct.pack(">q", BASE_TIME_MS) if magic else b""
    body = (
        struct.pack(">bb", magic, 0) + stamp + struct.pack(">i", -1) + struct.pack(">i1s", 1, b"v")
    )
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def _length(claimed: int, made: bytes | None = None) -> bytes:
    """Return a batch that claims another length, its checksum as it was."""
    made = batch() if made is None else made
    return made[:8] + struct.pack(">i", claimed) + made[12:]


def _timed(base_ms: int, delta_ms: int) -> bytes:
    """Return a batch of one record whose time is its batch's and a delta, whatever that is."""
    payload = bytearray()
    append_record(payload, delta_ms, 0, b"k", b"v", b"\0")
    return bytes(
        assemble_batch(
            payload,
            attributes=0,
            record_count=1,
            last_offset_delta=0,
            base_timestamp=base_ms,
            max_timestamp=base_ms,
        )
    )


def _at_time(timestamp_ms: int, key: bytes | None = b"k") -> bytes:
    return bytes(encode_batch([(timestamp_ms, key, b"v", ())]))


E_ = ErrorCode
LOST = (E_.UNKNOWN_TOPIC_OR_PARTITION, E_.UNKNOWN_TOPIC_ID)


def _make(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(ProduceRequest, name, fields, errors=errors, **options)


def _built_anew(number: int, epoch: int, sequence: int, *errors: int) -> Case:
    """Return a batch of a producer that the topic keeps in another codec."""
    made = batch(
        producer_id=number,
        producer_epoch=epoch,
        base_sequence=sequence,
        compression=Compression.GZIP,
    )
    topic = f"rebuilt-{number & 0xFFFF}"
    return _make(
        f"producer id {number}, epoch {epoch}, sequence {sequence}, rebuilt",
        sent(made, topic, compression_type="uncompressed"),
        *errors,
        versions=(9, 9),
        after=lambda at, version: _stored(at, topic),
    )


BUILT_ANEW = [
    *(
        _built_anew(number, epoch, sequence)
        for number in (-1, -2, -(1 << 63))
        for epoch, sequence in ((3, 5), (0, 0))
    ),
    *(_built_anew(-1, *rest) for rest in ((-1, -1), (3, -1), (-1, 5))),
    *(_built_anew(-2, *rest, E_.UNKNOWN_SERVER_ERROR) for rest in ((-1, -1), (3, -1), (-1, 5))),
    _built_anew(NOT_A_PRODUCER + 60, -1, 0, E_.UNKNOWN_SERVER_ERROR),
    _built_anew(-2, -7, 5),
    _built_anew(-2, 3, -7, E_.UNKNOWN_SERVER_ERROR),
]
UNREADABLE = [
    _make(name, sent(data), code)
    for name, data, code in (
        ("length -1", _length(-1), E_.CORRUPT_MESSAGE),
        ("length 13", _length(13), E_.CORRUPT_MESSAGE),
        ("length 14", _length(14), E_.CORRUPT_MESSAGE),
        ("length 48", _length(48), E_.CORRUPT_MESSAGE),
        ("length 48, nothing after", _length(48)[:60], E_.CORRUPT_MESSAGE),
        ("length 60", _length(60), E_.CORRUPT_MESSAGE),
        ("length too long", _length(10_000), E_.INVALID_RECORD),
        ("length longer, zeros after", _length(100) + bytes(60), E_.CORRUPT_MESSAGE),
        ("magic -1", _patched(16, ">b", -1), E_.CORRUPT_MESSAGE),
        ("second magic 3", batch() + _patched(16, ">b", 3), E_.CORRUPT_MESSAGE),
        ("second magic 1", batch() + _old_message(1), E_.INVALID_RECORD),
        ("second length 5", batch() + _length(5), E_.CORRUPT_MESSAGE),
        ("second length 48", batch() + _length(48), E_.INVALID_RECORD),
        ("third magic 3", batch() + batch() + _patched(16, ">b", 3), E_.INVALID_RECORD),
        ("magic 1, wrong length", _length(15, _old_message(1)), E_.INVALID_RECORD),
        ("magic 1, zeros after", _old_message(1) + bytes(20), E_.INVALID_RECORD),
    )
]
WRAPPED = [
    _make(
        f"time {base} and {delta}, {codec}",
        sent(_timed(base, delta), f"wrapped-{codec}", compression_type=codec),
        E_.INVALID_TIMESTAMP,
        versions=(9, 9),
    )
    for base, delta in ((LAST, 1), (-LAST - 1, -1), (1 << 62, 1 << 62))
    for codec in ("producer", "gzip")
] + [
    _make(
        f"time wraps to one that is taken, {kind} {codec}",
        sent(
            _timed(LAST, 1 << 62),
            f"wrapped-{kind}-{codec}",
            compression_type=codec,
            message_timestamp_type=kind,
        ),
        *errors,
        versions=(9, 9),
    )
    for kind, codec, errors in (
        ("CreateTime", "producer", []),
        ("CreateTime", "gzip", [E_.UNKNOWN_SERVER_ERROR]),
        ("LogAppendTime", "producer", []),
    )
]
CASES: list[Case] = [
    _make("valid, all replicas", sent(batch()), after=_end("produced")),
    _make("valid, the leader", sent(batch(), acks=1)),
    _make("valid, acks 0", sent(batch(), acks=0), silent=True, after=_end("produced")),
    _make("several partitions", _several, *LOST),
    _make("several partitions, another topic in between", _scattered, *LOST),
    _make("the same partition twice", _twice, after=_end("produced-twice")),
    _make(
        "the same partition twice, first transactional",
        _transactional_first,
        E_.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        after=_end("produced-twice"),
    ),
    _make(
        "two batches, zstd",
        sent(batch(compression=Compression.ZSTD) * 2),
        E_.INVALID_RECORD,
        E_.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    _make("length without magic", sent(struct.pack(">qi", 0, 3)), E_.CORRUPT_MESSAGE),
    *(
        _make(
            f"header of {size} bytes",
            sent(struct.pack(">qi", 0, size - 12) + batch()[12:size]),
            E_.UNKNOWN_SERVER_ERROR,
        )
        for size in (26, 50)
    ),
    _make(
        "header of 51 bytes",
        sent(struct.pack(">qi", 0, 39) + batch()[12:51]),
        E_.CORRUPT_MESSAGE,
    ),
    _make("unknown topic", _unknown, *LOST),
    _make("unknown partition", sent(batch(), "produced", 9), LOST[0]),
    _make("negative partition", sent(batch(), "produced", -1), LOST[0]),
    _make("internal topic", _internal, E_.INVALID_TOPIC_EXCEPTION),
    _make("acks 2", sent(batch(), acks=2), E_.INVALID_REQUIRED_ACKS),
    _make("acks -2", sent(batch(), acks=-2), E_.INVALID_REQUIRED_ACKS),
    _make("no records", sent(b""), E_.INVALID_RECORD),
    _make("null records", sent(None), versions=(13, 13), silent=True),
    _make(
        "too few replicas",
        sent(batch(), "wants-two", min_insync_replicas="2"),
    ),
    _make("too few replicas, leader", sent(batch(), "wants-two", acks=1, min_insync_replicas="2")),
    _make(
        "batch too large",
        sent(batch(), "small", max_message_bytes="80"),
        E_.MESSAGE_TOO_LARGE,
    ),
    _make("wrong checksum", sent(_patched(30, ">q", 5, checked=False)), E_.CORRUPT_MESSAGE),
    _make("cut short", sent(batch()[:-3]), E_.INVALID_RECORD),
    _make("only a head", sent(batch()[:30]), E_.INVALID_RECORD),
    _make("noise", sent(bytes(range(200))), E_.CORRUPT_MESSAGE),
    _make("negative length", sent(_patched(8, ">i", -5, checked=False)), E_.CORRUPT_MESSAGE),
    _make("length too small", sent(_patched(8, ">i", 10, checked=False)), E_.CORRUPT_MESSAGE),
    _make("bytes after the batch", sent(batch() + b"\0\0\0")),
    _make("two batches", sent(batch(1) + batch(2)), E_.INVALID_RECORD),
    _make("magic 3", sent(_patched(16, ">b", 3)), E_.CORRUPT_MESSAGE),
    _make("magic 0", sent(_old_message(0)), E_.INVALID_RECORD),
    _make("magic 1", sent(_old_message(1)), E_.INVALID_RECORD),
    _make("base offset is free", sent(batch(base_offset=77)), E_.INVALID_RECORD),
    _make("control batch", sent(batch(control=True)), E_.INVALID_RECORD),
    _make("record count too high", sent(_patched(57, ">i", 3)), E_.INVALID_RECORD),
    _make("record count too low", sent(_patched(57, ">i", 1)), E_.INVALID_RECORD),
    _make("negative record count", sent(_patched(57, ">i", -1)), E_.INVALID_RECORD),
    _make("no record", sent(_patched(57, ">i", 0)), E_.INVALID_RECORD),
    _make("last offset delta wrong", sent(_patched(23, ">i", 7)), E_.INVALID_RECORD),
    _make("negative last delta", sent(_patched(23, ">i", -1)), E_.INVALID_RECORD),
    _make("codec 5", sent(_patched(21, ">h", 5)), E_.UNKNOWN_SERVER_ERROR),
    _make("says gzip, is plain", sent(_patched(21, ">h", 1)), E_.UNKNOWN_SERVER_ERROR),
    *(
        _make(f"valid {codec.name.lower()}", sent(batch(compression=codec), "codecs"))
        for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
    ),
    _make(
        "zstd",
        sent(batch(compression=Compression.ZSTD), "codecs"),
        E_.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    _make(
        "recompressed",
        sent(batch(compression=Compression.GZIP), "plain-only", compression_type="uncompressed"),
    ),
    _make(
        "append time",
        sent(batch(), "append-time", message_timestamp_type="LogAppendTime"),
    ),
    _make(
        "batch claims append time",
        sent(batch(timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=BASE_TIME_MS)),
    ),
    _make("time to come", sent(_at_time(4_000_000_000_000)), E_.INVALID_TIMESTAMP),
    _make(
        "time long gone",
        sent(batch(), "recent", message_timestamp_before_max_ms="1000"),
        E_.INVALID_TIMESTAMP,
    ),
    _make("no time", sent(_at_time(-1))),
    _make("no time, recompressed", sent(_at_time(-1), "gzipped", compression_type="gzip")),
    _make("negative time", sent(_at_time(-5))),
    _make(
        "negative time, recompressed",
        sent(_at_time(-5), "gzipped", compression_type="gzip"),
        E_.UNKNOWN_SERVER_ERROR,
    ),
    _make(
        "negative time, append time and recompressed",
        sent(
            _at_time(-5),
            "gz-append",
            compression_type="gzip",
            message_timestamp_type="LogAppendTime",
        ),
        E_.UNKNOWN_SERVER_ERROR,
    ),
    _make(
        "no key in a compacted topic",
        sent(_at_time(BASE_TIME_MS, None), "compacted", cleanup_policy="compact"),
        E_.INVALID_RECORD,
    ),
    _make(
        "keys in a compacted topic",
        sent(_at_time(BASE_TIME_MS), "compacted", cleanup_policy="compact"),
    ),
    *BUILT_ANEW,
    *UNREADABLE,
    *WRAPPED,
    _make("idempotent duplicate", _sequence(2)),
    _make("idempotent old duplicate", _sequence(0)),
    _make("idempotent gap", _sequence(9), E_.OUT_OF_ORDER_SEQUENCE_NUMBER),
    _make("idempotent old epoch", _sequence(4, -1), E_.INVALID_PRODUCER_EPOCH),
    _make("idempotent new epoch, gap", _sequence(5, 1), E_.OUT_OF_ORDER_SEQUENCE_NUMBER),
    _make(
        "unknown producer in the middle",
        sent(batch(producer_id=NOT_A_PRODUCER + 50, producer_epoch=0, base_sequence=40), "strange"),
        versions=(3, 3),
    ),
    _make(
        "producer without sequence",
        sent(batch(producer_id=NOT_A_PRODUCER + 51, producer_epoch=0, base_sequence=-1), "strange"),
        E_.INVALID_RECORD,
    ),
    _make(
        "transactional batch without a transaction",
        sent(
            batch(
                producer_id=NOT_A_PRODUCER + 52,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        ),
        E_.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
]
