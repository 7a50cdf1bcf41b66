"""StreamsGroupHeartbeat: join with a topology, stay, leave; the response has the tasks.

An active task waits until no process runs it, and until the own process has given up its standby or
warm-up copy; a copy waits only for the own process.

Kafka: GroupMetadataManager.{streamsGroupHeartbeat, maybeUpdateTopology,
maybeSetTopologyStaleStatus, hasStreamsMemberMetadataChanged};
org.apache.kafka.coordinator.group.streams.topics.EndpointToPartitionsManager,
StreamsGroup.buildEndpointToPartitions;
org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder,
GroupMetadataManager.maybeReconcile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.group.member_group import JOIN_EPOCH
from ottla.coordinator.group.responses import check_epoch
from ottla.coordinator.group.streams import topology
from ottla.coordinator.group.streams.configuration import ConfiguredTopology, Status, configure
from ottla.coordinator.group.streams.group import (
    NOT_VALIDATED,
    AssignedTasks,
    Endpoint,
    ListedEndpoint,
    StreamsMember,
    StreamsMemberState,
    TaskMap,
    Tasks,
    task_map,
    without_epochs,
)
from ottla.coordinator.group.streams.validation import check_size, check_tasks, is_within
from ottla.coordinator.runtime import CoordinatorRecord, Result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis import streams_group_heartbeat as api

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.context import RequestContext, TopicNames
    from ottla.coordinator.group.streams.configuration import InternalTopic
    from ottla.coordinator.group.streams.group import EpochMap, StreamsGroup
    from ottla.coordinator.group.streams.kind import StreamsGroups
    from ottla.coordinator.group.streams.topology import StreamsTopology


Request = api.StreamsGroupHeartbeatRequest
Response = api.StreamsGroupHeartbeatResponse


class HeartbeatResult(NamedTuple):
    """The response, and the internal topics to create."""

    response: Response
    missing: Mapping[str, InternalTopic]


@dataclass(slots=True)
class _Call:
    """A heartbeat while it is processed, with the records it writes and what it reports."""

    groups: StreamsGroups
    group: StreamsGroup
    request: Request
    owned: Tasks | None
    connection_id: str
    has_changed: bool = False
    records: list[CoordinatorRecord] = field(default_factory=list)
    statuses: list[api.Status] = field(default_factory=list)

    def report(self, status: Status, detail: str) -> None:
        """Add a status to the response."""
        self.statuses.append(api.Status(status_code=int(status), status_detail=detail))


def heartbeat(
    groups: StreamsGroups, group: StreamsGroup | None, request: Request, context: RequestContext
) -> Result[HeartbeatResult]:
    """Apply a heartbeat whose request is valid; group is the one that it names, if it exists."""
    group_id = request.group_id
    if request.member_epoch < JOIN_EPOCH:
        result = _leave(groups, request)
        return Result(HeartbeatResult(result.response, {}), result.records)
    is_joining = request.member_epoch == JOIN_EPOCH
    if group is None:
        group = groups.new(group_id) if is_joining else groups.get(group_id)
    if is_joining:
        check_size(group, groups.settings(group_id).max_size)
    call = _Call(groups, group, request, _owned(request), context.connection_id)
    member = _find_member(call)
    updated = _with_request(member, request, context)
    if updated != member:
        call.has_changed = True
        call.records.append(groups.member_metadata(group_id, updated))
    topology_now = _update_topology(call, updated)
    configured = _update_group(call, topology_now)
    if group.is_empty:
        groups.delay_first_target(group_id)
    reconciled = _assign(call, updated)
    if request.shutdown_application and group.shutdown_member_id is None:
        group.shutdown_member_id = request.member_id
    response = _response(call, member, reconciled, configured)
    on_append = partial(_note_connection, call, response.active_tasks is not None)
    return Result(HeartbeatResult(response, configured.missing), call.records, on_append)


def _owned(request: Request) -> Tasks | None:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return Tasks(_task_map(active), _task_map(standby), _task_map(warmup))


def _task_map(tasks: list[api.TaskIds]) -> TaskMap:
    return task_map((task.subtopology_id, task.partitions) for task in tasks)


def _find_member(call: _Call) -> StreamsMember:
    group, request = call.group, call.request
    if request.member_epoch == JOIN_EPOCH:
        known: StreamsMember | None = group.members.get(request.member_id)
        return known or StreamsMember(request.member_id)
    member = group.member(request.member_id)
    check_epoch("streams", member, request.member_epoch, call.owned, is_within)
    return member


def _with_request(
    member: StreamsMember, request: Request, context: RequestContext
) -> StreamsMember:
    timeout_ms, endpoint, tags = (
        request.rebalance_timeout_ms,
        request.user_endpoint,
        request.client_tags,
    )
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=(
            member.topology_epoch if request.topology is None else request.topology.epoch
        ),
        client_id=context.client_id,
        client_host=context.client_host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=(
            member.user_endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port)
        ),
        client_tags=(member.client_tags if tags is None else {tag.key: tag.value for tag in tags}),
    )


def _update_topology(call: _Call, member: StreamsMember) -> StreamsTopology:
    """Return the group's topology, written if the member brings the first one."""
    known, sent = call.group.topology, call.request.topology
    if known is None:
        if sent is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        value = topology.to_record(sent)
        call.records.append(call.groups.topology(call.group.group_id, value))
        return topology.from_record(value)
    if sent is not None and known.epoch <= sent.epoch:
        new = topology.from_record(topology.to_record(sent))
        if new != known:
            text = "Topology updates are not supported yet."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if member.topology_epoch < known.epoch:
        call.report(
            Status.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology "
            f"epoch {known.epoch}.",
        )
    return known


