"""The records of classic groups.

Kafka: GroupCoordinatorRecordHelpers.{newGroupMetadataRecord, newEmptyGroupMetadataRecord}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group.group_kind import RecordType
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.protocol.records import group as schemas

if TYPE_CHECKING:
    from ottla.coordinator.group.classic.group import ClassicGroup

GROUP_METADATA_VERSION: Final = 3
RECORD_TYPES: Final = (RecordType(2, schemas.GroupMetadataKey, schemas.GroupMetadataValue),)


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
