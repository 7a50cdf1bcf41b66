"""What a heartbeat must look like, and which member may send it.

Kafka: GroupCoordinatorService.{throwIfStreamsGroupHeartbeatRequestIsInvalid,
throwIfStreamsGroupHeartbeatRequestIsUsingUnsupportedFeatures, throwIfInvalidTopology},
GroupMetadataManager.{throwIfStreamsGroupMemberEpochIsInvalid, throwIfStreamsGroupIsFull,
throwIfRequestContainsInvalidTasks}.

Kafka 4.3 refuses static members, patterns of source topics, task offsets and warm-up tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.member_group import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from ottla.coordinator.group.responses import full_group, require, require_filled
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.streams.configuration import ConfiguredSubtopology
    from ottla.coordinator.group.streams.group import (
        EpochMap,
        StreamsGroup,
        StreamsMember,
        TaskMap,
        Tasks,
    )
    from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST, or STREAMS_INVALID_TOPOLOGY for changelogs with a count."""
    require(request.instance_id is None, "Static membership is not yet supported.")
    require(request.task_offsets is None, "TaskOffsets are not supported yet.")
    require(request.task_end_offsets is None, "TaskEndOffsets are not supported yet.")
    require(not request.warmup_tasks, "WarmupTasks are not supported yet.")
    for subtopology in () if request.topology is None else request.topology.subtopologies:
        require(
            not subtopology.source_topic_regex,
            "Regular expressions for source topics are not supported yet.",
        )
    epoch = request.member_epoch
    require_filled(request.member_id, "MemberId")
    require_filled(request.group_id, "GroupId")
    require_filled(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH:
        require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        require(
            epoch > LEAVE_STATIC_EPOCH,
            f"MemberEpoch is {epoch}, but must be greater than or equal to -2.",
        )
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    require(
        all(kind is None for kind in kinds) or all(kind is not None for kind in kinds),
        "If one task-type is non-null, all must be non-null.",
    )
    require(
        epoch == JOIN_EPOCH or request.topology is None,
        "Topology can only be provided when (re-)joining.",
    )


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    require(
        request.rebalance_timeout_ms != -1,
        "RebalanceTimeoutMs must be provided in first request.",
    )
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        require(tasks == [], f"{name} must be empty when (re-)joining.")
    require(request.topology is not None, "Topology must be non-null when (re-)joining.")
    for subtopology in () if request.topology is None else request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}.",
                )


def is_within(owned: Tasks | None, member: StreamsMember) -> bool:
    """Whether a member reports tasks, and only those that it is assigned."""
    assigned = member.assigned
    return owned is not None and (
        _are_all_in(owned.active, assigned.active)
        and _are_all_in(owned.standby, assigned.standby)
        and _are_all_in(owned.warmup, assigned.warmup)
    )


def _are_all_in(tasks: TaskMap, others: TaskMap | EpochMap) -> bool:
    return all(
        key in others and index in others[key]
        for key, partitions in tasks.items()
        for index in partitions
    )


def check_size(group: StreamsGroup, limit: int) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a full group, also where a member joins again."""
    if len(group.members) >= limit:
        raise full_group("streams", limit)


def check_tasks(
    subtopologies: Mapping[str, ConfiguredSubtopology], tasks: Iterable[Any] | None
) -> None:
    """Raise INVALID_REQUEST for tasks that the topology does not have."""
    for task in tasks or ():
        subtopology = subtopologies.get(task.subtopology_id)
        if subtopology is None:
            text = f"Subtopology {task.subtopology_id} does not exist in the topology."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        count = subtopology.task_count
        for partition in task.partitions:
            require(
                0 <= partition < count,
                f"Task {partition} for subtopology {task.subtopology_id} is invalid. "
                f"Number of tasks for this subtopology: {count}",
            )
