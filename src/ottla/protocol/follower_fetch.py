"""Fetch requests and responses as flat values, as a follower writes and reads them.

The other side of `protocol/fetch_values.py`, for the versions that name topics by id.
tests/protocol/test_follower_fetch.py compares both.

Compiled by Cython with `follower_fetch.pxd`; runs uncompiled too.

Hot path: all of it. benchmarks/against_kafka/replicated.py.
Kafka: FetchRequest, FetchResponse (key 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla import native
from ottla.errors import CorruptMessage
from ottla.protocol.fetch_values import FetchAnswer, FetchedPartition
from ottla.protocol.flat import read_count, read_uuid, skip_tags, write_text
from ottla.protocol.walker import UNBOUNDED, reader_at, writer_into

if TYPE_CHECKING:
    from ottla.protocol.fetch_values import (
        FetchValues,
        PartitionFetch,
        PartitionKey,
    )
    from ottla.protocol.walker import Reader, Writer
    from ottla.types import SendItem, Uuid

LOWEST_VERSION: Final = 15
"""From here on a request says which incarnation of the follower sends it (KIP-903)."""
_FETCH: Final = 1
_REPLICA_STATE_TAG: Final = 1
_REPLICA_STATE_BYTES: Final = 13
_DIVERGING_TAG: Final = 0
_LEADER_TAG: Final = 1


def write_fetch_request(
    request: FetchValues, correlation_id: int, client_id: str, version: int
) -> bytes:
    """Return the frame of a request."""
    out: list[SendItem] = []
    writer = writer_into(out)
    writer.integer(0, 4)  # the size, once it is known
    writer.integer(_FETCH, 2)
    writer.integer(version, 2)
    writer.integer(correlation_id, 4)
    write_text(writer, client_id, False)
    writer.byte(0)
    (
        _, replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation_level,
        session_id, session_epoch, partitions, forgotten, rack_id,
    ) = request  # fmt: skip
    writer.integer(max_wait_ms, 4)
    writer.integer(min_bytes, 4)
    writer.integer(max_bytes, 4)
    writer.integer(isolation_level, 1)
    writer.integer(session_id, 4)
    writer.integer(session_epoch, 4)
    _write_partitions(writer, partitions)
    _write_forgotten(writer, forgotten)
    write_text(writer, rack_id, True)
    writer.byte(1)
    writer.byte(_REPLICA_STATE_TAG)
    writer.byte(_REPLICA_STATE_BYTES)
    writer.integer(replica_id, 4)
    writer.integer(replica_epoch, 8)
    writer.byte(0)
    return writer.frame(0)


def _write_partitions(writer: Writer, partitions: dict[PartitionKey, PartitionFetch]) -> None:
    """Write neighbours of one topic as one element."""
    topics = _group([*partitions])
    writer.uvarint(len(topics) + 1)
    for topic in topics:
        keys: list[PartitionKey] = topic
        writer.run(keys[0][1], 16)
        writer.uvarint(len(keys) + 1)
        for key in keys:
            epoch, offset, last_epoch, log_start, max_bytes = partitions[key]
            writer.integer(key[2], 4)
            writer.integer(epoch, 4)
            writer.integer(offset, 8)
            writer.integer(last_epoch, 4)
            writer.integer(log_start, 8)
            writer.integer(max_bytes, 4)
            writer.byte(0)
        writer.byte(0)


def _write_forgotten(writer: Writer, forgotten: list[PartitionKey]) -> None:
    topics = _group(forgotten)
    writer.uvarint(len(topics) + 1)
    for topic in topics:
        keys: list[PartitionKey] = topic
        writer.run(keys[0][1], 16)
        writer.uvarint(len(keys) + 1)
        for key in keys:
            writer.integer(key[2], 4)
        writer.byte(0)


def _group(keys: list[PartitionKey]) -> list[list[PartitionKey]]:
    """Return the keys topic by topic; their order is free in a request of a follower."""
    if len(keys) == 1:
        return [keys]
    topics: dict[Uuid, list[PartitionKey]] = {}
    for key in keys:
        named = topics.get(key[1])
        if named is None:
            topics[key[1]] = [key]
        else:
            named.append(key)
    return [*topics.values()]


def read_fetch_response(frame: memoryview, version: int) -> FetchAnswer:
    """Read a response without its size; CorruptMessage when it is none.

    Aborted transactions and the addresses of nodes are stepped over: a follower copies all, and
    learns of leaders from the metadata.
    """
    try:
        return _read(frame)
    except IndexError as error:
        raise CorruptMessage(f"Fetch response of version {version} ends early: {error}") from error


def _read(frame: memoryview) -> FetchAnswer:
    reader = reader_at(frame, 4, len(frame), UNBOUNDED)  # after the correlation id
    skip_tags(reader)
    reader.integer(4, signed=True)  # throttle time
    error_code = reader.integer(2, signed=True)
    session_id = reader.integer(4, signed=True)
    found: list[FetchedPartition] = []
    topic_count = read_count(reader, True)
    while topic_count > 0:
        topic_count -= 1
        topic_id = read_uuid(reader)
        count = read_count(reader, True)
        while count > 0:
            count -= 1
            found.append(_read_partition(reader, topic_id))
        skip_tags(reader)
    skip_tags(reader)
    answer: FetchAnswer = native.new_tuple(FetchAnswer, (error_code, session_id, found, ()))
    return answer


def _read_partition(reader: Reader, topic_id: Uuid) -> FetchedPartition:
    index = reader.integer(4, signed=True)
    code = reader.integer(2, signed=True)
    high_watermark = reader.integer(8, signed=True)
    stable = reader.integer(8, signed=True)
    start = reader.integer(8, signed=True)
    aborted = reader.uvarint() - 1
    if aborted > reader.end - reader.position:
        raise CorruptMessage("more elements announced than the message holds")
    while aborted > 0:
        aborted -= 1
        reader.need(16)
        skip_tags(reader)
    preferred = reader.integer(4, signed=True)
    size = max(reader.uvarint() - 1, 0)
    position = reader.need(size)
    records = reader.source[position : position + size]
    diverging = leader = None
    tags = reader.uvarint()
    while tags > 0:
        tags -= 1
        tag = reader.uvarint()
        tag_bytes = reader.uvarint()
        if tag == _DIVERGING_TAG:
            diverging = (reader.integer(4, signed=True), reader.integer(8, signed=True))
            skip_tags(reader)
        elif tag == _LEADER_TAG:
            leader = (reader.integer(4, signed=True), reader.integer(4, signed=True))
            skip_tags(reader)
        else:
            reader.need(tag_bytes)
    key = ("", topic_id, index)
    return FetchedPartition(
        key, code, high_watermark, stable, start, None, records, size, diverging, leader, preferred,
    )  # fmt: skip
