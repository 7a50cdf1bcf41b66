"""Admin calls for streams groups (KIP-1071).

Kafka: org.apache.kafka.clients.admin.{StreamsGroupDescription, StreamsGroupMemberDescription,
StreamsGroupSubtopologyDescription, DescribeStreamsGroupsHandler}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.groups import GroupsAdmin
from ottla.clients.arguments import listed
from ottla.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.errors import KafkaError


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

        async def describe(group_id: str, remaining: float) -> StreamsGroupDescription:
            request = StreamsGroupDescribeRequest(
                group_ids=[group_id], include_authorized_operations=include_authorized_operations
            )
            group = await self._described_group(group_id, request, remaining)
            topology = group.topology
            return StreamsGroupDescription(
                group.group_id,
                group.group_state,
                group.group_epoch,
                group.assignment_epoch,
                -1 if topology is None else topology.epoch,
                tuple(map(_subtopology, () if topology is None else topology.subtopologies or ())),
                tuple(map(_member, group.members)),
                self._coordinator_node(group_id),
                group.authorized_operations,
            )

        return await self._call_each(listed("group_ids", group_ids), describe, timeout)


def _subtopology(subtopology: Any) -> SubtopologyDescription:
    return SubtopologyDescription(
        subtopology.subtopology_id,
        tuple(subtopology.source_topics),
        tuple(subtopology.repartition_sink_topics),
        _topics(subtopology.repartition_source_topics),
        _topics(subtopology.state_changelog_topics),
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


def _member(member: Any) -> StreamsMemberDescription:
    endpoint = member.user_endpoint
    return StreamsMemberDescription(
        member.member_id,
        member.member_epoch,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id,
        None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        {tag.key: tag.value for tag in member.client_tags},
        _tasks(member.assignment),
        _tasks(member.target_assignment),
        member.is_classic,
    )


def _tasks(assignment: Any) -> StreamsTasks:
    kinds = (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
    return StreamsTasks(
        *({tasks.subtopology_id: tuple(tasks.partitions) for tasks in kind} for kind in kinds)
    )
