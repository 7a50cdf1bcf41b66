"""Fetch requests and responses as flat values, as a broker reads and writes them.

See `protocol/produce_values.py` for why. Clients use `protocol/apis/fetch.py`;
tests/protocol/test_fetch_values.py compares both. Records of a response are buffers or slices of
files, which are put into the frame as they are.

Compiled by Cython with `fetch_values.pxd`; runs uncompiled too.

Hot path: `read_fetch` and `write_fetch`. benchmarks/against_kafka.
Kafka: FetchRequest, FetchResponse (key 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla import native
from ottla.errors import CorruptMessage
from ottla.protocol.flat import (
    read_count,
    read_nullable_text,
    read_text,
    read_uuid,
    skip_tags,
    write_count,
    write_text,
)
from ottla.protocol.node_endpoints import endpoint_tags
from ottla.protocol.walker import writer_into
from ottla.types import ZERO_UUID, FileSlice, Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.walker import Reader, Writer
    from ottla.types import Node, SendItem

_FLEXIBLE_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_LEADER_EPOCH_FROM: Final = 9
_RACK_FROM: Final = 11
_REPLICA_STATE_FROM: Final = 15
_ENDPOINTS_FROM: Final = 16
_NO_REPLICA: Final = -1
_NO_EPOCH: Final = -1
_CLUSTER_ID_TAG: Final = 0
_REPLICA_STATE_TAG: Final = 1
_DIVERGING_TAG: Final = 0
_LEADER_TAG: Final = 1
_DIVERGING_BYTES: Final = 13
_LEADER_BYTES: Final = 9


PartitionKey = tuple[str, Uuid, int]
"""A partition as the client named it: topic, topic id and index.

The topic is "" from version 13 on, the id is zero before.
"""

PartitionFetch = tuple[int, int, int, int, int]
"""The request for one partition; -1 for values that the version lacks.

