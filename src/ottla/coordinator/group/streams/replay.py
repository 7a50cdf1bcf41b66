"""Replay of the records of streams groups.

Kafka: GroupMetadataManager.replay of the StreamsGroup* records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.streams import topology
from ottla.coordinator.group.streams.member import Endpoint, StreamsMember, StreamsMemberState
from ottla.coordinator.group.streams.tasks import AssignedTasks, Tasks, task_map
from ottla.protocol.records import streams_group as schemas

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.streams.groups import StreamsGroups
    from ottla.coordinator.group.streams.tasks import EpochMap, TaskMap


def replay(groups: StreamsGroups, key: Any, value: Any) -> str | None:
    """Apply a record and return its group; None for the records of other kinds of groups."""
    apply = _REPLAYS.get(type(key))
    if apply is None:
        return None
    apply(groups, key, value)
    group_id: str = key.group_id
    return group_id


def _group(groups: StreamsGroups, key: Any, value: Any) -> None:
    if value is None:
        groups.by_id.pop(key.group_id, None)
        return
    configs = {one.key: one.value for one in value.last_assignment_configs or ()}
    groups.restore(key.group_id).set_epoch(
        value.epoch, value.metadata_hash, value.validated_topology_epoch, configs
    )


def _topology(groups: StreamsGroups, key: Any, value: Any) -> None:
    if value is not None:
        groups.restore(key.group_id).set_topology(topology.from_record(value))
        return
    group = groups.find(key.group_id)
    if group is not None:
        group.set_topology(None)


def _member(groups: StreamsGroups, key: Any, value: Any) -> None:
    if value is None:
        group = groups.find(key.group_id)
        if group is not None:
            group.remove(key.member_id)
        return
    group = groups.restore(key.group_id)
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


def _target_epoch(groups: StreamsGroups, key: Any, value: Any) -> None:
    if value is not None:
        group = groups.restore(key.group_id)
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        return
    group_or_none = groups.find(key.group_id)
    if group_or_none is not None:
        group_or_none.set_assignment_epoch(-1, 0)


def _target_member(groups: StreamsGroups, key: Any, value: Any) -> None:
    if value is None:
        group = groups.find(key.group_id)
        if group is not None:
            group.set_target(key.member_id, None)
        return
    tasks = Tasks(_ids(value.active_tasks), _ids(value.standby_tasks), _ids(value.warmup_tasks))
    groups.restore(key.group_id).set_target(key.member_id, tasks)


def _current(groups: StreamsGroups, key: Any, value: Any) -> None:
    """Apply a member's assignment; a tombstone resets the member."""
    group = groups.find(key.group_id) if value is None else groups.restore(key.group_id)
    if group is None:
        return
    old = group.members.get(key.member_id)
    if value is None:
        if old is not None:
            nothing = AssignedTasks()
            group.put(replace(old.moved(old.state, -1, nothing, nothing), previous_member_epoch=-1))
        return
    epoch = value.member_epoch
    group.put(
        replace(
            old or StreamsMember(key.member_id),
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_state(value.state),
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


def _state(number: int) -> StreamsMemberState:
    known = {int(state) for state in StreamsMemberState}
    return StreamsMemberState(number) if number in known else StreamsMemberState.UNKNOWN


def _ids(tasks: list[Any]) -> TaskMap:
    return task_map((one.subtopology_id, one.partitions) for one in tasks)


def _epochs(tasks: list[schemas.TaskIdsAndEpochs], member_epoch: int) -> EpochMap:
    """Return tasks with assignment epochs; records of earlier releases have none."""
    found = {}
    for one in tasks:
        epochs = one.assignment_epochs or []
        if len(epochs) != len(one.partitions):
            epochs = [member_epoch] * len(one.partitions)
        found[one.subtopology_id] = dict(sorted(zip(one.partitions, epochs, strict=True)))
    return found


_REPLAYS: dict[type, Callable[[StreamsGroups, Any, Any], None]] = {
    schemas.StreamsGroupMetadataKey: _group,
    schemas.StreamsGroupTopologyKey: _topology,
    schemas.StreamsGroupMemberMetadataKey: _member,
    schemas.StreamsGroupTargetAssignmentMetadataKey: _target_epoch,
    schemas.StreamsGroupTargetAssignmentMemberKey: _target_member,
    schemas.StreamsGroupCurrentMemberAssignmentKey: _current,
}
