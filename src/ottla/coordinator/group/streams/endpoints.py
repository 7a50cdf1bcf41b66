"""The partitions behind each user endpoint, for interactive queries.

Kafka: org.apache.kafka.coordinator.group.streams.topics.EndpointToPartitionsManager,
StreamsGroup.buildEndpointToPartitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.streams.group import ListedEndpoint
from ottla.coordinator.group.streams.tasks import without_epochs
from ottla.protocol.apis import streams_group_heartbeat as api

if TYPE_CHECKING:
    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.group.streams.configuration import ConfiguredTopology
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.member import StreamsMember
    from ottla.coordinator.group.streams.tasks import TaskMap

Listed = api.StreamsGroupHeartbeatResponse.EndpointToPartitions


def list_endpoints(
    group: StreamsGroup, updated: StreamsMember, topology: ConfiguredTopology, topics: TopicNames
) -> list[Listed]:
    """Return the endpoints of all members that have one; the updated member is the last.

    Those of a large group are listed for each of its members after every change: the entries of
    unchanged members are kept.
    """
    others = [one for one in group.members.values() if one.member_id != updated.member_id]
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


def _listed(member: StreamsMember, topology: ConfiguredTopology, topics: TopicNames) -> Listed:
    endpoint = member.user_endpoint
    assert endpoint is not None
    active = without_epochs(member.assigned.active)
    return Listed(
        user_endpoint=api.Endpoint(host=endpoint.host, port=endpoint.port),
        active_partitions=_partitions(active, topology, topics),
        standby_partitions=_partitions(member.assigned.standby, topology, topics),
    )


def _partitions(
    tasks: TaskMap, topology: ConfiguredTopology, topics: TopicNames
) -> list[api.TopicPartition]:
    """Return the source partitions of tasks; a topic may have fewer than there are tasks."""
    found = []
    for key, partitions in tasks.items():
        subtopology = (topology.subtopologies or {}).get(key)
        if subtopology is None:
            continue
        for name in (*subtopology.source_topics, *subtopology.repartition_sources):
            count = topics.partition_count(name) or 0
            found.append(api.TopicPartition(topic=name, partitions=list(partitions[:count])))
    return found
