"""A topology as a chain of stages and paths of columns, as Spark runs them in a micro-batch.

Kafka: org.apache.kafka.streams.processor.internals.{TaskManager, RepartitionTopics}.

A sub-topology is one stage, or several with paths of columns between them (`columns.paths`). A
stage's records to an internal topic go to a later stage in the same micro-batch. Where
sub-topologies form a circle (a foreign-key join), one of its topics is a real one, named as in
Kafka, and is read in the next micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.streams.columns.paths import Entry, Path, split
from ottla.streams.errors import StreamsException, TopologyException
from ottla.streams.task import nodes_of_task
from ottla.streams.topology import ProcessorNode, SinkNode, SourceNode, SubTopology

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.streams.columns.combining import Input
    from ottla.streams.columns.operators import TypedInput
    from ottla.streams.columns.paths import Edge
    from ottla.streams.topology import Node, Topology


OUTPUT: Final = -1
"""The number of no stage: the address of rows that leave the query."""
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
        return [*given, *self.real_topics.values()]

    def spread(self, partitions: Mapping[str, int]) -> None:
        """Set each stage's number of tasks from the partitions of the topics it reads."""
        self.partitions = dict(partitions)
        internal = self.topology.internal_topics
        tasks: dict[int, int] = {}
        parts = {part.number: part for part, _ in self.parts}
        for number, part in parts.items():
            topics = [topic for source in part.sources() for topic in source.topics]
            tasks[number] = max((self.partitions.get(one, 0) for one in topics), default=0) or 1
            for sink in self.topology.sinks():
                if sink in part.nodes and str(sink.topic) in internal:
                    name = str(sink.topic)
                    self.partitions[name] = internal[name] or tasks[number]
        for number, part in parts.items():
            for source in part.sources():
                for topic in source.topics:  # co-partitioned: as many as its partners have
                    if internal.get(topic, 0) is None:
                        self.partitions[topic] = tasks[number]
        for part, stage in self.parts:
            if stage is not None:
                stage.tasks = tasks[part.number]
        self._check_joined()

    def _check_joined(self) -> None:
        """Raise TopologyException where records of a key that meet would be in several tasks."""
        for nodes in self.topology.joined:
            topics = set().union(*(self.topology.topics_of(one) for one in nodes))
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
    return Stage(len(plan.steps), own_part, nodes, sorted(stores), own, shared)


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
