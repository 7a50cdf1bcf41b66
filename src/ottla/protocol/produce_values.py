"""Produce requests and responses as flat values: what a broker reads and writes of them.

A broker serves this API more often than all others together. It reads a request into tuples and
writes the response from tuples, in all versions, without a message object for each partition.
Clients use `protocol/apis/produce.py`; tests/protocol/test_produce_values.py compares both.

Compiled by Cython with `produce_values.pxd`; runs uncompiled too.

Hot path: `read_produce` and `write_produce`. benchmarks/against_kafka.
Kafka: ProduceRequest, ProduceResponse (key 0).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.protocol.flat import (
    encode_count,
    encode_text,
    read_count,
    read_nullable_text,
    read_text,
    read_uuid,
    skip_tags,
)
from ottla.protocol.walker import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.types import Uuid

_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 13
_LOG_START_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_SIZE_AND_CORRELATION: Final = Struct(">ii")
_SIZE_CORRELATION_NO_TAGS: Final = Struct(">iib")
_PARTITION: Final = Struct(">ihqq")
_PARTITION_AND_START: Final = Struct(">ihqqq")
_INT32: Final = Struct(">i")
_FLEXIBLE_END: Final = Struct(">ib")
_NOTHING_MORE: Final = b"\1\0\0"  # flexible: no record errors, no message, no tags
_NO_ERRORS: Final = b"\0\0\0\0\xff\xff"  # before: no record errors, no message
_new_tuple: Final = tuple.__new__


class PartitionRecords(NamedTuple):
    """What a client sends for one partition."""

    topic: str | Uuid
    """The topic's id from version 13 on, else its name."""
    partition: int
    records: memoryview | None
    """A view of the frame."""


class ProduceValues(NamedTuple):
    """A request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[PartitionRecords]


class PartitionAnswer(NamedTuple):
    """What a client is answered for one partition; offsets and times are -1 for none."""

    topic: str | Uuid
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: Sequence[tuple[int, str | None]] = ()
    """Index in the batch and message (KIP-467)."""
    error_message: str | None = None


def read_produce(frame: memoryview, position: int, version: int) -> ProduceValues:
    """Read the body of a request at position; CorruptMessage when it is none."""
    reader = Reader()
    reader.source = frame
    reader.data = frame
    reader.position = position
    reader.end = len(frame)
    try:
        return _read(reader, version)
    except IndexError as error:
        raise CorruptMessage(f"Produce request ends early: {error}") from error


def _read(reader: Reader, version: int) -> ProduceValues:
    flexible = version >= _FLEXIBLE_FROM
    transactional_id = read_nullable_text(reader, flexible)
    acks = reader.integer(2, signed=True)
    timeout_ms = reader.integer(4, signed=True)
    partitions: list[PartitionRecords] = []
    topic_count = read_count(reader, flexible)
    while topic_count > 0:
        topic_count -= 1
        if version >= _TOPIC_IDS_FROM:
            topic: str | Uuid = read_uuid(reader)
        else:
            topic = read_text(reader, flexible)
        count = read_count(reader, flexible)
        while count > 0:
            count -= 1
            index = reader.integer(4, signed=True)
            size = reader.uvarint() - 1 if flexible else reader.integer(4, signed=True)
            records = None
            if size >= 0:
                start = reader.need(size)
                records = reader.source[start : start + size]
            elif size < -1:
                raise CorruptMessage(f"records of {size} bytes")
            if flexible:
                skip_tags(reader)
            partitions.append(_new_tuple(PartitionRecords, (topic, index, records)))
        if flexible:
            skip_tags(reader)
    if flexible:
        skip_tags(reader)
    return _new_tuple(ProduceValues, (transactional_id, acks, timeout_ms, partitions))


def write_produce(
    answers: list[PartitionAnswer], correlation_id: int, version: int, throttle_time_ms: int
) -> bytes:
    """Return the frame of a response; neighbours of one topic are in one element."""
    flexible = version >= _FLEXIBLE_FROM
    parts: list[bytes] = [b"", b""]
    topic_count = 0
    number = 0
    while number < len(answers):
        topic = answers[number].topic
        end = number + 1
        while end < len(answers) and answers[end].topic == topic:
            end += 1
        topic_count += 1
        parts.append(encode_text(topic, flexible) if isinstance(topic, str) else topic)
        parts.append(encode_count(end - number, flexible))
        while number < end:
            _write_partition(parts, answers[number], version)
            number += 1
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(_FLEXIBLE_END.pack(throttle_time_ms, 0))
    else:
        parts.append(_INT32.pack(throttle_time_ms))
    parts[1] = encode_count(topic_count, flexible)
    body = b"".join(parts)
    if flexible:
        return _SIZE_CORRELATION_NO_TAGS.pack(len(body) + 5, correlation_id, 0) + body
    return _SIZE_AND_CORRELATION.pack(len(body) + 4, correlation_id) + body


def _write_partition(parts: list[bytes], answer: PartitionAnswer, version: int) -> None:
    _, index, code, base_offset, append_time_ms, log_start, record_errors, message = answer
    if version < _LOG_START_FROM:
        parts.append(_PARTITION.pack(index, code, base_offset, append_time_ms))
        return
    parts.append(_PARTITION_AND_START.pack(index, code, base_offset, append_time_ms, log_start))
    if version < _RECORD_ERRORS_FROM:
        return
    flexible = version >= _FLEXIBLE_FROM
    if not record_errors and message is None:
        parts.append(_NOTHING_MORE if flexible else _NO_ERRORS)
        return
    parts.append(encode_count(len(record_errors), flexible))
    for batch_index, text in record_errors:
        parts.append(_INT32.pack(batch_index))
        parts.append(_nullable_text(text, flexible))
        if flexible:
            parts.append(b"\0")
    parts.append(_nullable_text(message, flexible))
    if flexible:
        parts.append(b"\0")


def _nullable_text(text: str | None, flexible: bool) -> bytes:  # noqa: FBT001 - as compiled
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    return encode_text(text, flexible)
