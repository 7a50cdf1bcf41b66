"""The plan of a topology on a cluster: stages and paths of columns, their partitions and tasks.

Kafka: org.apache.kafka.streams.processor.internals.{InternalTopologyBuilder, RepartitionTopics}.

A sub-topology is one stage, or several with paths of columns between them (`plan.paths`). A
stage's records to an internal topic go to a later stage in the same micro-batch. Where
sub-topologies form a circle (a foreign-key join), one of its topics is a real one, named as in
Kafka, and is read in the next micro-batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ottla.spark.options import EQUAL
from ottla.streams.errors import StreamsException, TopologyException
from ottla.streams.plan.paths import Entry, Path, split
from ottla.streams.topology.topology import (
    ProcessorNode,
    SinkNode,
    SourceNode,
    SubTopology,
    as_text,
    matching,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.spark.options import Limit
    from ottla.streams.plan.paths import Edge
    from ottla.streams.topology.topology import Node, Topology


OUTPUT: Final = -1
"""The number of no stage: the address of rows that leave the query."""
DIGEST: Final = -2
"""The address of rows that are no records: the digest of a stage's changes to its state."""
FIRST_PORT: Final = 1000
"""Ports of entries are numbered from here, steps below it."""
FLOW: Final = (
    "stage int, task int, origin int, topic string, partition int, offset bigint, key binary, "
    "value binary, timestamp bigint, headers array<struct<key:string,value:binary>>"
)
"""Spark's schema of the rows between steps: an address, then a record."""
FIELDS: Final = tuple(part.split()[0] for part in FLOW.split(", "))


@dataclass(frozen=True)
class Stage:
    """The functions of a sub-topology, or of one level of it."""

    number: int
    sub_topology: SubTopology
    """Its own nodes, under the number of the whole sub-topology."""
    nodes: tuple[Node, ...]
    """Its own nodes, and those that fill the global stores it reads."""
    stores: tuple[str, ...]
    topics: tuple[str, ...]
    global_topics: tuple[str, ...]
    patterns: tuple[SourceNode, ...] = ()
    """The sources of patterns, whose topics are not in `topics`."""
    entries: Mapping[int, Entry] = field(default_factory=dict)
    """Where records come in from paths, by port."""
    exits: Mapping[Edge, tuple[int, ...]] = field(default_factory=dict)
    """The numbers of the paths that begin between two nodes."""

    def state_name(self, store: str) -> str:
        """Return the name of Spark's state variable for a store."""
        return f"store{self.stores.index(store)}"

    @property
    def addresses(self) -> list[int]:
        """The numbers by which rows are addressed to it."""
        return [self.number, *self.entries]

    @property
    def is_stateful(self) -> bool:
        """Whether it has stores, or processors of users, who may schedule punctuations."""
        return bool(self.stores) or self.has_users

    @property
    def has_users(self) -> bool:
        """Whether it has processors of users."""
        return any(isinstance(node, ProcessorNode) and node.is_of_user for node in self.nodes)


Step = Stage | Path


@dataclass(frozen=True)
class Layout:
    """The steps of a topology in their order, and where internal topics lead."""

    topology: Topology
    sub_topologies: tuple[SubTopology, ...]
    """Those with sources that are not global, in the order of their steps."""
    steps: tuple[Step, ...]
    targets: Mapping[str, tuple[int, ...]]
    """The steps that read an internal topic."""
    real_topics: Mapping[str, str]
    """The names in the cluster of internal topics that the next micro-batch reads."""
    matched: Mapping[str, tuple[str, ...]]
    """The topics that the patterns of sources match, by the names of the sources."""

    @property
    def stages(self) -> list[Stage]:
        """The stages in their order."""
        return [step for step in self.steps if isinstance(step, Stage)]

    @property
    def paths(self) -> list[Path]:
        """The paths of columns in their order."""
        return [step for step in self.steps if isinstance(step, Path)]

    def readers(self, topic: str) -> Sequence[int]:
        """Return the addresses of rows for a topic: the steps that read an internal one."""
        return [OUTPUT] if topic in self.real_topics else self.targets.get(topic, [OUTPUT])

    def source_topics(self) -> list[str]:
        """Return the topics that the query reads from the cluster."""
        internal = self.topology.internal_topics
        named = [name for name in self.topology.source_topics() if name not in internal]
        matched = [name for names in self.matched.values() for name in names]
        return [*named, *matched, *self.real_topics.values()]

    def topics_of(self, source: SourceNode) -> list[str]:
        """Return the topics of a source, with those that its pattern matches."""
        return [*source.topics, *self.matched.get(source.name, ())]


def layout(topology: Topology, topics: Iterable[str] = ()) -> Layout:
    """Return the layout of a topology on a cluster with these topics.

    StreamsException for a topology without a source, TopologyException for a topic that several
    patterns match.
    """
    unordered = [
        part for part in topology.sub_topologies() if part.sources() and not part.is_global
    ]
    if not unordered:
        raise StreamsException("Topology has no stream threads and no global threads")
    sub_topologies = _ordered(topology, unordered)
    steps: list[Step] = []
    for sub_topology in sub_topologies:
        steps += _steps(topology, sub_topology, len(steps))
    steps = _with_ports(steps)
    targets: dict[str, tuple[int, ...]] = {}
    for step in steps:
        for topic in step.topics:
            if topic in topology.internal_topics:
                targets[topic] = (*targets.get(topic, ()), step.number)
    real_topics = _real_topics(topology, steps, targets)
    matched = _matched(topology, topics, real_topics.values())
    return Layout(topology, tuple(sub_topologies), tuple(steps), targets, real_topics, matched)


