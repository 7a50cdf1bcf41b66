"""Replay of the records of streams groups.

Kafka: GroupMetadataManager.replay of the StreamsGroup* records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group import replaying
from ottla.coordinator.group.streams import topology
from ottla.coordinator.group.streams.member import Endpoint, StreamsMember, StreamsMemberState
from ottla.coordinator.group.streams.tasks import AssignedTasks, Tasks, task_map
from ottla.protocol.records import streams_group as schemas

if TYPE_CHECKING:
    from ottla.coordinator.group.replaying import Replays
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.groups import StreamsGroups
    from ottla.coordinator.group.streams.tasks import EpochMap, TaskMap


def replay(groups: StreamsGroups, key: Any, value: Any) -> str | None:
    """Apply a record and return its group; None for the records of other kinds of groups."""
    return replaying.apply_record(groups, _REPLAYS, key, value)


def _epoch(group: StreamsGroup, _key: Any, value: Any) -> None:
    configs = {one.key: one.value for one in value.last_assignment_configs or ()}
    group.set_epoch(value.epoch, value.metadata_hash)
    group.set_validation(value.validated_topology_epoch, configs)


def _topology(group: StreamsGroup, _key: Any, value: Any) -> None:
    group.set_topology(None if value is None else topology.from_record(value))


def _member(group: StreamsGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove(key.member_id)
        return
    old = group.members.get(key.member_id) or StreamsMember(key.member_id)
    endpoint = value.user_endpoint
    group.put(
        replace(
            old,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags={one.key: one.value for one in value.client_tags},
        )
    )


def _target_member(group: StreamsGroup, key: Any, value: Any) -> None:
    tasks = None
    if value is not None:
        tasks = Tasks(_ids(value.active_tasks), _ids(value.standby_tasks), _ids(value.warmup_tasks))
    group.set_target(key.member_id, tasks)


def _current(group: StreamsGroup, key: Any, value: Any) -> None:
    """Apply a member's assignment; a tombstone resets the member, as one that has just joined."""
    old = group.members.get(key.member_id)
    if value is None:
        if old is not None:
            fresh = StreamsMember(key.member_id)
            reset = old.moved(
                fresh.state, fresh.member_epoch, fresh.assigned, fresh.pending_revocation
            )
            group.put(replace(reset, previous_member_epoch=fresh.previous_member_epoch))
        return
    epoch = value.member_epoch
    group.put(
        replace(
            old or StreamsMember(key.member_id),
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=StreamsMemberState(value.state),
            assigned=AssignedTasks(
                _epochs(value.active_tasks, epoch),
                _ids(value.standby_tasks),
                _ids(value.warmup_tasks),
            ),
            pending_revocation=AssignedTasks(
                _epochs(value.active_tasks_pending_revocation, epoch),
                _ids(value.standby_tasks_pending_revocation),
                _ids(value.warmup_tasks_pending_revocation),
            ),
        )
    )


def _ids(tasks: list[Any]) -> TaskMap:
    return task_map((one.subtopology_id, one.partitions) for one in tasks)


def _epochs(tasks: list[schemas.TaskIdsAndEpochs], member_epoch: int) -> EpochMap:
    return {
        one.subtopology_id: replaying.with_epochs(
            one.partitions, one.assignment_epochs, member_epoch
        )
        for one in tasks
    }


_REPLAYS: Final[Replays] = {
    schemas.StreamsGroupMetadataKey: _epoch,
    schemas.StreamsGroupTopologyKey: _topology,
    schemas.StreamsGroupMemberMetadataKey: _member,
    schemas.StreamsGroupTargetAssignmentMetadataKey: replaying.target_epoch,
    schemas.StreamsGroupTargetAssignmentMemberKey: _target_member,
    schemas.StreamsGroupCurrentMemberAssignmentKey: _current,
}
