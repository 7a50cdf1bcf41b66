"""A topology as a chain of stages and paths of columns, as Spark runs them in a micro-batch.

Kafka: org.apache.kafka.streams.processor.internals.{TaskManager, RepartitionTopics}.

A sub-topology is one stage, or several with paths of columns between them (`columns.paths`). A
stage's records to an internal topic go to a later stage in the same micro-batch. Where
sub-topologies form a circle (a foreign-key join), one of its topics is a real one, named as in
Kafka, and is read in the next micro-batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.spark.partition_limits import EQUAL
from ottla.streams.errors import StreamsException, TopologyException
from ottla.streams.patterns import as_text, matching
from ottla.streams.plan.paths import Entry, Path, split
from ottla.streams.run.task import nodes_of_task, unknown_count
from ottla.streams.topology import ProcessorNode, SinkNode, SourceNode, SubTopology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.spark.partition_limits import Limit
    from ottla.streams.columns.combining import Input
    from ottla.streams.columns.operators import TypedInput
    from ottla.streams.plan.paths import Edge
    from ottla.streams.topology import Node, Topology


OUTPUT: Final = -1
"""The number of no stage: the address of rows that leave the query."""
DIGEST: Final = -2
"""The address of rows that are no records: what a stage has changed in its state, as a digest."""
FIRST_PORT: Final = 1000
"""Ports of entries are numbered from here, steps below it."""


@dataclass
class Stage:
    """The functions of a sub-topology, or of one level of it."""

    number: int
    part: SubTopology
    nodes: list[Node]
    stores: list[str]
    topics: list[str]
    global_topics: list[str]
    patterns: list[SourceNode] = field(default_factory=list)
    """The sources of patterns, whose topics are not in `topics`."""
    tasks: int = 1
    entries: dict[int, Entry] = field(default_factory=dict)
    """Where records come in from paths, by port."""
    exits: dict[Edge, list[int]] = field(default_factory=dict)
    """The ports of the paths that begin between two nodes."""
    serdes: dict[int, TypedInput] = field(default_factory=dict)
    """What is written at a port of `exits`."""

    inputs: list[Input] = field(default_factory=list)
    """What is combined before it comes in, if all is (`columns.combining`)."""

    def exits_with_serdes(self) -> dict[Edge, list[tuple[int, TypedInput]]]:
        """Return the exits with what is written there."""
        return {
            edge: [(port, self.serdes[port]) for port in ports]
            for edge, ports in self.exits.items()
        }

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
        return any(isinstance(one, ProcessorNode) and one.is_of_user for one in self.nodes)


@dataclass
class StagePlan:
    """The stages in their order, where internal topics lead, and which of them are real."""

    topology: Topology
    stages: list[Stage]
    steps: list[Stage | Path] = field(default_factory=list)
    """Stages and paths in the order of the chain."""
    targets: dict[str, list[int]] = field(default_factory=dict)
    """The steps that read an internal topic."""
    real_topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)

    parts: list[tuple[SubTopology, Stage | None]] = field(default_factory=list)
    """Sub-topologies, with their stages."""
    matched: dict[str, list[str]] = field(default_factory=dict)
    """The topics that the patterns of sources match, by the names of the sources."""
    tasks: dict[int, int] = field(default_factory=dict)
    """The number of tasks of each sub-topology; 0 where no topic matches its pattern yet."""
    find_count: Callable[[str], int | None] = unknown_count
    """Finds the number of partitions of a topic that a function names."""

    def readers(self, topic: str) -> list[int]:
        """Return the addresses of rows for a topic: the steps that read an internal one."""
        return [OUTPUT] if topic in self.real_topics else self.targets.get(topic, [OUTPUT])

    def paths(self) -> list[Path]:
        """Return the paths of columns."""
        return [one for one in self.steps if isinstance(one, Path)]

    def source_topics(self) -> list[str]:
        """Return the topics that the query reads from the cluster."""
        internal = self.topology.internal_topics
        given = [name for name in self.topology.source_topics() if name not in internal]
        found = [name for names in self.matched.values() for name in names]
        return [*given, *found, *self.real_topics.values()]

    def match(self, names: Iterable[str]) -> None:
        """Find the topics of patterns; TopologyException for one that several patterns match."""
        named = {*self.topology.source_topics(), *self.real_topics.values()}
        sources = self.topology.patterns()
        self.matched = {source.name: [] for source in sources}
        for name in sorted(set(names) - named):
            if found := matching(name, sources):
                self.matched[found.name].append(name)

    def topics_of(self, source: SourceNode) -> list[str]:
        """Return the topics of a source, with those that its pattern matches now."""
        return [*source.topics, *self.matched.get(source.name, ())]

    def spread(self, partitions: Mapping[str, int], noted: Mapping[int, int] | None = None) -> None:
        """Set each stage's number of tasks from the partitions of the topics it reads.

        With patterns a checkpoint's numbers go on, `noted` by sub-topology: more topics do not
        change the internal topics after them, and fewer do not take tasks away.
        """
        noted = (noted or {}) if self.topology.patterns() else {}
        self.partitions = dict(partitions)
        internal = self.topology.internal_topics
        readers = {
            topic: part.number
            for part, _ in self.parts
            for source in part.sources()
            for topic in source.topics
        }
        tasks = self.tasks
        parts = {part.number: part for part, _ in self.parts}
        for number, part in parts.items():
            tasks[number] = self._tasks(part, noted.get(number, 0))
            for sink in self.topology.sinks():
                if sink in part.nodes and str(sink.topic) in internal:
                    name = str(sink.topic)
                    before = noted.get(readers.get(name, -1), 0)
                    self.partitions[name] = internal[name] or before or tasks[number]
                    self._check_matched(part, self.partitions[name])
        for number, part in parts.items():
            for source in part.sources():
                for topic in source.topics:  # co-partitioned: as many as its partners have
                    if internal.get(topic, 0) is None:
                        self.partitions[topic] = tasks[number]
        for part, stage in self.parts:
            if stage is not None:
                stage.tasks = tasks[part.number]
                self._check_matched(part, stage.tasks or not stage.global_topics)
        self._check_joined()

    def _tasks(self, part: SubTopology, noted: int) -> int:
        topics = [topic for source in part.sources() for topic in self.topics_of(source)]
        found = max((self.partitions.get(one, 0) for one in topics), default=0)
        if any(source.pattern is not None for source in part.sources()):
            return max(found, noted)
        return found or 1

    def _check_matched(self, part: SubTopology, count: int) -> None:
        """Raise TopologyException where a number of partitions is needed, and no topic matches."""
        if not count:
            names = ", ".join(one.topics_text for one in part.sources() if one.pattern)
            raise TopologyException(
                "Failed to compute number of partitions for all repartition topics and global "
                f"tables: no topic matches {names}; create one, or use "
                "repartition(Repartitioned(partitions=...))"
            )

    def partition_limits(self) -> dict[str, Limit]:
        """Return how many partitions topics of a pattern may have, at least and at most.

        Where tasks have state or global tables there are no more of them than at the start, and
        topics that are joined by key have equal numbers.
        """
        found: dict[str, Limit] = {}
        for part in {part.number: part for part, _ in self.parts}.values():
            for source in part.sources():
                if source.pattern is None:
                    continue
                joined = self._joined_with(source)
                count = self._joined_count(joined)
                if joined and not count:  # none of their topics is there yet
                    found["|".join(map(self._limited, joined))] = EQUAL
                elif count or (self.tasks[part.number] and self._is_bound(part)):
                    found[self._limited(source)] = (count or 1, count or self.tasks[part.number])
        return found

    def patterns_text(self) -> str:
        """Return a pattern of the topics that are read by one, less internal topics."""
        return "|".join(map(self._limited, self.topology.patterns()))

    def _limited(self, source: SourceNode) -> str:
        """Return the text of a source's pattern, less the internal topics that it may match."""
        others = "".join(f"(?!{re.escape(one)}$)" for one in self.real_topics.values())
        return others + ("" if source.pattern is None else as_text(source.pattern))

    def _is_bound(self, part: SubTopology) -> bool:
        """Whether a part has state, or global tables, which are in the tasks of the start."""
        return any(
            bool(stage.stores or stage.global_topics)
            for one, stage in self.parts
            if stage is not None and one.number == part.number
        )

    def _joined_with(self, source: SourceNode) -> list[SourceNode]:
        """Return the sources whose topics are joined by key with those of one, which is in it."""
        for nodes in self.topology.joined:
            sources = [one for node in nodes for one in self.topology.sources_of(node)]
            if source in sources:
                return sources
        return []

    def _joined_count(self, sources: Iterable[SourceNode]) -> int:
        """Return the partitions of topics that are joined by key; 0 where there is no topic."""
        topics = [topic for one in sources for topic in self.topics_of(one)]
        return max((self.partitions.get(one, 0) for one in topics), default=0)

    def _check_joined(self) -> None:
        """Raise TopologyException where records of a key that meet would be in several tasks."""
        for nodes in self.topology.joined:
            sources = [one for node in nodes for one in self.topology.sources_of(node)]
            topics = {topic for one in sources for topic in self.topics_of(one)}
            counts = {one: self.partitions.get(one) for one in sorted(topics)}
            if len(set(counts.values())) > 1:
                listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
                raise TopologyException(
                    f"Following topics do not have the same number of partitions: {listed}. They "
                    "are joined by key: use repartition(Repartitioned(partitions=...))"
                )


