"""A topology configured for the topics of the cluster: counts of tasks, internal topics to create.

A repartition topic has the count that the application gives it, or as many partitions as the
largest source of the subtopology that writes it; in a copartition group all topics have the same
count. A changelog has as many as the largest source of its subtopology.

Kafka: org.apache.kafka.coordinator.group.streams.topics.{InternalTopicManager,
ConfiguredTopology, ConfiguredSubtopology, ConfiguredInternalTopic};
org.apache.kafka.coordinator.group.streams.topics.{RepartitionTopics,
CopartitionedTopicsEnforcer, ChangelogTopics};
org.apache.kafka.common.requests.StreamsGroupHeartbeatResponse.Status,
org.apache.kafka.coordinator.group.streams.topics.TopicConfigurationException.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.coordinator.group.streams.topology import source_names
from ottla.coordinator.runtime.java_hash import in_hash_map_order
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.group.streams.topology import StreamsTopology, Subtopology
    from ottla.protocol.records import streams_group as schemas


class Status(IntEnum):
    """Codes in Kafka's spelling."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class _TopicConfigurationError(Exception):
    """The topics of a topology do not fit: members stay in the group without tasks."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status


class _PartitionCounts:
    """Counts of existing topics, and those decided for topics to be created."""

    def __init__(self, topics: TopicNames) -> None:
        self._topics = topics
        self.decided: dict[str, int] = {}

    def find(self, topic: str) -> int | None:
        """Return the count of a topic; None when it is not known yet."""
        existing = self._topics.partition_count(topic)
        return self.decided.get(topic) if existing is None else existing

    def get(self, topic: str) -> int:
        """Return the count of a topic; an internal error when it is not known."""
        count = self.find(topic)
        if count is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return count

    def largest_source(self, subtopology: Subtopology) -> int:
        """Return the largest count of a subtopology's sources."""
        names = source_names(subtopology)
        if not names:
            text = f"No source topics found for subtopology {subtopology.subtopology_id}"
            raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
        return max(map(self.get, names))


def _decide(topology: StreamsTopology, topics: TopicNames) -> _PartitionCounts:
    """Return the counts of all internal topics of a topology whose sources exist."""
    counts = _PartitionCounts(topics)
    subtopologies = list(topology.subtopologies.values())
    counts.decided.update(_repartition_counts(counts, subtopologies))
    fixed, flexible = _repartition_names(subtopologies)
    for subtopology in subtopologies:
        for group in _copartition_groups(subtopology):
            counts.decided.update(_enforce(counts, group, fixed, flexible))
    for subtopology in subtopologies:
        count = counts.largest_source(subtopology)
        for topic in subtopology.state_changelog_topics:
            counts.decided[topic.name] = count
    return counts


def _repartition_names(subtopologies: Sequence[Subtopology]) -> tuple[list[str], list[str]]:
    """Return the repartition topics with a count of the application's, and those without."""
    all_topics = [
        topic for subtopology in subtopologies for topic in subtopology.repartition_source_topics
    ]
    fixed = dict.fromkeys(topic.name for topic in all_topics if topic.partitions)
    flexible = dict.fromkeys(topic.name for topic in all_topics if not topic.partitions)
    return list(fixed), list(flexible)


def _repartition_counts(
    counts: _PartitionCounts, subtopologies: Sequence[Subtopology]
) -> dict[str, int]:
    found = {
        topic.name: topic.partitions
        for one in subtopologies
        for topic in one.repartition_source_topics
        if topic.partitions
    }
    while True:
        unknown = [
            (one, sink)
            for one in subtopologies
            for sink in one.repartition_sink_topics
            if sink not in found
        ]
        if not unknown:
            break
        before = len(found)
        for subtopology, sink in unknown:
            count = _largest_known(counts, found, subtopology)
            if count is not None:
                found.setdefault(sink, count)
        if len(found) == before:
            _refuse_topology(
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved."
            )
    names = {
        topic.name
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
    }
    if not names <= found.keys():
        _refuse_topology(
            "Failed to compute number of partitions for all repartition topics, "
            "because a repartition source topic is never used as a sink topic."
        )
    return found


def _largest_known(
    counts: _PartitionCounts, found: Mapping[str, int], subtopology: Subtopology
) -> int | None:
    known = [found.get(topic.name) for topic in subtopology.repartition_source_topics]
    known += map(counts.find, subtopology.source_topics)
    return max((count for count in known if count is not None), default=None)


def _refuse_topology(text: str) -> NoReturn:
    raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