def _matched(
    topology: Topology, topics: Iterable[str], real_topics: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    sources = topology.patterns()
    matched: dict[str, tuple[str, ...]] = {source.name: () for source in sources}
    for topic in sorted({*topics} - {*topology.source_topics(), *real_topics}):
        if source := matching(topic, sources):
            matched[source.name] = (*matched[source.name], topic)
    return matched


def _steps(topology: Topology, sub_topology: SubTopology, first: int) -> list[Step]:
    """Return the steps of a sub-topology: paths from topics, a level of functions, its paths, …."""
    levels, paths = split(topology, sub_topology)
    steps: list[Step] = []
    for level in range(-1, len(levels)):
        if level >= 0:
            own = SubTopology(sub_topology.number, levels[level])
            steps.append(_stage(topology, own, first + len(steps)))
        for path in paths:
            if path.level == level:
                steps.append(replace(path, number=first + len(steps)))
    return steps


def _stage(topology: Topology, own: SubTopology, number: int) -> Stage:
    nodes = nodes_of_task(topology, own)
    sources = [node for node in nodes if isinstance(node, SourceNode)]
    stores = {store for node in nodes for store in getattr(node, "stores", ())}
    return Stage(
        number,
        own,
        tuple(nodes),
        tuple(sorted(stores)),
        tuple(topic for node in sources if not node.is_global for topic in node.topics),
        tuple(topic for node in sources if node.is_global for topic in node.topics),
        tuple(node for node in sources if node.pattern is not None),
    )


def _with_ports(steps: list[Step]) -> list[Step]:
    """Return the steps with numbers at the ends of paths, and with the paths at their stages."""
    port = FIRST_PORT
    numbered: list[Step] = []
    entries: dict[str, dict[int, Entry]] = {}
    exits: dict[Edge, tuple[int, ...]] = {}
    for step in steps:
        if isinstance(step, Path):
            if isinstance(step.end, Entry):
                entry = replace(step.end, port=port)
                entries.setdefault(entry.child, {})[port] = entry
                step = replace(step, end=entry)  # noqa: PLW2901 - the same path
                port += 1
            if step.source is None:
                exits[step.edge] = (*exits.get(step.edge, ()), step.number)
        numbered.append(step)
    return [
        step if isinstance(step, Path) else _connected(step, entries, exits) for step in numbered
    ]


def _connected(
    stage: Stage, entries: Mapping[str, dict[int, Entry]], exits: Mapping[Edge, tuple[int, ...]]
) -> Stage:
    names = {node.name for node in stage.sub_topology.nodes}
    own = [entry for name in names for entry in entries.get(name, {}).values()]
    return replace(
        stage,
        entries={entry.port: entry for entry in sorted(own, key=lambda entry: entry.port)},
        exits={edge: paths for edge, paths in exits.items() if edge[0] in names},
    )


def _real_topics(
    topology: Topology, steps: Iterable[Step], targets: Mapping[str, tuple[int, ...]]
) -> dict[str, str]:
    """Return the names of internal topics that lead back to an earlier step."""
    real_topics: dict[str, str] = {}
    for step in steps:
        for node in [step.end] if isinstance(step, Path) else step.sub_topology.nodes:
            if isinstance(node, SinkNode) and node.topic in topology.internal_topics:
                topic = str(node.topic)
                if min(targets.get(topic, [-1])) <= step.number:
                    real_topics[topic] = f"{topology.config.application_id}-{topic}"
    return real_topics


def nodes_of_task(topology: Topology, part: SubTopology) -> list[Node]:
    """Return the nodes of a sub-topology, with those that fill the global stores it reads.

    Processors of users may read all of them.
    """
    nodes = list(part.nodes)
    needed = topology.global_stores()
    if not any(isinstance(node, ProcessorNode) and node.is_of_user for node in nodes):
        needed &= set(part.stores())
    for other in topology.sub_topologies():
        if other.is_global and needed & set(other.stores()) and other.number != part.number:
            nodes += other.nodes
    return nodes


def _ordered(topology: Topology, unordered: list[SubTopology]) -> list[SubTopology]:
    """Return sub-topologies so that those they read from come first, where that is possible."""
    writers: dict[str, set[int]] = {}
    for part in unordered:
        for node in part.nodes:
            if isinstance(node, SinkNode) and node.topic in topology.internal_topics:
                writers.setdefault(str(node.topic), set()).add(part.number)
    ordered: list[SubTopology] = []
    remaining = {part.number: part for part in unordered}
    while remaining:
        ready = [
            part
            for part in remaining.values()
            if not any(
                writers.get(topic, set()) & (remaining.keys() - {part.number})
                for source in part.sources()
                for topic in source.topics
            )
        ]
        chosen = (ready or list(remaining.values()))[0]
        ordered.append(remaining.pop(chosen.number))
    return ordered


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