def _update_group(call: _Call, topology_now: StreamsTopology) -> ConfiguredTopology:
    """Configure the topology again where metadata has changed; raise the epoch on changes."""
    groups, group = call.groups, call.group
    new_hash, configured = _configure(call, topology_now)
    validated_epoch = NOT_VALIDATED
    if configured.is_ready:
        validated_epoch = topology_now.epoch
        request = call.request
        for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
            check_tasks(configured.subtopologies or {}, tasks)
    configs = groups.configs(group.group_id)
    call.has_changed |= validated_epoch != group.validated_epoch
    call.has_changed |= configs != group.assignment_configs
    epoch = group.epoch
    if call.has_changed:
        epoch += 1
        call.records.append(
            groups.group_epoch(group.group_id, epoch, new_hash, validated_epoch, configs)
        )
        groups.rebalances += 1
    group.fresh_epoch = epoch
    return configured


def _configure(call: _Call, topology_now: StreamsTopology) -> tuple[int, ConfiguredTopology]:
    """Return the metadata hash and the configured topology."""
    groups, group = call.groups, call.group
    if group.topology is not None and group.configured is not None and group.is_fresh:
        return group.metadata_hash, group.configured
    names = topology_now.required_topics
    new_hash = groups.hashes.of(names)
    has_new_hash = new_hash != group.metadata_hash
    call.has_changed |= has_new_hash
    if group.topology is None or group.configured is None or has_new_hash:
        group.configured = configure(topology_now, groups.topics)
    return new_hash, group.configured


def _assign(call: _Call, updated: StreamsMember) -> StreamsMember:
    groups, group = call.groups, call.group
    epoch = group.epoch + call.has_changed
    target = groups.update_target(group, epoch, updated, call.records)
    if target.delay is not None:
        call.report(Status.ASSIGNMENT_DELAYED, target.delay)
    reconciled = _StreamsReconciliation(
        group, updated, target.epoch, target.assignment, call.owned
    ).next_member()
    has_moved = reconciled != updated
    if has_moved:
        call.records.append(groups.current_assignment(group.group_id, reconciled))
    groups.follow(group.group_id, reconciled, has_moved=has_moved)
    return reconciled


def _response(
    call: _Call,
    member: StreamsMember,
    reconciled: StreamsMember,
    configured: ConfiguredTopology,
) -> Response:
    """Return the response; the tasks are in it where they are new to the member."""
    groups, group, request = call.groups, call.group, call.request
    response = Response(
        member_id=reconciled.member_id,
        member_epoch=reconciled.member_epoch,
        heartbeat_interval_ms=groups.settings(group.group_id).heartbeat_interval_ms,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=None,
        endpoint_information_epoch=0,
    )
    is_new = request.member_epoch == JOIN_EPOCH or reconciled.assigned != member.assigned
    if is_new or _has_lost_tasks(call, reconciled):
        tasks = reconciled.assigned.tasks
        response.active_tasks = _task_ids(tasks.active)
        response.standby_tasks = _task_ids(tasks.standby)
        response.warmup_tasks = _task_ids(tasks.warmup)
        group.endpoint_epoch += is_new and reconciled.user_endpoint is not None
    if group.endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = _list_endpoints(
            group, reconciled, configured, groups.topics
        )
    if groups.find(group.group_id) is not None:
        response.endpoint_information_epoch = group.endpoint_epoch
    if configured.problem is not None:
        call.report(configured.problem.status, str(configured.problem))
    if group.shutdown_member_id is not None:
        call.report(
            Status.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_member_id} encountered a fatal error and "
            "requested a shutdown for the entire application.",
        )
    response.status = call.statuses
    return response


