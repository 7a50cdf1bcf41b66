"""A topology as a chain of stages, one for each sub-topology, as Spark runs them in a micro-batch.

Kafka: org.apache.kafka.streams.processor.internals.{TaskManager, RepartitionTopics}.

A stage's records to an internal topic go to a later stage in the same micro-batch. Where
sub-topologies form a circle (a foreign-key join), one of its topics is a real one, named as in
Kafka, and is read in the next micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.streams.errors import StreamsException
from ottla.streams.processor import Processor
from ottla.streams.task import nodes_of_task
from ottla.streams.topology import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.streams.topology import Node, SubTopology, Topology


@dataclass
class Stage:
    """A sub-topology in the order of the chain."""

    number: int
    part: SubTopology
    nodes: list[Node]
    stores: list[str]
    topics: list[str]
    global_topics: list[str]
    tasks: int = 1

    @property
    def is_stateful(self) -> bool:
        """Whether it has stores, or processors of users, who may schedule punctuations."""
        users = [
            one
            for one in self.nodes
            if isinstance(one, ProcessorNode) and not isinstance(one.supplier, Processor)
        ]
        return bool(self.stores or users)


@dataclass
class StagePlan:
    """The stages in their order, where internal topics lead, and which of them are real."""

    topology: Topology
    stages: list[Stage]
    targets: dict[str, int] = field(default_factory=dict)
    real_topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)

    def source_topics(self) -> list[str]:
        """Return the topics that the query reads from the cluster."""
        internal = self.topology.internal_topics
        given = [name for name in self.topology.source_topics() if name not in internal]
        return [*given, *self.real_topics.values()]

    def spread(self, partitions: Mapping[str, int]) -> None:
        """Set each stage's number of tasks from the partitions of the topics it reads."""
        self.partitions = dict(partitions)
        for stage in self.stages:
            found = [self.partitions.get(topic, 0) for topic in stage.topics]
            stage.tasks = max(found, default=0) or 1
            for sink in self.topology.sinks():
                given = self.topology.internal_topics.get(str(sink.topic))
                if sink in stage.nodes and str(sink.topic) in self.topology.internal_topics:
                    self.partitions[str(sink.topic)] = given or stage.tasks
        for stage in self.stages:  # co-partitioned: an internal topic has what its partners have
            for topic in stage.topics:
                if self.topology.internal_topics.get(topic, 0) is None:
                    self.partitions[topic] = stage.tasks


def plan_stages(topology: Topology) -> StagePlan:
    """Return the chain of a topology; StreamsException for one without a source."""
    parts = [one for one in topology.sub_topologies() if one.sources() and not one.is_global]
    if not parts:
        raise StreamsException("Topology has no stream threads and no global threads")
    stages: list[Stage] = []
    for part in _ordered(topology, parts):
        nodes = nodes_of_task(topology, part)
        sources = [one for one in nodes if isinstance(one, SourceNode)]
        own = [topic for one in sources if not one.is_global for topic in one.topics]
        shared = [topic for one in sources if one.is_global for topic in one.topics]
        stores: dict[str, None] = {}
        for node in nodes:
            stores.update(dict.fromkeys(getattr(node, "stores", ())))
        stages.append(Stage(len(stages), part, nodes, sorted(stores), own, shared))
    return _connected(StagePlan(topology, stages))


def _connected(plan: StagePlan) -> StagePlan:
    """Find where internal topics lead, and those that lead back."""
    topology, stages = plan.topology, plan.stages
    for stage in stages:
        for topic in stage.topics:
            if topic in topology.internal_topics:
                plan.targets[topic] = stage.number
    for stage in stages:
        for node in stage.part.nodes:
            if isinstance(node, SinkNode) and node.topic in topology.internal_topics:
                topic = str(node.topic)
                if plan.targets.get(topic, -1) <= stage.number:
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