Current leader epoch, offset, last fetched epoch, log start offset, maximum of bytes. A plain tuple:
named ones are slow to make and to unpack.
"""


class FetchValues(NamedTuple):
    """A request."""

    cluster_id: str | None
    replica_id: int
    """-1 for a consumer."""
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: dict[PartitionKey, PartitionFetch]
    """In the order of the request; for one that is named twice the later values, as in Kafka."""
    forgotten: list[PartitionKey]
    rack_id: str


class FetchedPartition:
    """The response for one partition."""

    __slots__ = (
        "aborted",
        "diverging",
        "error_code",
        "high_watermark",
        "key",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "preferred_replica",
        "records",
        "size_bytes",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - keywords cost much per call
        self,
        key: PartitionKey,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        aborted: Sequence[tuple[int, ...]] | None = None,
        records: SendItem = b"",
        size_bytes: int = 0,
        diverging: tuple[int, int] | None = None,
        leader: tuple[int, int] | None = None,
        preferred_replica: int = -1,
    ) -> None:
        """Offsets are -1 where they are unknown; size_bytes is that of the records.

        aborted: producer id, first offset and more of each transaction; None where the client does
        not filter. diverging: an epoch and its end offset (KIP-595). leader: id and epoch
        (KIP-951). preferred_replica: which to read from instead, -1 for this one (KIP-392).
        """
        self.key = key
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted
        self.records = records
        self.size_bytes = size_bytes
        self.diverging = diverging
        self.leader = leader
        self.preferred_replica = preferred_replica

    def __repr__(self) -> str:
        return (
            f"FetchedPartition({self.key!r}, {self.error_code}, {self.high_watermark}, "
            f"{self.last_stable_offset}, {self.log_start_offset}, {self.aborted!r}, "
            f"{self.records!r}, {self.size_bytes}, {self.diverging}, {self.leader}, "
            f"{self.preferred_replica})"
        )


class FetchAnswer(NamedTuple):
    """A response."""

    error_code: int
    session_id: int
    partitions: Sequence[FetchedPartition]
    node_endpoints: Sequence[Node] = ()


def read_fetch(reader: Reader, version: int) -> FetchValues:
    """Read the body of a request; CorruptMessage when it is none."""
    try:
        return _read(reader, version)
    except IndexError as error:
        raise CorruptMessage(f"Fetch request ends early: {error}") from error


def _read(reader: Reader, version: int) -> FetchValues:
    flexible = version >= _FLEXIBLE_FROM
    replica_id = _NO_REPLICA
    if version < _REPLICA_STATE_FROM:
        replica_id = reader.integer(4, signed=True)
    max_wait_ms = reader.integer(4, signed=True)
    min_bytes = reader.integer(4, signed=True)
    max_bytes = reader.integer(4, signed=True)
    isolation_level = reader.integer(1, signed=True)
    session_id, session_epoch = 0, -1
    if version >= _SESSIONS_FROM:
        session_id = reader.integer(4, signed=True)
        session_epoch = reader.integer(4, signed=True)
    partitions = _read_partitions(reader, version)
    forgotten: list[PartitionKey] = []
    if version >= _SESSIONS_FROM:
        _read_forgotten(reader, version, forgotten)
    rack_id = read_text(reader, flexible) if version >= _RACK_FROM else ""
    cluster_id, replica_epoch = None, _NO_EPOCH
    if flexible:
        cluster_id, replica_id, replica_epoch = _read_tags(reader, version, replica_id)
    values: FetchValues = native.new_tuple(
        FetchValues,
        (
            cluster_id,
            replica_id,
            replica_epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            partitions,
            forgotten,
            rack_id,
        ),
    )
    return values


def _read_partitions(reader: Reader, version: int) -> dict[PartitionKey, PartitionFetch]:
    flexible = version >= _FLEXIBLE_FROM
    found: dict[PartitionKey, PartitionFetch] = {}
    topic, topic_id = "", ZERO_UUID
    topic_count = read_count(reader, flexible)
    while topic_count > 0:
        topic_count -= 1
        if version >= _TOPIC_IDS_FROM:
            topic_id = read_uuid(reader)
        else:
            topic = read_text(reader, flexible)
        count = read_count(reader, flexible)
        while count > 0:
            count -= 1
            index = reader.integer(4, signed=True)
            leader_epoch = last_epoch = log_start = -1
            if version >= _LEADER_EPOCH_FROM:
                leader_epoch = reader.integer(4, signed=True)
            offset = reader.integer(8, signed=True)
            if flexible:
                last_epoch = reader.integer(4, signed=True)
            if version >= _LOG_START_FROM:
                log_start = reader.integer(8, signed=True)
            max_bytes = reader.integer(4, signed=True)
            if flexible:
                skip_tags(reader)
            found[(topic, topic_id, index)] = (
                leader_epoch, offset, last_epoch, log_start, max_bytes,
            )  # fmt: skip
        if flexible:
            skip_tags(reader)
    return found


def _read_forgotten(reader: Reader, version: int, found: list[PartitionKey]) -> None:
    flexible = version >= _FLEXIBLE_FROM
    topic, topic_id = "", ZERO_UUID
    topic_count = read_count(reader, flexible)
    while topic_count > 0:
        topic_count -= 1
        if version >= _TOPIC_IDS_FROM:
            topic_id = read_uuid(reader)
        else:
            topic = read_text(reader, flexible)
        count = read_count(reader, flexible)
        while count > 0:
            count -= 1
            index = reader.integer(4, signed=True)
            found.append((topic, topic_id, index))
        if flexible:
            skip_tags(reader)


def _read_tags(reader: Reader, version: int, replica_id: int) -> tuple[str | None, int, int]:
    cluster_id, replica_epoch = None, _NO_EPOCH
    count = reader.uvarint()
    while count > 0:
        count -= 1
        tag = reader.uvarint()
        size = reader.uvarint()
        if tag == _CLUSTER_ID_TAG:
            cluster_id = read_nullable_text(reader, True)
        elif tag == _REPLICA_STATE_TAG and version >= _REPLICA_STATE_FROM:
            replica_id = reader.integer(4, signed=True)
            replica_epoch = reader.integer(8, signed=True)
            skip_tags(reader)
        else:
            reader.need(size)
    return cluster_id, replica_id, replica_epoch


def write_fetch(
    answer: FetchAnswer, correlation_id: int, version: int, throttle_time_ms: int
) -> list[SendItem]:
    """Return the frame of a response; neighbours of one topic are in one element.

    Its first item is bytes; records that lie in files are items of their own.
    """
    flexible = version >= _FLEXIBLE_FROM
    error_code, session_id, partitions, endpoints = answer
    items: list[SendItem] = []
    writer = head = writer_into(items)
    _write_head(head, correlation_id, version, throttle_time_ms)
    if version >= _SESSIONS_FROM:
        head.integer(error_code, 2)
        head.integer(session_id, 4)
    write_count(head, _count_topics(partitions), flexible)
    following_bytes = 0  # what comes after the head
    number = 0
    while number < len(partitions):
        end = _end_of_topic(partitions, number)
        first = partitions[number]
        _write_topic(writer, first.key, version)
        write_count(writer, end - number, flexible)
        while number < end:
            records = _write_partition(writer, partitions[number], version)
            if records is not None:
                following_bytes += records.size
                if writer is head:
                    items.append(b"")  # the head, once the size is known
                    writer = writer_into(items)
                else:
                    following_bytes += writer.size
                    writer.flush()
                items.append(records)
            if flexible:
                _write_partition_tags(writer, partitions[number])
            number += 1
        if flexible:
            writer.byte(0)
    if flexible:
        tags = _response_tags(endpoints, version)
        writer.run(tags, len(tags))
    if writer is head:
        items.append(head.frame(0))
    else:
        following_bytes += writer.size
        writer.flush()
        items[0] = head.frame(following_bytes)
    return items


def _write_head(writer: Writer, correlation_id: int, version: int, throttle_time_ms: int) -> None:
    """Write the size, the header and what precedes a response's error."""
    writer.integer(0, 4)  # the size, once it is known
    writer.integer(correlation_id, 4)
    if version >= _FLEXIBLE_FROM:
        writer.byte(0)
    writer.integer(throttle_time_ms, 4)


