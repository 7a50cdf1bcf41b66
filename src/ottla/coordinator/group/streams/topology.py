"""The topology of a streams application, as its members send it.

Kafka: org.apache.kafka.coordinator.group.streams.StreamsTopology,
StreamsCoordinatorRecordHelpers.convertToStreamsGroupTopologyRecord.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records import streams_group as schemas

if TYPE_CHECKING:
    from ottla.protocol.apis import streams_group_heartbeat as api

Subtopology = schemas.StreamsGroupTopologyValue.Subtopology


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """The subtopologies by id; source_topics has the subtopology that reads a topic.

    required_topics are the topics that are read, and the changelogs.
    """

    epoch: int
    subtopologies: dict[str, Subtopology]
    source_topics: dict[str, str] = field(init=False, compare=False)
    required_topics: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        sources = {
            topic: subtopology.subtopology_id
            for subtopology in self.subtopologies.values()
            for topic in source_names(subtopology)
        }
        changelogs = frozenset(
            topic.name
            for subtopology in self.subtopologies.values()
            for topic in subtopology.state_changelog_topics
        )
        object.__setattr__(self, "source_topics", sources)
        object.__setattr__(self, "required_topics", changelogs.union(sources))


def source_names(subtopology: Subtopology) -> list[str]:
    """Return the topics that a subtopology reads: of others, and for repartitioning."""
    repartition = [topic.name for topic in subtopology.repartition_source_topics]
    return [*subtopology.source_topics, *repartition]


def from_record(value: schemas.StreamsGroupTopologyValue) -> StreamsTopology:
    """Return the topology of a record; two subtopologies of one id are an error."""
    by_id = {subtopology.subtopology_id: subtopology for subtopology in value.subtopologies}
    if len(by_id) != len(value.subtopologies):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return StreamsTopology(value.epoch, by_id)


def to_record(
    topology: api.StreamsGroupHeartbeatRequest.Topology,
) -> schemas.StreamsGroupTopologyValue:
    """Return the record of a request's topology."""
    return schemas.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=subtopology.subtopology_id,
                source_topics=list(subtopology.source_topics),
                source_topic_regex=list(subtopology.source_topic_regex),
                state_changelog_topics=[
                    _topic(topic) for topic in subtopology.state_changelog_topics
                ],
                repartition_sink_topics=list(subtopology.repartition_sink_topics),
                repartition_source_topics=[
                    _topic(topic) for topic in subtopology.repartition_source_topics
                ],
                copartition_groups=[
                    Subtopology.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in subtopology.copartition_groups
                ],
            )
            for subtopology in topology.subtopologies
        ],
    )


def _topic(topic: api.TopicInfo) -> schemas.TopicInfo:
    return schemas.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[
            schemas.TopicConfig(key=config.key, value=config.value)
            for config in topic.topic_configs
        ],
    )