def plan_stages(topology: Topology) -> StagePlan:
    """Return the chain of a topology; StreamsException for one without a source."""
    parts = [one for one in topology.sub_topologies() if one.sources() and not one.is_global]
    if not parts:
        raise StreamsException("Topology has no stream threads and no global threads")
    plan = StagePlan(topology, [])
    for part in _ordered(topology, parts):
        _add(plan, part)
    _connect_ports(plan)
    return _connected(plan)


def _add(plan: StagePlan, part: SubTopology) -> None:
    """Add the steps of a sub-topology: paths from topics, a level of functions, its paths, …."""
    levels, paths = split(plan.topology, part)
    plan.parts += [(part, None)]
    for level in range(-1, len(levels)):
        if level >= 0:
            stage = _stage(plan, part, levels[level])
            plan.stages.append(stage)
            plan.steps.append(stage)
            plan.parts.append((part, stage))
        for path in paths:
            if path.level == level:
                path.number = len(plan.steps)
                plan.steps.append(path)


def _stage(plan: StagePlan, part: SubTopology, members: list[Node]) -> Stage:
    own_part = SubTopology(part.number, members)
    nodes = nodes_of_task(plan.topology, own_part)
    sources = [one for one in nodes if isinstance(one, SourceNode)]
    own = [topic for one in sources if not one.is_global for topic in one.topics]
    shared = [topic for one in sources if one.is_global for topic in one.topics]
    stores: dict[str, None] = {}
    for node in nodes:
        stores.update(dict.fromkeys(getattr(node, "stores", ())))
    patterns = [one for one in sources if one.pattern is not None]
    return Stage(len(plan.steps), own_part, nodes, sorted(stores), own, shared, patterns)


