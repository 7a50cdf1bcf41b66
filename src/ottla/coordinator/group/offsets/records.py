"""The records of committed offsets and their encoding: a hot path, and so without message objects.

Kafka: GroupCoordinatorRecordHelpers.newOffsetCommitRecord, OffsetCommitKey and OffsetCommitValue.

Offsets are written as version 4, or 1 when they carry an expiry time. Measured by
`benchmarks/against_kafka/groups.py --only commits`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.coordinator.group.offsets.committed import CommittedOffset
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.protocol.primitives import encode_uvarint
from ottla.protocol.records import group as schemas
from ottla.records.scan import append_varint
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.protocol.schema import Struct
    from ottla.types import Uuid

OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
_KEY_KIND: Final = b"\0\1"
_MAX_STRING_BYTES: Final = 0x7FFF
_INT16, _INT32, _INT64 = Layout(">h"), Layout(">i"), Layout(">q")
_VALUE_START: Final = Layout(">hqi")  # version, offset, leader epoch
_VALUE_WITHOUT_METADATA: Final = Layout(">hqiBq")
_OLD_VALUE_START: Final = Layout(">hq")
_TIMES: Final = Layout(">qq")  # of the commit and of the expiry
_NO_TAGGED_FIELDS: Final = b"\0"
_TOPIC_ID_TAG: Final = b"\1\0\x10"  # one tagged field: number 0, 16 bytes
_EMPTY_COMPACT_STRING: Final = 1
_VALUE_BYTES: Final = _VALUE_WITHOUT_METADATA.size + 1
_VALUE_WITH_ID_BYTES: Final = _VALUE_BYTES + 18
PLAIN_AT_MOST: Final = 64
"""Offsets whose deltas in a batch take one byte each."""
_new_tuple: Final = tuple.__new__


class PlainOffset(Protocol):
    """An offset in a request, without metadata."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int


class OffsetKey(NamedTuple):
    """The key of a committed offset's record."""

    group: str
    topic_partition: TopicPartition


def offset_commit(
    group_id: str, topic_partition: TopicPartition, committed: CommittedOffset
) -> CoordinatorRecord:
    """Return the record of one committed offset."""
    key = _new_tuple(OffsetKey, (group_id, topic_partition))
    has_expiry = committed.expire_timestamp_ms != -1
    version = OFFSET_COMMIT_VERSION_WITH_EXPIRY if has_expiry else OFFSET_COMMIT_VERSION
    record: CoordinatorRecord = _new_tuple(CoordinatorRecord, (key, committed, version))
    return record


def offset_tombstone(group_id: str, topic_partition: TopicPartition) -> CoordinatorRecord:
    """Return the record that removes one committed offset."""
    return CoordinatorRecord(OffsetKey(group_id, topic_partition))


def encode(
    key: OffsetKey, committed: CommittedOffset | None, version: int
) -> tuple[bytes, bytes | None]:
    """Return the bytes of key and value; ValueError for a name or metadata that is too long."""
    group, (topic, partition) = key
    stored_key = _start_of_key(group, topic) + _INT32.pack(partition)
    if committed is None:
        return stored_key, None
    offset, epoch, metadata, commit_ms, expire_ms, topic_id, _ = committed
    if version == OFFSET_COMMIT_VERSION_WITH_EXPIRY:
        start = _OLD_VALUE_START.pack(version, offset) + _string(metadata)
        return stored_key, start + _TIMES.pack(commit_ms, expire_ms)
    if metadata:
        text = metadata.encode()
        start = _VALUE_START.pack(version, offset, epoch) + encode_uvarint(len(text) + 1) + text
        start += _INT64.pack(commit_ms)
    else:
        values = version, offset, epoch, _EMPTY_COMPACT_STRING, commit_ms
        start = _VALUE_WITHOUT_METADATA.pack(*values)
    return stored_key, start + (_TOPIC_ID_TAG + topic_id if any(topic_id) else _NO_TAGGED_FIELDS)


def encode_plain(
    group: str, topics: Iterable[tuple[str, Uuid, Iterable[PlainOffset]]], commit_ms: int
) -> bytes:
    """Return the records of up to PLAIN_AT_MOST offsets without metadata and expiry, for a batch.

    The batch has the time of the commit; bytes are those of `encode` for each.
    """
    records, twice_delta = [], 0
    for topic, topic_id, partitions in topics:
        has_id = any(topic_id)
        pack, start, key = _plain_layout(group, topic, has_id)
        length = 2 * (_VALUE_WITH_ID_BYTES if has_id else _VALUE_BYTES)  # zig-zag
        tail = _TOPIC_ID_TAG + topic_id + b"\0" if has_id else _NO_TAGGED_FIELDS + b"\0"
        for partition in partitions:
            records.append(
                pack(
                    start, twice_delta, key, partition.partition_index, length,
                    OFFSET_COMMIT_VERSION, partition.committed_offset,
                    partition.committed_leader_epoch, _EMPTY_COMPACT_STRING, commit_ms, tail,
                )
            )  # fmt: skip
            twice_delta += 2
    return b"".join(records)


@lru_cache(maxsize=256)
def _plain_layout(group: str, topic: str, has_id: bool) -> tuple[Any, bytes, bytes]:  # noqa: FBT001 - a key of the cache
    """Return what packs a record, with the bytes before its offset delta and before its partition.

    A record's length, time delta, key and value have lengths that depend on the names alone.
    """
    key = bytearray()
    start_of_key = _start_of_key(group, topic)
    append_varint(key, len(start_of_key) + _INT32.size)
    key += start_of_key
    value_bytes = _VALUE_WITH_ID_BYTES if has_id else _VALUE_BYTES
    start = bytearray()
    append_varint(start, 3 + len(key) + _INT32.size + 1 + value_bytes + 1)
    start += b"\0\0"
    tail_bytes = len(_TOPIC_ID_TAG) + 16 + 1 if has_id else 2
    layout = Layout(f">{len(start)}sB{len(key)}siBhqiBq{tail_bytes}s")
    return layout.pack, bytes(start), bytes(key)


@lru_cache(maxsize=256)
def _start_of_key(group: str, topic: str) -> bytes:
    return _KEY_KIND + _string(group) + _string(topic)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > _MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(data)} bytes is longer than {_MAX_STRING_BYTES}")
    return _INT16.pack(len(data)) + data


def from_messages(key: Struct, value: Struct | None) -> CoordinatorRecord:
    """Return the record of decoded messages, of the older kind as well."""
    assert isinstance(key, schemas.OffsetCommitKey | schemas.LegacyOffsetCommitKey)
    partition = TopicPartition(key.topic, key.partition)
    if value is None:
        return offset_tombstone(key.group, partition)
    if isinstance(value, schemas.LegacyOffsetCommitValue):
        committed = CommittedOffset(
            value.offset, metadata=value.metadata, commit_timestamp_ms=value.commit_timestamp
        )
        return offset_commit(key.group, partition, committed)
    assert isinstance(value, schemas.OffsetCommitValue)
    committed = CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
    return offset_commit(key.group, partition, committed)
