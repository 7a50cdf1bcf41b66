"""StreamsGroupDescribe.

Kafka: GroupMetadataManager.streamsGroupDescribe, StreamsGroup.asDescribedGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.group import Description
from ottla.coordinator.group.streams.tasks import Tasks, without_epochs
from ottla.protocol.apis import streams_group_describe as api

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.streams.configuration import ConfiguredTopology, InternalTopic
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.member import StreamsMember
    from ottla.coordinator.group.streams.tasks import TaskMap
    from ottla.coordinator.group.streams.topology import StreamsTopology
    from ottla.errors import ErrorCode
    from ottla.protocol.records import streams_group as schemas

DescribedGroup = api.StreamsGroupDescribeResponse.DescribedGroup
_Subtopology = DescribedGroup.Topology.Subtopology


def undescribed(group_id: str, code: ErrorCode, text: str | None = None) -> DescribedGroup:
    """Return the description of a group that cannot be described."""
    return DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
    )


def describe(group: StreamsGroup, epoch: int) -> Description[DescribedGroup]:
    """Describe a group in the log's state of an epoch."""
    group_epoch, assignment_epoch = group.epochs_at(epoch)
    members, target = list(group.members.at(epoch).values()), dict(group.target.at(epoch))
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_at(epoch).value,
        group_epoch=group_epoch,
        assignment_epoch=assignment_epoch,
        topology=_topology(group, epoch),
        members=[],
    )
    return Description(
        described, (_member(one, target.get(one.member_id) or Tasks()) for one in members)
    )


def _topology(group: StreamsGroup, epoch: int) -> DescribedGroup.Topology | None:
    """Return the topology with the counts of its topics, where they are known."""
    configured = group.configured
    if configured is not None and configured.is_ready:
        return _configured(configured)
    topology = group.topology_at(epoch)
    return None if topology is None else _as_sent(topology)


def _configured(topology: ConfiguredTopology) -> DescribedGroup.Topology:
    return DescribedGroup.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=key,
                source_topics=list(one.source_topics),
                repartition_sink_topics=list(one.repartition_sinks),
                state_changelog_topics=_internal(one.changelogs),
                repartition_source_topics=_internal(one.repartition_sources),
            )
            for key, one in sorted((topology.subtopologies or {}).items())
        ],
    )


def _internal(topics: Mapping[str, InternalTopic]) -> list[api.TopicInfo]:
    return [
        api.TopicInfo(
            name=one.name,
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            topic_configs=[api.KeyValue(key=key, value=one.configs[key]) for key in one.configs],
        )
        for _, one in sorted(topics.items())
    ]


def _as_sent(topology: StreamsTopology) -> DescribedGroup.Topology:
    return DescribedGroup.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=key,
                source_topics=sorted(one.source_topics),
                repartition_sink_topics=sorted(one.repartition_sink_topics),
                state_changelog_topics=_sent(one.state_changelog_topics),
                repartition_source_topics=_sent(one.repartition_source_topics),
            )
            for key, one in sorted(topology.subtopologies.items())
        ],
    )


def _sent(topics: list[schemas.TopicInfo]) -> list[api.TopicInfo]:
    return [
        api.TopicInfo(
            name=one.name,
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            topic_configs=[
                api.KeyValue(key=config.key, value=config.value) for config in one.topic_configs
            ],
        )
        for one in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(member: StreamsMember, target: Tasks) -> DescribedGroup.Member:
    assigned, endpoint = member.assigned, member.user_endpoint
    active = without_epochs(assigned.active)
    return DescribedGroup.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=(
            None if endpoint is None else api.Endpoint(host=endpoint.host, port=endpoint.port)
        ),
        client_tags=[
            api.KeyValue(key=key, value=value) for key, value in member.client_tags.items()
        ],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(Tasks(active, assigned.standby, assigned.warmup)),
        target_assignment=_assignment(target),
        is_classic=False,
    )


def _assignment(tasks: Tasks) -> api.Assignment:
    return api.Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: TaskMap) -> list[api.TaskIds]:
    return [
        api.TaskIds(subtopology_id=key, partitions=list(partitions))
        for key, partitions in sorted(tasks.items())
    ]