def _note_connection(call: _Call, has_tasks: bool, error: KafkaError | None) -> None:  # noqa: FBT001 - a callback
    """Note over which connection a member was sent its tasks, once the response is released."""
    group = call.groups.find(call.request.group_id)  # a new group is made by the replay
    member_id = call.request.member_id
    if group is None or member_id not in group.members:
        return
    if error is not None:
        group.connection_ids.pop(member_id, None)
    elif has_tasks:
        group.connection_ids[member_id] = call.connection_id


def _has_lost_tasks(call: _Call, member: StreamsMember) -> bool:
    """Whether the response with the member's tasks may not have arrived: they are repeated.

    Kafka sends tasks once: a member that lost the response runs none of them until the group's next
    rebalance, and keeps those it should give up until its rebalance timeout. Its client opens
    another connection after a lost response, and then reports all that it runs. Over the same
    connection the answers are Kafka's.
    """
    return (
        call.owned is not None
        and call.group.connection_ids.get(member.member_id) != call.connection_id
        and call.owned != member.assigned.tasks
    )


def _task_ids(tasks: TaskMap) -> list[api.TaskIds]:
    return [
        api.TaskIds(subtopology_id=key, partitions=list(partitions))
        for key, partitions in sorted(tasks.items())
    ]


def _leave(groups: StreamsGroups, request: Request) -> Result[Response]:
    """Remove a member, which may request that the whole application ends."""
    group = groups.to_leave(request.group_id)
    if request.shutdown_application and group.shutdown_member_id is None:
        group.shutdown_member_id = request.member_id
    member = group.member(request.member_id)
    response = Response(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )
    return Result(response, groups.removal_records(group, member))


_Listed = api.StreamsGroupHeartbeatResponse.EndpointToPartitions


def _list_endpoints(
    group: StreamsGroup, updated: StreamsMember, topology: ConfiguredTopology, topics: TopicNames
) -> list[_Listed]:
    """Return the endpoints of all members that have one; the updated member is the last.

    Those of a large group are listed for each of its members after every change: the entries of
    unchanged members are kept.
    """
    others = [other for other in group.members.values() if other.member_id != updated.member_id]
    known, group.endpoints = group.endpoints, {}
    listed = []
    for member in (*others, updated):
        if member.user_endpoint is None:
            continue
        entry = known.get(member.member_id)
        if entry is None or entry.member is not member or entry.topology is not topology:
            entry = ListedEndpoint(member, topology, _listed(member, topology, topics))
        group.endpoints[member.member_id] = entry
        listed.append(entry.listed)
    return listed


def _listed(member: StreamsMember, topology: ConfiguredTopology, topics: TopicNames) -> _Listed:
    endpoint = member.user_endpoint
    assert endpoint is not None
    active = without_epochs(member.assigned.active)
    return _Listed(
        user_endpoint=api.Endpoint(host=endpoint.host, port=endpoint.port),
        active_partitions=_partitions(active, topology, topics),
        standby_partitions=_partitions(member.assigned.standby, topology, topics),
    )


def _partitions(
    tasks: TaskMap, topology: ConfiguredTopology, topics: TopicNames
) -> list[api.TopicPartition]:
    """Return the source partitions of tasks; a topic may have fewer than there are tasks."""
    listed = []
    for key, partitions in tasks.items():
        subtopology = (topology.subtopologies or {}).get(key)
        if subtopology is None:
            continue
        for name in (*subtopology.source_topics, *subtopology.repartition_sources):
            count = topics.partition_count(name) or 0
            listed.append(api.TopicPartition(topic=name, partitions=list(partitions[:count])))
    return listed


_UNKNOWN_STATE = (
    "The streams group member is in a unknown state. "
    "The member must abandon all its tasks and rejoin."
)


