"""The plan of an application: a layout on a cluster, with the number of tasks of each stage.

Kafka: org.apache.kafka.streams.processor.internals.RepartitionTopics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.partition_limits import EQUAL
from ottla.streams.errors import TopologyException
from ottla.streams.patterns import as_text
from ottla.streams.plan.layout import Layout, layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.spark.partition_limits import Limit
    from ottla.streams.plan.layout import Stage
    from ottla.streams.topology import SourceNode, SubTopology, Topology


@dataclass(frozen=True)
class Plan(Layout):
    """A layout with the partitions of its topics."""

    partitions: Mapping[str, int]
    """Of topics of the cluster, and of internal ones."""
    tasks: Mapping[int, int]
    """The number of tasks of each sub-topology; 0 where no topic matches its pattern yet."""

    def task_count(self, stage: Stage) -> int:
        """Return the number of tasks of a stage."""
        return self.tasks[stage.sub_topology.number]

    def partition_limits(self) -> dict[str, Limit]:
        """Return how many partitions topics of a pattern may have, at least and at most.

        Where tasks have state or global tables there are no more of them than at the start, and
        topics that are joined by key have equal numbers.
        """
        limits: dict[str, Limit] = {}
        for part in self.sub_topologies:
            for source in part.sources():
                if source.pattern is None:
                    continue
                joined = _joined_with(self, source)
                count = _partition_count(self, joined, self.partitions)
                if joined and not count:  # none of their topics is there yet
                    limits["|".join(map(self._limited, joined))] = EQUAL
                elif count or (self.tasks[part.number] and self._is_bound(part)):
                    limits[self._limited(source)] = (count or 1, count or self.tasks[part.number])
        return limits

    def patterns_text(self) -> str:
        """Return a pattern of the topics that are read by one, less internal topics."""
        return "|".join(map(self._limited, self.topology.patterns()))

    def _limited(self, source: SourceNode) -> str:
        """Return the text of a source's pattern, less the internal topics that it may match."""
        others = "".join(f"(?!{re.escape(topic)}$)" for topic in self.real_topics.values())
        return others + ("" if source.pattern is None else as_text(source.pattern))

    def _is_bound(self, part: SubTopology) -> bool:
        """Whether a part has state, or global tables, which are in the tasks of the start."""
        return any(
            bool(stage.stores or stage.global_topics)
            for stage in self.stages
            if stage.sub_topology.number == part.number
        )


def plan_for(
    topology: Topology, partitions: Mapping[str, int], noted: Mapping[int, int] | None = None
) -> Plan:
    """Return the plan on a cluster whose topics have these partitions; TopologyException.

    With patterns a checkpoint's numbers of tasks go on, `noted` by sub-topology: more topics do
    not change the internal topics after them, and fewer do not take tasks away.
    """
    base = layout(topology, partitions)
    noted = (noted or {}) if topology.patterns() else {}
    counts, tasks = _counted(base, partitions, noted)
    for stage in base.stages:
        part = next(one for one in base.sub_topologies if one.number == stage.sub_topology.number)
        _check_matched(part, tasks[part.number] or not stage.global_topics)
    _check_joined(base, counts)
    return Plan(**vars(base), partitions=counts, tasks=tasks)


def _counted(
    base: Layout, partitions: Mapping[str, int], noted: Mapping[int, int]
) -> tuple[dict[str, int], dict[int, int]]:
    """Return the partitions of all topics, and the tasks of sub-topologies."""
    internal = base.topology.internal_topics
    counts = dict(partitions)
    tasks: dict[int, int] = {}
    readers = {
        topic: part.number
        for part in base.sub_topologies
        for source in part.sources()
        for topic in source.topics
    }
    for part in base.sub_topologies:
        tasks[part.number] = _task_count(base, part, counts, noted.get(part.number, 0))
        for sink in base.topology.sinks():
            name = str(sink.topic)
            if sink in part.nodes and name in internal:
                before = noted.get(readers.get(name, -1), 0)
                counts[name] = internal[name] or before or tasks[part.number]
                _check_matched(part, counts[name])
    for part in base.sub_topologies:
        for source in part.sources():
            for topic in source.topics:  # co-partitioned: as many as its partners have
                if internal.get(topic, 0) is None:
                    counts[topic] = tasks[part.number]
    return counts, tasks


def _task_count(base: Layout, part: SubTopology, counts: Mapping[str, int], noted: int) -> int:
    """Return the highest number of partitions of the topics that a sub-topology reads."""
    highest = _partition_count(base, part.sources(), counts)
    if any(source.pattern is not None for source in part.sources()):
        return max(highest, noted)
    return highest or 1


def _partition_count(base: Layout, sources: Iterable[SourceNode], counts: Mapping[str, int]) -> int:
    """Return the highest number of partitions of sources' topics; 0 where there is no topic."""
    topics = [topic for source in sources for topic in base.topics_of(source)]
    return max((counts.get(topic, 0) for topic in topics), default=0)


def _check_matched(part: SubTopology, count: int) -> None:
    """Raise TopologyException where a number of partitions is needed, and no topic matches."""
    if not count:
        names = ", ".join(source.topics_text for source in part.sources() if source.pattern)
        raise TopologyException(
            "Failed to compute number of partitions for all repartition topics and global "
            f"tables: no topic matches {names}; create one, or use "
            "repartition(Repartitioned(partitions=...))"
        )


def _joined_with(base: Layout, source: SourceNode) -> list[SourceNode]:
    """Return the sources whose topics are joined by key with those of one, itself included."""
    for nodes in base.topology.joined:
        sources = [other for node in nodes for other in base.topology.sources_of(node)]
        if source in sources:
            return sources
    return []


def _check_joined(base: Layout, counts: Mapping[str, int]) -> None:
    """Raise TopologyException where records of a key that meet would be in several tasks."""
    for nodes in base.topology.joined:
        sources = [source for node in nodes for source in base.topology.sources_of(node)]
        topics = {topic for source in sources for topic in base.topics_of(source)}
        found = {topic: counts.get(topic) for topic in sorted(topics)}
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{name}: {count}" for name, count in found.items())
            raise TopologyException(
                f"Following topics do not have the same number of partitions: {listed}. They "
                "are joined by key: use repartition(Repartitioned(partitions=...))"
            )
