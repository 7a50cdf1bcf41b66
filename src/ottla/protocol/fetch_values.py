"""Fetch requests and responses as flat values: what a broker reads and writes of them.

See `protocol/produce_values.py` for why. Clients use `protocol/apis/fetch.py`;
tests/protocol/test_fetch_values.py compares both. Records of a response are buffers or slices of
files, which are put into the frame as they are.

Compiled by Cython with `fetch_values.pxd`; runs uncompiled too.

Hot path: `read_fetch` and `write_fetch`. benchmarks/against_kafka.
Kafka: FetchRequest, FetchResponse (key 1).
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
from ottla.protocol.primitives import encode_uvarint
from ottla.types import ZERO_UUID, FileSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.walker import Reader
    from ottla.types import Buffer, Node, SendItem, Uuid

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
_SIZE_AND_CORRELATION: Final = Struct(">ii")
_SIZE_CORRELATION_NO_TAGS: Final = Struct(">iib")
_INT32: Final = Struct(">i")
_EPOCH_AND_END: Final = Struct(">iqb")
_LEADER_AND_EPOCH: Final = Struct(">iib")
_HEAD: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqq")
_PARTITION_AND_START: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_NULL_ARRAY: Final = b"\xff\xff\xff\xff"
_NO_PREFERRED_REPLICA: Final = b"\xff\xff\xff\xff"
_DIVERGING_TAG: Final = 0
_LEADER_TAG: Final = 1
_ENDPOINTS_TAG: Final = 0
_new_tuple: Final = tuple.__new__


class PartitionKey(NamedTuple):
    """A partition as the client named it: by id from version 13 on, by name before."""

    topic: str
    topic_id: Uuid
    partition: int


class PartitionFetch(NamedTuple):
    """What a client requests of one partition; -1 for what it does not say."""

    key: PartitionKey
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


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
    partitions: list[PartitionFetch]
    forgotten: list[PartitionKey]
    rack_id: str


class FetchedPartition(NamedTuple):
    """What a client is answered for one partition; offsets are -1 where unknown."""

    key: PartitionKey
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[tuple[int, ...]] | None
    """Producer id, first offset and more; None where the client does not filter."""
    records: SendItem
    size_bytes: int
    diverging_epoch: tuple[int, int] | None = None
    """Epoch and end offset (KIP-595)."""
    current_leader: tuple[int, int] | None = None
    """Leader id and epoch (KIP-951)."""


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
    return _new_tuple(
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


def _read_partitions(reader: Reader, version: int) -> list[PartitionFetch]:
    flexible = version >= _FLEXIBLE_FROM
    found: list[PartitionFetch] = []
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
            key = _new_tuple(PartitionKey, (topic, topic_id, index))
            requested = (key, leader_epoch, offset, last_epoch, log_start, max_bytes)
            found.append(_new_tuple(PartitionFetch, requested))
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
            found.append(_new_tuple(PartitionKey, (topic, topic_id, index)))
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
    partitions = answer.partitions
    parts: list[Buffer] = [b""]
    if version >= _SESSIONS_FROM:
        parts.append(_HEAD.pack(throttle_time_ms, answer.error_code, answer.session_id))
    else:
        parts.append(_INT32.pack(throttle_time_ms))
    parts.append(encode_count(_count_topics(partitions), flexible))
    items: list[SendItem] = []
    size = 0
    number = 0
    while number < len(partitions):
        end = _end_of_topic(partitions, number)
        parts.append(_topic(partitions[number].key, version))
        parts.append(encode_count(end - number, flexible))
        while number < end:
            fetched = partitions[number]
            _write_partition(parts, fetched, version)
            if type(fetched.records) is FileSlice:
                head = b"".join(parts)
                size += len(head) + fetched.size_bytes
                items += (head, fetched.records)
                parts = []
            else:
                parts.append(fetched.records)  # type: ignore[arg-type] # a buffer
            if flexible:
                parts.append(_partition_tags(fetched))
            number += 1
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(_response_tags(answer.node_endpoints, version))
    tail = b"".join(parts)
    size += len(tail)
    items.append(tail)
    if flexible:
        items[0] = _SIZE_CORRELATION_NO_TAGS.pack(size + 5, correlation_id, 0) + items[0]  # type: ignore[operator] # the first item is bytes
    else:
        items[0] = _SIZE_AND_CORRELATION.pack(size + 4, correlation_id) + items[0]  # type: ignore[operator] # as above
    return items


def _end_of_topic(partitions: Sequence[FetchedPartition], start: int) -> int:
    """Return the position after the neighbours that are of the same topic as the one at start."""
    first = partitions[start].key
    topic, topic_id = first.topic, first.topic_id
    end = start + 1
    while end < len(partitions):
        key = partitions[end].key
        if key.topic_id != topic_id or key.topic != topic:
            break
        end += 1
    return end


def _count_topics(partitions: Sequence[FetchedPartition]) -> int:
    count = number = 0
    while number < len(partitions):
        number = _end_of_topic(partitions, number)
        count += 1
    return count


def _topic(key: PartitionKey, version: int) -> bytes:
    if version >= _TOPIC_IDS_FROM:
        return key.topic_id
    return encode_text(key.topic, version >= _FLEXIBLE_FROM)


def _write_partition(parts: list[Buffer], fetched: FetchedPartition, version: int) -> None:
    """Write all of a partition that precedes its records."""
    flexible = version >= _FLEXIBLE_FROM
    index = fetched.key.partition
    code, high_watermark, stable = fetched[1], fetched[2], fetched[3]
    if version >= _LOG_START_FROM:
        start = fetched[4]
        parts.append(_PARTITION_AND_START.pack(index, code, high_watermark, stable, start))
    else:
        parts.append(_PARTITION.pack(index, code, high_watermark, stable))
    aborted = fetched.aborted_transactions
    if aborted is None:
        parts.append(b"\0" if flexible else _NULL_ARRAY)
    else:
        parts.append(encode_count(len(aborted), flexible))
        for transaction in aborted:
            parts.append(_ABORTED.pack(transaction[0], transaction[1]))
            if flexible:
                parts.append(b"\0")
    if version >= _RACK_FROM:
        parts.append(_NO_PREFERRED_REPLICA)
    parts.append(encode_count(fetched.size_bytes, flexible))


def _partition_tags(fetched: FetchedPartition) -> bytes:
    diverging, leader = fetched.diverging_epoch, fetched.current_leader
    if diverging is None and leader is None:
        return b"\0"
    tags = b""
    if diverging is not None:
        tags += bytes((_DIVERGING_TAG, _EPOCH_AND_END.size)) + _EPOCH_AND_END.pack(*diverging, 0)
    if leader is not None:
        tags += bytes((_LEADER_TAG, _LEADER_AND_EPOCH.size)) + _LEADER_AND_EPOCH.pack(*leader, 0)
    return bytes(((diverging is not None) + (leader is not None),)) + tags


def _response_tags(endpoints: Sequence[Node], version: int) -> bytes:
    if not endpoints or version < _ENDPOINTS_FROM:
        return b"\0"
    parts = [encode_count(len(endpoints), True)]
    for node in endpoints:
        parts += (_INT32.pack(node.node_id), encode_text(node.host, True), _INT32.pack(node.port))
        parts.append(b"\0" if node.rack is None else encode_text(node.rack, True))
        parts.append(b"\0")
    body = b"".join(parts)
    return bytes((1, _ENDPOINTS_TAG)) + encode_uvarint(len(body)) + body
