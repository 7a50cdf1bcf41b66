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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.walker import Reader
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
_PARTITION_WITHOUT_ERRORS: Final = Struct(">ihqqqbbb")
_NO_ERRORS: Final = b"\0\0\0\0\xff\xff"  # no record errors, no message
_new_tuple: Final = tuple.__new__


PartitionRecords = tuple["str | Uuid", int, "memoryview | None"]
"""What a client sends for one partition: the topic, the partition and a view of the records.

The topic is its id from version 13 on, else its name. A plain tuple, because every request makes
and unpacks one.
"""


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


def read_produce(reader: Reader, version: int) -> ProduceValues:
    """Read the body of a request; CorruptMessage when it is none."""
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
            partitions.append((topic, index, records))
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
    size = topic_count = number = 0
    count = len(answers)
    while number < count:
        topic = answers[number][0]
        end = number + 1
        while end < count and answers[end][0] == topic:
            end += 1
        topic_count += 1
        parts.append(encode_text(topic, flexible) if isinstance(topic, str) else topic)
        parts.append(encode_count(end - number, flexible))
        while number < end:
            _write_partition(parts, tuple(answers[number]), version)
            number += 1
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(_FLEXIBLE_END.pack(throttle_time_ms, 0))
    else:
        parts.append(_INT32.pack(throttle_time_ms))
    parts[1] = encode_count(topic_count, flexible)
    for part in parts:
        size += len(part)
    if flexible:
        parts[0] = _SIZE_CORRELATION_NO_TAGS.pack(size + 5, correlation_id, 0)
    else:
        parts[0] = _SIZE_AND_CORRELATION.pack(size + 4, correlation_id)
    return b"".join(parts)


def _write_partition(parts: list[bytes], answer: tuple[Any, ...], version: int) -> None:
    _, index, code, base_offset, append_time_ms, log_start, record_errors, message = answer
    flexible = version >= _FLEXIBLE_FROM
    has_no_errors = message is None and not record_errors
    if flexible and has_no_errors:
        packed = _PARTITION_WITHOUT_ERRORS.pack(
            index, code, base_offset, append_time_ms, log_start, 1, 0, 0
        )
        parts.append(packed)  # without record errors, message and tags
        return
    if version < _LOG_START_FROM:
        parts.append(_PARTITION.pack(index, code, base_offset, append_time_ms))
        return
    parts.append(_PARTITION_AND_START.pack(index, code, base_offset, append_time_ms, log_start))
    if version < _RECORD_ERRORS_FROM:
        return
    if has_no_errors:
        parts.append(_NO_ERRORS)
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