@dataclass(frozen=True, slots=True)
class _StreamsReconciliation:
    """A step of a member of a group; owned are the tasks it reports, None where it reports none."""

    group: StreamsGroup
    member: StreamsMember
    target_epoch: int
    target: Tasks
    owned: Tasks | None

    def next_member(self) -> StreamsMember:
        """Return the member after the step: itself if there is nothing to do."""
        member = self.member
        if member.is_reconciled_to(self.target_epoch):
            return member
        if member.state is StreamsMemberState.UNKNOWN:
            if self.owned is None or not self.owned.is_empty:
                raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, _UNKNOWN_STATE)
            return self._towards_target(self.target_epoch)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            if self.owned is None or self.owned.has_any_of(member.pending_revocation):
                return member
            return self._towards_target(member.member_epoch + 1)
        return self._towards_target(member.member_epoch)

    def _towards_target(self, epoch: int) -> StreamsMember:
        member, assigned = self.member, self.member.assigned
        active = _active_difference(assigned.active, self.target.active)
        standby = _difference(assigned.standby, self.target.standby)
        warmup = _difference(assigned.warmup, self.target.warmup)
        remaining = AssignedTasks(active[0], standby[0], warmup[0])
        revoked = AssignedTasks(active[1], standby[1], warmup[1])
        if not revoked.is_empty and (self.owned is None or self.owned.has_any_of(revoked)):
            return member.moved(StreamsMemberState.UNREVOKED_TASKS, epoch, remaining, revoked)
        free_active, waits_active = self._free(active[2], is_active=True)
        free_standby, waits_standby = self._free(standby[2], is_active=False)
        free_warmup, waits_warmup = self._free(warmup[2], is_active=False)
        new = AssignedTasks(
            {
                key: dict.fromkeys(partitions, self.target_epoch)
                for key, partitions in free_active.items()
            },
            free_standby,
            free_warmup,
        )
        is_waiting = waits_active or waits_standby or waits_warmup
        state = StreamsMemberState.UNRELEASED_TASKS if is_waiting else StreamsMemberState.STABLE
        return member.moved(state, self.target_epoch, remaining.merge(new), AssignedTasks())

    def _free(self, tasks: TaskMap, *, is_active: bool) -> tuple[TaskMap, bool]:
        """Return the tasks that the member may take now, and whether it has to wait for others."""
        free = {
            key: tuple(
                index for index in partitions if self._is_free((key, index), is_active=is_active)
            )
            for key, partitions in tasks.items()
        }
        is_waiting = any(len(free[key]) < len(tasks[key]) for key in tasks)
        return {key: partitions for key, partitions in free.items() if partitions}, is_waiting

    def _is_free(self, task: tuple[str, int], *, is_active: bool) -> bool:
        group = self.group
        owners = group.active_owners.get(task, ())
        if is_active and owners:
            return False
        others = (*group.standby_owners.get(task, ()), *group.warmup_owners.get(task, ()))
        if not is_active:
            others = (*owners, *others)
        return not group.is_in_process(others, self.member.process_id)


def _active_difference(current: EpochMap, target: TaskMap) -> tuple[EpochMap, EpochMap, TaskMap]:
    """Return the tasks to keep, to give up and to take."""
    remaining, revoked = {}, {}
    for key, epochs in current.items():
        targeted = frozenset(target.get(key, ()))
        remaining[key] = {index: epoch for index, epoch in epochs.items() if index in targeted}
        revoked[key] = {index: epoch for index, epoch in epochs.items() if index not in targeted}
    return _filled(remaining), _filled(revoked), _new(current, target)


def _difference(current: TaskMap, target: TaskMap) -> tuple[TaskMap, TaskMap, TaskMap]:
    remaining, revoked = {}, {}
    for key, partitions in current.items():
        targeted = frozenset(target.get(key, ()))
        remaining[key] = tuple(index for index in partitions if index in targeted)
        revoked[key] = tuple(index for index in partitions if index not in targeted)
    return (
        {key: value for key, value in remaining.items() if value},
        {key: value for key, value in revoked.items() if value},
        _new(current, target),
    )


def _filled(tasks: dict[str, dict[int, int]]) -> EpochMap:
    return {key: value for key, value in tasks.items() if value}


def _new(current: TaskMap | EpochMap, target: TaskMap) -> TaskMap:
    new = {
        key: tuple(index for index in partitions if index not in current.get(key, ()))
        for key, partitions in target.items()
    }
    return {key: partitions for key, partitions in new.items() if partitions}
