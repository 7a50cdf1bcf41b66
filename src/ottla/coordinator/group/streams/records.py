"""The records of streams groups.

Kafka: org.apache.kafka.coordinator.group.streams.StreamsCoordinatorRecordHelpers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.group import tombstones
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.protocol.records import streams_group as schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.member import StreamsMember
    from ottla.coordinator.group.streams.tasks import EpochMap, TaskMap, Tasks

_MEMBER_KEYS: Final = (
    schemas.StreamsGroupCurrentMemberAssignmentKey,
    schemas.StreamsGroupTargetAssignmentMemberKey,
    schemas.StreamsGroupMemberMetadataKey,
)


def topology(group_id: str, value: schemas.StreamsGroupTopologyValue) -> CoordinatorRecord:
    """Return the record of a topology."""
    return CoordinatorRecord(schemas.StreamsGroupTopologyKey(group_id=group_id), value)


def group_epoch(
    group_id: str,
    epoch: int,
    metadata_hash: int,
    validated_epoch: int,
    configs: Mapping[str, str],
) -> CoordinatorRecord:
    """Return the record of a group epoch."""
    return CoordinatorRecord(
        schemas.StreamsGroupMetadataKey(group_id=group_id),
        schemas.StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=[
                schemas.LastAssignmentConfig(key=key, value=value)
                for key, value in sorted(configs.items())
            ],
        ),
    )


def member_metadata(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Return the record of a member's metadata."""
    endpoint = member.user_endpoint
    return CoordinatorRecord(
        schemas.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        schemas.StreamsGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=(
                None
                if endpoint is None
                else schemas.Endpoint(host=endpoint.host, port=endpoint.port)
            ),
            client_tags=[
                schemas.KeyValue(key=key, value=value)
                for key, value in sorted(member.client_tags.items())
            ],
        ),
    )


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Return the record of the epoch of a target assignment."""
    return CoordinatorRecord(
        schemas.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        schemas.StreamsGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_member(group_id: str, member_id: str, tasks: Tasks) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    return CoordinatorRecord(
        schemas.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        schemas.StreamsGroupTargetAssignmentMemberValue(
            active_tasks=_task_ids(tasks.active),
            standby_tasks=_task_ids(tasks.standby),
            warmup_tasks=_task_ids(tasks.warmup),
        ),
    )


def _task_ids(tasks: TaskMap) -> list[schemas.TaskIds]:
    return [
        schemas.TaskIds(subtopology_id=key, partitions=list(partitions))
        for key, partitions in sorted(tasks.items())
    ]


def current_assignment(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """Return the record of a member's state, epochs and tasks."""
    assigned, pending = member.assigned, member.pending_revocation
    return CoordinatorRecord(
        schemas.StreamsGroupCurrentMemberAssignmentKey(
            group_id=group_id, member_id=member.member_id
        ),
        schemas.StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=int(member.state),
            active_tasks=_with_epochs(assigned.active),
            standby_tasks=_without_epochs(assigned.standby),
            warmup_tasks=_without_epochs(assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(pending.active),
            standby_tasks_pending_revocation=_without_epochs(pending.standby),
            warmup_tasks_pending_revocation=_without_epochs(pending.warmup),
        ),
    )


def _with_epochs(tasks: EpochMap) -> list[schemas.TaskIdsAndEpochs]:
    return [
        schemas.TaskIdsAndEpochs(
            subtopology_id=key,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for key, epochs in sorted(tasks.items())
    ]


def _without_epochs(tasks: TaskMap) -> list[schemas.TaskIdsAndEpochs]:
    return [
        schemas.TaskIdsAndEpochs(subtopology_id=key, partitions=list(partitions))
        for key, partitions in sorted(tasks.items())
    ]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member: current assignment, target and metadata."""
    return tombstones.of_member(_MEMBER_KEYS, group_id, member_id)


def group_tombstones(group: StreamsGroup) -> list[CoordinatorRecord]:
    """Return the records that remove a group with its members, in Kafka's order."""
    group_id = group.group_id
    names = list(group.members)
    current, target, members = tombstones.of_members(_MEMBER_KEYS, group_id, names)
    return [
        *current,
        *target,
        CoordinatorRecord(schemas.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)),
        *members,
        CoordinatorRecord(schemas.StreamsGroupMetadataKey(group_id=group_id)),
        CoordinatorRecord(schemas.StreamsGroupTopologyKey(group_id=group_id)),
    ]
