"""The records of `__consumer_offsets` and their encoding.

Kafka: GroupCoordinatorRecordHelpers and GroupCoordinatorRecordSerde.

A key is the kind of record (int16) and a message of version 0; a value is its version (int16) and
a message of that version. Group metadata is written as version 3; offsets have a module of their
own.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.offsets import records as offset_records
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.records import consumer_group, share_group, streams_group
from ottla.protocol.records import group as schemas

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.group import ClassicGroup
    from ottla.protocol.schema import Struct

GROUP_METADATA_VERSION = 3

_INT16 = Layout(">h")
_SCHEMAS: dict[int, tuple[type[Struct], type[Struct]]] = {
    0: (schemas.LegacyOffsetCommitKey, schemas.LegacyOffsetCommitValue),
    1: (schemas.OffsetCommitKey, schemas.OffsetCommitValue),
    2: (schemas.GroupMetadataKey, schemas.GroupMetadataValue),
    3: (consumer_group.ConsumerGroupMetadataKey, consumer_group.ConsumerGroupMetadataValue),
    4: (
        consumer_group.ConsumerGroupPartitionMetadataKey,
        consumer_group.ConsumerGroupPartitionMetadataValue,
    ),
    5: (
        consumer_group.ConsumerGroupMemberMetadataKey,
        consumer_group.ConsumerGroupMemberMetadataValue,
    ),
    6: (
        consumer_group.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_group.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        consumer_group.ConsumerGroupTargetAssignmentMemberKey,
        consumer_group.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        consumer_group.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_group.ConsumerGroupCurrentMemberAssignmentValue,
    ),
    10: (share_group.ShareGroupMemberMetadataKey, share_group.ShareGroupMemberMetadataValue),
    11: (share_group.ShareGroupMetadataKey, share_group.ShareGroupMetadataValue),
    12: (
        share_group.ShareGroupTargetAssignmentMetadataKey,
        share_group.ShareGroupTargetAssignmentMetadataValue,
    ),
    13: (
        share_group.ShareGroupTargetAssignmentMemberKey,
        share_group.ShareGroupTargetAssignmentMemberValue,
    ),
    14: (
        share_group.ShareGroupCurrentMemberAssignmentKey,
        share_group.ShareGroupCurrentMemberAssignmentValue,
    ),
    15: (
        share_group.ShareGroupStatePartitionMetadataKey,
        share_group.ShareGroupStatePartitionMetadataValue,
    ),
    16: (
        consumer_group.ConsumerGroupRegularExpressionKey,
        consumer_group.ConsumerGroupRegularExpressionValue,
    ),
    17: (streams_group.StreamsGroupMetadataKey, streams_group.StreamsGroupMetadataValue),
    19: (
        streams_group.StreamsGroupMemberMetadataKey,
        streams_group.StreamsGroupMemberMetadataValue,
    ),
    20: (
        streams_group.StreamsGroupTargetAssignmentMetadataKey,
        streams_group.StreamsGroupTargetAssignmentMetadataValue,
    ),
    21: (
        streams_group.StreamsGroupTargetAssignmentMemberKey,
        streams_group.StreamsGroupTargetAssignmentMemberValue,
    ),
    22: (
        streams_group.StreamsGroupCurrentMemberAssignmentKey,
        streams_group.StreamsGroupCurrentMemberAssignmentValue,
    ),
    23: (streams_group.StreamsGroupTopologyKey, streams_group.StreamsGroupTopologyValue),
}
_OFFSET_KINDS = (0, 1)
_KINDS = {key_class: kind for kind, (key_class, _) in _SCHEMAS.items()}


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the bytes of key and value."""
    key, value, version = record
    if type(key) is offset_records.OffsetKey:
        return offset_records.encode(key, value, version)
    stored_key = _INT16.pack(_KINDS[type(key)]) + codec.to_bytes(key, 0)
    if value is None:
        return stored_key, None
    return stored_key, _INT16.pack(version) + codec.to_bytes(value, version)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Return the record; None for kinds not known here. Raises CorruptMessage."""
    kind = _prefix(key)
    if kind not in _SCHEMAS:
        return None
    key_class, value_class = _SCHEMAS[kind]
    decoded_key = codec.decode(key_class, 0, memoryview(key)[2:])
    decoded_value, version = None, 0
    if value is not None:
        version = _prefix(value)
        decoded_value = codec.decode(value_class, version, memoryview(value)[2:])
    if kind in _OFFSET_KINDS:
        return offset_records.from_messages(decoded_key, decoded_value)
    return CoordinatorRecord(decoded_key, decoded_value, version)


def _prefix(data: bytes) -> int:
    if len(data) < 2:
        raise CorruptMessage("a coordinator record ends before its version")
    number: int = _INT16.unpack_from(data)[0]
    return number


def group_metadata(group: ClassicGroup, assignments: dict[str, bytes]) -> CoordinatorRecord:
    """Return the record of a classic group with these assignments by member id."""
    name = group.protocol_name
    return _group_metadata(
        group.group_id,
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=_or_unset(group.state_timestamp_ms),
        members=[
            schemas.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(name),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )


def empty_group_metadata(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record of a new group, before its first generation."""
    return _group_metadata(
        group.group_id,
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=_or_unset(group.state_timestamp_ms),
        members=[],
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that removes a classic group."""
    return CoordinatorRecord(schemas.GroupMetadataKey(group=group_id))


def _group_metadata(group_id: str, **fields: Any) -> CoordinatorRecord:
    return CoordinatorRecord(
        schemas.GroupMetadataKey(group=group_id),
        schemas.GroupMetadataValue(**fields),
        GROUP_METADATA_VERSION,
    )


def _or_unset(timestamp_ms: int | None) -> int:
    return -1 if timestamp_ms is None else timestamp_ms