def _connect_ports(plan: StagePlan) -> None:
    """Give numbers to the places where paths begin and end at stages."""
    at = {node.name: stage for stage in plan.stages for node in stage.part.nodes}
    port = FIRST_PORT
    for path in plan.paths():
        if isinstance(path.end, Entry):
            path.end.port = port
            at[path.end.child].entries[port] = path.end
            port += 1
        if path.source is None:
            at[path.edge[0]].exits.setdefault(path.edge, []).append(path.number)


def _connected(plan: StagePlan) -> StagePlan:
    """Find where internal topics lead, and those that lead back."""
    topology = plan.topology
    for step in plan.steps:
        for topic in step.topics:
            if topic in topology.internal_topics:
                plan.targets.setdefault(topic, []).append(step.number)
    for step in plan.steps:
        ends = [step.end] if isinstance(step, Path) else step.part.nodes
        for node in ends:
            if isinstance(node, SinkNode) and node.topic in topology.internal_topics:
                topic = str(node.topic)
                if min(plan.targets.get(topic, [-1])) <= step.number:
                    plan.real_topics[topic] = f"{topology.config.application_id}-{topic}"
    return plan


def _ordered(topology: Topology, parts: list[SubTopology]) -> list[SubTopology]:
    """Return sub-topologies so that those they read from come first, where that is possible."""
    writers: dict[str, set[int]] = {}
    for part in parts:
        for node in part.nodes:
            if isinstance(node, SinkNode) and node.topic in topology.internal_topics:
                writers.setdefault(str(node.topic), set()).add(part.number)
    found: list[SubTopology] = []
    left = {part.number: part for part in parts}
    while left:
        ready = [
            part
            for part in left.values()
            if not any(
                writers.get(topic, set()) & (left.keys() - {part.number})
                for source in part.sources()
                for topic in source.topics
            )
        ]
        chosen = (ready or list(left.values()))[0]
        found.append(left.pop(chosen.number))
    return found