def _copartition_groups(subtopology: Subtopology) -> list[list[str]]:
    """Return the topics of each copartition group: it names them by index."""
    repartition = [topic.name for topic in subtopology.repartition_source_topics]
    return [
        list(
            dict.fromkeys(
                (
                    *(_at(subtopology.source_topics, index) for index in group.source_topics),
                    *(_at(repartition, index) for index in group.repartition_source_topics),
                )
            )
        )
        for group in subtopology.copartition_groups
    ]


def _at(names: Sequence[str], index: int) -> str:
    if not 0 <= index < len(names):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return names[index]


def _enforce(
    counts: _PartitionCounts, group: Sequence[str], fixed: Sequence[str], flexible: Sequence[str]
) -> dict[str, int]:
    """Return the counts of a group's repartition topics; raise where its topics differ."""
    if not group:
        return {}
    repartition = {name: counts.get(name) for name in group if name in fixed or name in flexible}
    others = {name: counts.get(name) for name in group if name not in repartition}
    if others:
        count = _same(others.values(), others)
    elif fixed:
        count = _same((counts.get(name) for name in fixed), repartition)
    else:
        count = max(repartition.values())
    for name, own in repartition.items():
        if name in fixed and own != count:
            raise _TopicConfigurationError(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number "
                f"of partitions [{count}] of the source topic.",
            )
    return dict.fromkeys(repartition, count)


def _same(found: Iterable[int], named: Mapping[str, int]) -> int:
    """Return the one count; raise with the named topics where there are several."""
    distinct = set(found)
    if len(distinct) != 1:
        listed = ", ".join(f"{name}={count}" for name, count in sorted(named.items()))
        raise _TopicConfigurationError(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return distinct.pop()


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
    problem: _TopicConfigurationError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether all topics exist with the right counts."""
        return self.problem is None


def configure(topology: StreamsTopology, topics: TopicNames) -> ConfiguredTopology:
    """Configure a topology; raises STREAMS_INVALID_TOPOLOGY for one that never can be."""
    try:
        _check_sources(topology, topics)
        counts = _decide(topology, topics)
        configured = {
            key: _configured(one, counts) for key, one in sorted(topology.subtopologies.items())
        }
        missing = _missing(configured, topics)
    except _TopicConfigurationError as error:
        return ConfiguredTopology(topology.epoch, None, problem=error)
    if not missing:
        return ConfiguredTopology(topology.epoch, configured)
    text = f"Internal topics are missing: {_summary(in_hash_map_order(missing))}"
    problem = _TopicConfigurationError(Status.MISSING_INTERNAL_TOPICS, text)
    return ConfiguredTopology(topology.epoch, configured, missing, problem)


def _check_sources(topology: StreamsTopology, topics: TopicNames) -> None:
    missing = {
        name
        for subtopology in topology.subtopologies.values()
        for name in subtopology.source_topics
        if topics.topic_id(name) is None
    }
    if missing:
        text = f"Source topics {_summary(sorted(missing))} are missing."
        raise _TopicConfigurationError(Status.MISSING_SOURCE_TOPICS, text)


def _summary(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _SHOWN_TOPICS
    suffix = f" and {more} additional topics" if more > 0 else ""
    return ", ".join(listed[:_SHOWN_TOPICS]) + suffix


def _configured(subtopology: Subtopology, counts: _PartitionCounts) -> ConfiguredSubtopology:
    sources = [_internal(topic, counts) for topic in subtopology.repartition_source_topics]
    changelogs = [_internal(topic, counts) for topic in subtopology.state_changelog_topics]
    return ConfiguredSubtopology(
        task_count=counts.largest_source(subtopology),
        source_topics=tuple(sorted(set(subtopology.source_topics))),
        repartition_sources={topic.name: topic for topic in sources},
        repartition_sinks=tuple(sorted(set(subtopology.repartition_sink_topics))),
        changelogs={topic.name: topic for topic in changelogs},
    )


def _internal(topic: schemas.TopicInfo, counts: _PartitionCounts) -> InternalTopic:
    partitions = topic.partitions or counts.decided[topic.name]
    if partitions < 1:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    configs = {config.key: config.value for config in topic.topic_configs}
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _missing(
    configured: Mapping[str, ConfiguredSubtopology], topics: TopicNames
) -> dict[str, InternalTopic]:
    """Return the internal topics to create; raise where one exists with another count."""
    missing = {}
    for subtopology in configured.values():
        for topic in (*subtopology.repartition_sources.values(), *subtopology.changelogs.values()):
            count = topics.partition_count(topic.name)
            if count is None:
                missing[topic.name] = topic
            elif count != topic.partitions:
                raise _TopicConfigurationError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: "
                    f"expected {topic.partitions}, found {count}",
                )
    return missing
