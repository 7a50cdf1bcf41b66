"""A topology configured for the topics of the cluster: counts of tasks, internal topics to create.

Kafka: org.apache.kafka.coordinator.group.streams.topics.{InternalTopicManager,
ConfiguredTopology, ConfiguredSubtopology, ConfiguredInternalTopic}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.streams.partition_counts import decide
from ottla.coordinator.group.streams.status import Status, TopicConfigurationError
from ottla.coordinator.runtime.java_hash import in_hash_map_order
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.group.streams.partition_counts import PartitionCounts
    from ottla.coordinator.group.streams.topology import StreamsTopology, Subtopology
    from ottla.protocol.records import streams_group as schemas

_SHOWN_TOPICS: Final = 3


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic; replication factor 0 leaves it to the broker."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose counts are known."""

    task_count: int
    source_topics: tuple[str, ...]
    repartition_sources: Mapping[str, InternalTopic]
    repartition_sinks: tuple[str, ...]
    changelogs: Mapping[str, InternalTopic]


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with what its topics allow; ready where problem is None.

    subtopologies is None where they could not be configured.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: Mapping[str, InternalTopic] = field(default_factory=dict)
    problem: TopicConfigurationError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether all topics exist with the right counts."""
        return self.problem is None


def configure(topology: StreamsTopology, topics: TopicNames) -> ConfiguredTopology:
    """Configure a topology; raises STREAMS_INVALID_TOPOLOGY for one that never can be."""
    try:
        _check_sources(topology, topics)
        counts = decide(topology, topics)
        configured = {
            key: _configured(one, counts) for key, one in sorted(topology.subtopologies.items())
        }
        missing = _missing(configured, topics)
    except TopicConfigurationError as error:
        return ConfiguredTopology(topology.epoch, None, problem=error)
    if not missing:
        return ConfiguredTopology(topology.epoch, configured)
    text = f"Internal topics are missing: {_summary(in_hash_map_order(missing))}"
    problem = TopicConfigurationError(Status.MISSING_INTERNAL_TOPICS, text)
    return ConfiguredTopology(topology.epoch, configured, missing, problem)


def _check_sources(topology: StreamsTopology, topics: TopicNames) -> None:
    missing = {
        name
        for one in topology.subtopologies.values()
        for name in one.source_topics
        if topics.topic_id(name) is None
    }
    if missing:
        text = f"Source topics {_summary(sorted(missing))} are missing."
        raise TopicConfigurationError(Status.MISSING_SOURCE_TOPICS, text)


def _summary(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _SHOWN_TOPICS
    suffix = f" and {more} additional topics" if more > 0 else ""
    return ", ".join(listed[:_SHOWN_TOPICS]) + suffix


def _configured(subtopology: Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    sources = [_internal(topic, counts) for topic in subtopology.repartition_source_topics]
    changelogs = [_internal(topic, counts) for topic in subtopology.state_changelog_topics]
    return ConfiguredSubtopology(
        task_count=counts.largest_source(subtopology),
        source_topics=tuple(sorted(set(subtopology.source_topics))),
        repartition_sources={topic.name: topic for topic in sources},
        repartition_sinks=tuple(sorted(set(subtopology.repartition_sink_topics))),
        changelogs={topic.name: topic for topic in changelogs},
    )


def _internal(topic: schemas.TopicInfo, counts: PartitionCounts) -> InternalTopic:
    partitions = topic.partitions or counts.decided[topic.name]
    if partitions < 1:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    configs = {one.key: one.value for one in topic.topic_configs}
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _missing(
    configured: Mapping[str, ConfiguredSubtopology], topics: TopicNames
) -> dict[str, InternalTopic]:
    """Return the internal topics to create; raise where one exists with another count."""
    missing = {}
    for one in configured.values():
        for topic in (*one.repartition_sources.values(), *one.changelogs.values()):
            found = topics.partition_count(topic.name)
            if found is None:
                missing[topic.name] = topic
            elif found != topic.partitions:
                raise TopicConfigurationError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: "
                    f"expected {topic.partitions}, found {found}",
                )
    return missing
