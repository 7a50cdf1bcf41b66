"""Admin calls for streams groups (KIP-1071).

Kafka: org.apache.kafka.clients.admin.{StreamsGroupDescription, StreamsGroupMemberDescription,
StreamsGroupSubtopologyDescription, DescribeStreamsGroupsHandler}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.groups import GroupsAdmin, retriable_group_code
from ottla.errors import KafkaError
from ottla.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class StreamsTasks(NamedTuple):
    """Tasks by kind: partitions by subtopology."""

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


class StreamsMemberDescription(NamedTuple):
    """A member of a streams group; the endpoint is host:port, None without one."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    topology_epoch: int
    process_id: str
    user_endpoint: str | None
    client_tags: Mapping[str, str]
    assignment: StreamsTasks
    target_assignment: StreamsTasks
    is_classic: bool


class InternalTopicDescription(NamedTuple):
    """A repartition or changelog topic; 0 partitions while the count is not known."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class SubtopologyDescription(NamedTuple):
    """A subtopology with its topics."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: Mapping[str, InternalTopicDescription]
    state_changelog_topics: Mapping[str, InternalTopicDescription]


class StreamsGroupDescription(NamedTuple):
    """A streams group with its topology and members; coordinator is a node id."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    topology_epoch: int
    subtopologies: tuple[SubtopologyDescription, ...]
    members: tuple[StreamsMemberDescription, ...]
    coordinator: int
    authorized_operations: int = -2147483648


class StreamsGroupsAdmin(GroupsAdmin):
    """The part of the admin for streams groups; their offsets are those of any group."""

    async def describe_streams_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, StreamsGroupDescription | KafkaError]:
        """Describe streams groups; returns an outcome for each."""

        async def describe(group_id: str, remaining: float | None) -> StreamsGroupDescription:
            request = StreamsGroupDescribeRequest(
                group_ids=[group_id], include_authorized_operations=include_authorized_operations
            )
            answer = await self._coordinator_call(
                group_id, request, error_of=retriable_group_code, timeout=remaining
            )
            group = answer.groups[0]
            coordinator = self._coordinator_node(group_id)
            if group.error_code:
                raise KafkaError(group.error_code, group.error_message)
            topology = group.topology
            return StreamsGroupDescription(
                group.group_id,
                group.group_state,
                group.group_epoch,
                group.assignment_epoch,
                -1 if topology is None else topology.epoch,
                tuple(map(_subtopology, () if topology is None else topology.subtopologies or ())),
                tuple(_member(member) for member in group.members),
                coordinator,
                group.authorized_operations,
            )

        return await self._outcomes(group_ids, timeout, describe)


def _subtopology(one: Any) -> SubtopologyDescription:
    return SubtopologyDescription(
        one.subtopology_id,
        tuple(one.source_topics),
        tuple(one.repartition_sink_topics),
        _topics(one.repartition_source_topics),
        _topics(one.state_changelog_topics),
    )


def _topics(topics: Any) -> dict[str, InternalTopicDescription]:
    return {
        topic.name: InternalTopicDescription(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            {config.key: config.value for config in topic.topic_configs},
        )
        for topic in topics
    }


def _member(one: Any) -> StreamsMemberDescription:
    endpoint = one.user_endpoint
    return StreamsMemberDescription(
        one.member_id,
        one.member_epoch,
        one.instance_id,
        one.rack_id,
        one.client_id,
        one.client_host,
        one.topology_epoch,
        one.process_id,
        None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        {tag.key: tag.value for tag in one.client_tags},
        _tasks(one.assignment),
        _tasks(one.target_assignment),
        one.is_classic,
    )


def _tasks(assignment: Any) -> StreamsTasks:
    kinds = (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
    return StreamsTasks(
        *({one.subtopology_id: tuple(one.partitions) for one in kind} for kind in kinds)
    )
