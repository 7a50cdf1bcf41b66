"""Produce requests and responses as flat values, as a broker reads and writes them.

A broker serves this API more often than all others together. It reads a request into tuples and
writes the response from tuples, in all versions, without a message object for each partition.
Clients use `protocol/apis/produce.py`; tests/protocol/test_produce_values.py compares both.

Compiled by Cython with `produce_values.pxd`; runs uncompiled too.

Hot path: `read_produce` and `write_produce`. benchmarks/against_kafka.
Kafka: ProduceRequest, ProduceResponse (key 0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla import native
from ottla.errors import CorruptMessage
from ottla.protocol.flat import (
    read_count,
    read_nullable_text,
    read_text,
    read_uuid,
    skip_tags,
    write_count,
    write_nullable_text,
    write_text,
)
from ottla.protocol.node_endpoints import endpoint_tags
from ottla.protocol.walker import writer_into

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.walker import Reader, Writer
    from ottla.types import Node, Uuid

_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 13
_LOG_START_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_LEADERS_FROM: Final = 10
_LEADER_TAG: Final = 0
_LEADER_BYTES: Final = 9


PartitionRecords = tuple["str | Uuid", int, "memoryview | None"]
"""The request for one partition: the topic, the partition and a view of the records.

The topic is its id from version 13 on, else its name. A plain tuple, because every request makes
and unpacks one.
"""


class ProduceValues(NamedTuple):
    """A request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[PartitionRecords]


PartitionAnswer = tuple[
    "str | Uuid",
    int,
    int,
    int,
    int,
    int,
    "Sequence[tuple[int, str | None]]",
    "str | None",
    "tuple[int, int, Node | None] | None",
]
"""The response for one partition.

Topic and partition, error code, base offset, time of the append (ms) and the log's start offset, -1
for none; per record its index in the batch and message (KIP-467); message; id, epoch and address of
the leader where it is another broker (KIP-951). Plain as above.
"""


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
    values: ProduceValues = native.new_tuple(
        ProduceValues, (transactional_id, acks, timeout_ms, partitions)
    )
    return values


def write_produce(
    answers: list[PartitionAnswer], correlation_id: int, version: int, throttle_time_ms: int
) -> bytes:
    """Return the frame of a response; neighbours of one topic are in one element."""
    flexible = version >= _FLEXIBLE_FROM
    writer = writer_into([])
    writer.integer(0, 4)  # the size, once it is known
    writer.integer(correlation_id, 4)
    if flexible:
        writer.byte(0)
    write_count(writer, _count_topics(answers), flexible)
    number = 0
    while number < len(answers):
        topic = answers[number][0]
        end = _end_of_topic(answers, number)
        if isinstance(topic, str):
            write_text(writer, topic, flexible)
        else:
            writer.run(topic, 16)
        write_count(writer, end - number, flexible)
        while number < end:
            _write_partition(writer, answers[number], version)
            number += 1
        if flexible:
            writer.byte(0)
    writer.integer(throttle_time_ms, 4)
    if flexible:
        tags = _response_tags(answers, version)
        writer.run(tags, len(tags))
    return writer.frame(0)


def _response_tags(answers: list[PartitionAnswer], version: int) -> bytes:
    """Return the addresses of the leaders that are named, each once."""
    found: dict[int, Node] | None = None
    for answer in answers:
        leader = answer[8]
        if leader is not None and leader[2] is not None:
            if found is None:
                found = {}
            found[leader[0]] = leader[2]
    if found is None or version < _LEADERS_FROM:
        return b"\0"
    return endpoint_tags([found[node_id] for node_id in sorted(found)])


def _end_of_topic(answers: list[PartitionAnswer], start: int) -> int:
    """Return the position after the neighbours that are of the same topic as the one at start."""
    topic = answers[start][0]
    end = start + 1
    while end < len(answers) and answers[end][0] == topic:
        end += 1
    return end


def _count_topics(answers: list[PartitionAnswer]) -> int:
    count = number = 0
    while number < len(answers):
        number = _end_of_topic(answers, number)
        count += 1
    return count


def _write_partition(writer: Writer, answer: tuple[Any, ...], version: int) -> None:
    _, index, code, base_offset, append_time_ms, log_start, record_errors, message, leader = answer
    flexible = version >= _FLEXIBLE_FROM
    writer.integer(index, 4)
    writer.integer(code, 2)
    writer.integer(base_offset, 8)
    writer.integer(append_time_ms, 8)
    if version >= _LOG_START_FROM:
        writer.integer(log_start, 8)
    if version >= _RECORD_ERRORS_FROM:
        write_count(writer, len(record_errors), flexible)
        for batch_index, text in record_errors:
            writer.integer(batch_index, 4)
            write_nullable_text(writer, text, flexible)
            if flexible:
                writer.byte(0)
        write_nullable_text(writer, message, flexible)
    if flexible:
        if leader is None or version < _LEADERS_FROM:
            writer.byte(0)
        else:
            writer.byte(1)
            writer.byte(_LEADER_TAG)
            writer.byte(_LEADER_BYTES)
            writer.integer(leader[0], 4)
            writer.integer(leader[1], 4)
            writer.byte(0)