def _write_topic(writer: Writer, key: PartitionKey, version: int) -> None:
    topic, topic_id, _ = key
    if version >= _TOPIC_IDS_FROM:
        writer.run(topic_id, 16)
    else:
        write_text(writer, topic, version >= _FLEXIBLE_FROM)


def _end_of_topic(partitions: Sequence[FetchedPartition], start: int) -> int:
    """Return the position after the neighbours that are of the same topic as the one at start."""
    first = partitions[start]
    topic, topic_id, _ = first.key
    end = start + 1
    while end < len(partitions):
        following = partitions[end]
        other, other_id, _ = following.key
        if other_id != topic_id or other != topic:
            break
        end += 1
    return end


def _count_topics(partitions: Sequence[FetchedPartition]) -> int:
    count = number = 0
    while number < len(partitions):
        number = _end_of_topic(partitions, number)
        count += 1
    return count


def _write_partition(writer: Writer, fetched: FetchedPartition, version: int) -> FileSlice | None:
    aborted, records = fetched.aborted, fetched.records
    flexible = version >= _FLEXIBLE_FROM
    writer.integer(fetched.key[2], 4)
    writer.integer(fetched.error_code, 2)
    writer.integer(fetched.high_watermark, 8)
    writer.integer(fetched.last_stable_offset, 8)
    if version >= _LOG_START_FROM:
        writer.integer(fetched.log_start_offset, 8)
    if aborted is None:
        write_count(writer, -1, flexible)
    else:
        write_count(writer, len(aborted), flexible)
        for transaction in aborted:
            writer.integer(transaction[0], 8)
            writer.integer(transaction[1], 8)
            if flexible:
                writer.byte(0)
    if version >= _RACK_FROM:
        writer.integer(fetched.preferred_replica, 4)
    write_count(writer, fetched.size_bytes, flexible)
    if type(records) is FileSlice:
        return records
    writer.run(records, len(records))  # type: ignore[arg-type] # a buffer
    return None


def _write_partition_tags(writer: Writer, fetched: FetchedPartition) -> None:
    diverging, leader = fetched.diverging, fetched.leader
    if diverging is None and leader is None:
        writer.byte(0)
        return
    writer.byte(1 if diverging is None or leader is None else 2)
    if diverging is not None:
        writer.byte(_DIVERGING_TAG)
        writer.byte(_DIVERGING_BYTES)
        writer.integer(diverging[0], 4)
        writer.integer(diverging[1], 8)
        writer.byte(0)
    if leader is not None:
        writer.byte(_LEADER_TAG)
        writer.byte(_LEADER_BYTES)
        writer.integer(leader[0], 4)
        writer.integer(leader[1], 4)
        writer.byte(0)


def _response_tags(endpoints: Sequence[Node], version: int) -> bytes:
    if not endpoints or version < _ENDPOINTS_FROM:
        return b"\0"
    return endpoint_tags(endpoints)
