"""Records of the topic __remote_log_metadata, and the partition of it that has them.

Kafka: org.apache.kafka.server.log.remote.metadata.storage.{serialization.RemoteLogMetadataSerde,
RemoteLogMetadataTopicPartitioner}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.protocol.codec import decode_at, to_bytes
from ottla.protocol.primitives import decode_uvarint, encode_uvarint
from ottla.protocol.records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
)
from ottla.storage.remote.segment import RemoteSegment, SegmentState, SegmentUpdate
from ottla.types import is_topic_name

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct
    from ottla.types import Uuid

METADATA_TOPIC: Final = "__remote_log_metadata"
FRAME_VERSION: Final = 1
_VERSION: Final = 0
_CLASSES: Final[dict[int, type[Struct]]] = {
    found.message_key: found
    for found in (RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataUpdateRecord)
}
_LAST_KEY: Final = 3
"""Deletions of partitions and snapshots have the last two keys: nothing writes them."""


def encode_remote_metadata(record: RemoteSegment | SegmentUpdate) -> bytes:
    """Return the value of a record of the topic; its key is null."""
    message = _message(record)
    frame = (FRAME_VERSION, message.message_key, _VERSION)
    return b"".join((*map(encode_uvarint, frame), to_bytes(message, _VERSION)))


def _message(record: RemoteSegment | SegmentUpdate) -> Struct:
    if isinstance(record, SegmentUpdate):
        ids = RemoteLogSegmentMetadataUpdateRecord.RemoteLogSegmentIdEntry
        return RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=ids(
                topic_id_partition=ids.TopicIdPartitionEntry(
                    name=record.topic, id=record.topic_id, partition=record.partition
                ),
                id=record.segment_id,
            ),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            custom_metadata=record.custom_metadata,
            remote_log_segment_state=record.state,
        )
    of_segment = RemoteLogSegmentMetadataRecord.RemoteLogSegmentIdEntry
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=of_segment(
            topic_id_partition=of_segment.TopicIdPartitionEntry(
                name=record.topic, id=record.topic_id, partition=record.partition
            ),
            id=record.segment_id,
        ),
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        segment_leader_epochs=[
            RemoteLogSegmentMetadataRecord.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=start)
            for epoch, start in record.leader_epochs
        ],
        segment_size_in_bytes=record.size_bytes,
        custom_metadata=record.custom_metadata,
        remote_log_segment_state=record.state,
        txn_index_empty=record.is_transaction_index_empty,
    )


def decode_remote_metadata(value: bytes | memoryview) -> RemoteSegment | SegmentUpdate | None:
    """Read the value of a record; None for a kind that says nothing about one segment.

    CorruptMessage for what is no such record, UnsupportedVersion for a later version of it.
    """
    view = memoryview(value)
    try:
        frame, position = decode_uvarint(view, 0)
        key, position = decode_uvarint(view, position)
        version, position = decode_uvarint(view, position)
    except IndexError as error:
        raise CorruptMessage("a record of remote log metadata ends early") from error
    if frame != FRAME_VERSION:
        raise CorruptMessage(f"a record of remote log metadata in the unknown frame {frame}")
    found = _CLASSES.get(key)
    if found is None:
        if key <= _LAST_KEY:
            return None
        raise CorruptMessage(f"a record of remote log metadata of the unknown kind {key}")
    message, _ = decode_at(found, version, view, position)
    try:
        record = _record(message)
    except ValueError as error:
        raise CorruptMessage(f"a record of remote log metadata: {error}") from error
    # storage managers make paths of these
    if record.partition < 0 or not is_topic_name(record.topic):
        raise CorruptMessage("a record of remote log metadata names no partition")
    if isinstance(record, RemoteSegment) and not 0 <= record.start_offset <= record.end_offset:
        raise CorruptMessage(f"the remote segment {record.segment_id} has no offsets")
    return record


def _record(message: Struct) -> RemoteSegment | SegmentUpdate:
    if isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
        update = message.remote_log_segment_id
        return SegmentUpdate(
            topic_id=update.topic_id_partition.id,
            topic=update.topic_id_partition.name,
            partition=update.topic_id_partition.partition,
            segment_id=update.id,
            broker_id=message.broker_id,
            event_timestamp_ms=message.event_timestamp_ms,
            state=SegmentState(message.remote_log_segment_state),
            custom_metadata=message.custom_metadata,
        )
    assert isinstance(message, RemoteLogSegmentMetadataRecord)
    segment = message.remote_log_segment_id
    if not message.segment_leader_epochs:
        raise CorruptMessage(f"the remote segment {segment.id} has no leader epoch")
    return RemoteSegment(
        topic_id=segment.topic_id_partition.id,
        topic=segment.topic_id_partition.name,
        partition=segment.topic_id_partition.partition,
        segment_id=segment.id,
        start_offset=message.start_offset,
        end_offset=message.end_offset,
        leader_epochs=tuple(
            sorted((epoch.leader_epoch, epoch.offset) for epoch in message.segment_leader_epochs)
        ),
        size_bytes=message.segment_size_in_bytes,
        max_timestamp_ms=message.max_timestamp_ms,
        broker_id=message.broker_id,
        event_timestamp_ms=message.event_timestamp_ms,
        state=SegmentState(message.remote_log_segment_state),
        custom_metadata=message.custom_metadata,
        is_transaction_index_empty=message.txn_index_empty,
    )


def metadata_partition(topic_id: Uuid, partition: int, count: int) -> int:
    """Return which of `count` partitions of the topic has the records of a partition.

    Java's Objects.hash of the id's halves and the partition, hashed again by Kafka's murmur2.
    """
    value = 1
    for part in (_long_hash(topic_id[8:]), _long_hash(topic_id[:8]), partition):
        value = value * 31 + part
    return (_murmur2((value & 0xFFFF_FFFF).to_bytes(4)) & 0x7FFF_FFFF) % count


def _long_hash(data: bytes) -> int:
    """Return java.lang.Long.hashCode of eight bytes, unsigned."""
    return int.from_bytes(data[:4]) ^ int.from_bytes(data[4:])


def _murmur2(four_bytes: bytes) -> int:
    """Return the hash that Kafka's clients use for keys, of four bytes."""
    multiplier, mask = 0x5BD1E995, 0xFFFF_FFFF
    part = int.from_bytes(four_bytes, "little") * multiplier & mask
    part = (part ^ part >> 24) * multiplier & mask
    value = (0x9747B28C ^ 4) * multiplier & mask ^ part
    value = (value ^ value >> 13) * multiplier & mask
    return value ^ value >> 15
