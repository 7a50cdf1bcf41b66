"""A topology as plain data: sources, processors, sinks, stores, and its sub-topologies.

Kafka: org.apache.kafka.streams.{Topology, TopologyDescription},
processor.internals.InternalTopologyBuilder (addSource with a Pattern, sourceTopicPattern). A
pattern of topics matches whole names, as `re.fullmatch` does.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.config import StreamsConfig
from ottla.streams.dsl.settings import EARLIEST
from ottla.streams.errors import TopologyException
from ottla.streams.processors.processor import Processor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.streams.data.serdes import Serde
    from ottla.streams.dsl.settings import AutoOffsetReset, Partitioner
    from ottla.streams.processors.processor import ProcessorWrapper
    from ottla.streams.stores.specs import StoreSpec


@dataclass
class Node:
    """A node and its predecessors."""

    name: str
    parents: list[str] = field(default_factory=list)


@dataclass
class SourceNode(Node):
    """Reads topics: those that it names, or all that a pattern matches."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key: Serde | None = None
    value: Serde | None = None
    timestamp_extractor: Callable[..., int] | None = None
    is_global: bool = False
    offset_reset_policy: AutoOffsetReset | None = None

    @property
    def topics_text(self) -> str:
        """What it reads, as a description has it."""
        return f"[{', '.join(self.topics)}]" if self.pattern is None else self.pattern.pattern


@dataclass
class ProcessorNode(Node):
    """Processes records; `supplier` is a prototype of ours, or makes a processor of a user."""

    supplier: Any = None
    stores: list[str] = field(default_factory=list)
    wrapper: ProcessorWrapper | None = None

    @property
    def is_of_user(self) -> bool:
        """Whether it runs a class of a user, who may look global stores up and schedule."""
        is_own = isinstance(self.supplier, Processor) and not self.supplier.is_of_user
        return self.wrapper is not None or not is_own

    def make(self) -> Processor:
        """Return a new processor."""
        is_prototype = isinstance(self.supplier, Processor)
        made: Processor = copy.copy(self.supplier) if is_prototype else self.supplier()
        return made if self.wrapper is None else self.wrapper.wrap(self.name, made)


@dataclass
class SinkNode(Node):
    """Writes a topic, or the topic that a function of key, value and metadata names."""

    topic: str | Callable[..., str] = ""
    key: Serde | None = None
    value: Serde | None = None
    partitioner: Partitioner | None = None


@dataclass
class SubTopology:
    """Nodes that run together: connected by records or by a store."""

    number: int
    nodes: list[Node]
    is_global: bool = False

    def sources(self) -> list[SourceNode]:
        """Return the nodes that read topics."""
        return [node for node in self.nodes if isinstance(node, SourceNode)]

    def stores(self) -> list[str]:
        """Return the names of the stores, in the order of their processors."""
        found: dict[str, None] = {}
        for node in self.nodes:
            if isinstance(node, ProcessorNode):
                found.update(dict.fromkeys(node.stores))
        return list(found)


class Topology:
    """Nodes by name in the order of their addition."""

    def __init__(self, config: StreamsConfig | None = None) -> None:
        self.config = config or StreamsConfig()
        self._wrapper: ProcessorWrapper | None = None
        if self.config.processor_wrapper_class is not None:
            self._wrapper = self.config.processor_wrapper_class()
            self._wrapper.configure(self.config.by_name())
        self.nodes: dict[str, Node] = {}
        self.stores: dict[str, StoreSpec] = {}
        self.internal_topics: dict[str, int | None] = {}
        """The repartition topics with their number of partitions, None for their source's."""
        self.joined: list[tuple[str, ...]] = []
        """Nodes whose records of a key must be in one task: their topics' partitions are equal."""

    def add_source(self, name: str, *topics: str | re.Pattern[str], **options: Any) -> Topology:
        """Add a node that reads topics by their names, or those that one pattern matches.

        A topic that appears later and matches is read from its beginning.
        """
        if not topics:
            raise TopologyException("topics cannot be empty")
        first = topics[0]
        if isinstance(first, re.Pattern) and len(topics) == 1:
            check_pattern(first)
            check_no_overlap(first, self.sources())
            return self._add(SourceNode(name, [], pattern=first, **options))
        names = tuple(one for one in topics if isinstance(one, str))
        if len(names) < len(topics):
            raise TypeError(f"a source takes names of topics, or one pattern, not {topics!r}")
        for topic in names:
            if any(topic in source.topics for source in self.sources()):
                text = f"Topic {topic} has already been registered by another source."
                raise TopologyException(text)
            if any(source.pattern and source.pattern.fullmatch(topic) for source in self.sources()):
                text = f"Topic {topic} matches a Pattern already registered by another source."
                raise TopologyException(text)
        return self._add(SourceNode(name, [], names, **options))

    def add_processor(
        self, name: str, supplier: Any, *parents: str, stores: Iterable[str] = ()
    ) -> Topology:
        """Add a processor after other nodes; `supplier()` makes one for each task.

        Stores that come with it, by `supplier.stores()` if there is that function, are added.
        """
        is_global = any(getattr(self.nodes.get(parent), "is_global", False) for parent in parents)
        wrapper = None if is_global else self._wrapper
        return self._add_processor(ProcessorNode(name, [*parents], supplier, [*stores], wrapper))

    def add_sink(
        self, name: str, topic: str | Callable[..., str], *parents: str, **options: Any
    ) -> Topology:
        """Add a node that writes a topic."""
        return self._add(SinkNode(name, list(parents), topic, **options))

    def add_state_store(self, spec: StoreSpec, *processors: str) -> Topology:
        """Add a store for some processors."""
        if self.stores.setdefault(spec.name, spec) != spec:
            raise TopologyException(
                f"A different StateStore has already been added with the name {spec.name}"
            )
        return self.connect_processor_and_state_stores_each(processors, spec.name)

    def add_global_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Any,
        *,
        source: str,
        processor: str,
        **options: Any,
    ) -> Topology:
        """Fill a store from a topic by a processor of one's own, in every task.

        The options are those of `add_source`.
        """
        self.add_source(source, topic, is_global=True, **options)
        self.add_processor(processor, supplier, source)
        return self.add_state_store(spec, processor)

    def add_read_only_state_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Any,
        *,
        source: str,
        processor: str,
        **options: Any,
    ) -> Topology:
        """Fill a store from a topic by a processor of one's own; others only read it (KIP-813).

        Each task has the rows of its partition: connect it with processors whose keys lie alike.
        The topic is read from its beginning. The options are those of `add_source`.
        """
        self.add_source(source, topic, offset_reset_policy=EARLIEST, **options)
        self._add_processor(ProcessorNode(processor, [source], supplier))
        return self.add_state_store(spec, processor)

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Give a processor access to stores."""
        for store in stores:
            if store not in self.stores:
                raise TopologyException(f"StateStore {store} is not added yet.")
            self.connect_processor_and_state_stores_each([processor], store)
        return self

    def connect_processor_and_state_stores_each(
        self, processors: Iterable[str], store: str
    ) -> Topology:
        """Give several processors access to a store."""
        for name in processors:
            node = self.nodes.get(name)
            if not isinstance(node, ProcessorNode):
                raise TopologyException(f"Processor {name} is not added yet.")
            if store not in node.stores:
                node.stores.append(store)
        return self

    def sources(self) -> list[SourceNode]:
        """Return the nodes that read topics."""
        return [node for node in self.nodes.values() if isinstance(node, SourceNode)]

    def patterns(self) -> list[SourceNode]:
        """Return the nodes that read the topics of a pattern."""
        return [source for source in self.sources() if source.pattern is not None]

    def source_topics(self) -> dict[str, SourceNode]:
        """Return the node that reads each topic that is named."""
        return {topic: source for source in self.sources() for topic in source.topics}

    def source_of(self, topic: str) -> SourceNode | None:
        """Return the node that reads a topic; TopologyException if several patterns match it."""
        return self.source_topics().get(topic) or matching(topic, self.patterns())

    def sources_of(self, node: str) -> list[SourceNode]:
        """Return the nodes whose records come to a node, without global ones."""
        found: list[SourceNode] = []
        names = [node]
        for name in names:  # which grows
            one = self.nodes[name]
            names += [parent for parent in one.parents if parent not in names]
            if isinstance(one, SourceNode) and not one.is_global:
                found.append(one)
        return found

    def describe(self) -> str:
        """Return the text form of the topology, as Kafka's TopologyDescription has it."""
        lines = ["Topologies:"]
        indent = "   "
        for part in self.sub_topologies():
            if part.is_global:
                head = f"Sub-topology: {part.number} for global store (will not generate tasks)"
                source = part.sources()[0]
                (processor,) = self.children(source.name)
                lines += [
                    indent + head,
                    f"    Source: {source.name} (topics: {source.topics_text})",
                    f"      --> {processor.name}",
                    f"    Processor: {processor.name} (stores: {_stores(processor, set())})",
                    "      --> none",
                    f"      <-- {source.name}",
                ]
            else:
                lines += [f"{indent}Sub-topology: {part.number}", *_part(self, part), ""]
            indent = "  "
        return "\n".join(lines) + "\n"

    def sinks(self) -> list[SinkNode]:
        """Return the nodes that write topics."""
        return [node for node in self.nodes.values() if isinstance(node, SinkNode)]

    def children(self, name: str) -> list[Node]:
        """Return the successors of a node in the order of their addition."""
        return [node for node in self.nodes.values() if name in node.parents]

    def sub_topologies(self) -> list[SubTopology]:
        """Return the parts between topics, numbered as Kafka numbers them."""
        groups = _Groups(self.nodes)
        by_store: dict[str, str] = {}
        global_stores = self.global_stores()
        for node in self.nodes.values():
            for parent in node.parents:
                groups.join(parent, node.name)
            for store in getattr(node, "stores", ()):
                if store not in global_stores:
                    groups.join(by_store.setdefault(store, node.name), node.name)
        sources = sorted(source.name for source in self.sources())
        others = sorted(self.nodes.keys() - set(sources))
        parts: dict[str, SubTopology] = {}
        for name in (*sources, *others):
            root = groups.root(name)
            if root not in parts:
                nodes = [node for node in self.nodes.values() if groups.root(node.name) == root]
                is_global = any(getattr(node, "is_global", False) for node in nodes)
                parts[root] = SubTopology(len(parts), nodes, is_global)
        return list(parts.values())

    def global_stores(self) -> set[str]:
        """Return the stores that hold a whole topic in every task."""
        found: set[str] = set()
        for source in self.nodes.values():
            if isinstance(source, SourceNode) and source.is_global:
                for child in self.children(source.name):
                    found.update(getattr(child, "stores", ()))
        return found

    def _add_processor(self, node: ProcessorNode) -> Topology:
        """Add a processor; Kafka wraps none of those that fill global and read-only stores."""
        self._add(node)
        name, supplier, wrapper = node.name, node.supplier, node.wrapper
        for spec in () if wrapper is None else wrapper.stores(name):
            self.add_state_store(spec, name)
        provided = None if isinstance(supplier, Processor) else getattr(supplier, "stores", None)
        for spec in provided() if callable(provided) else ():
            self.add_state_store(spec, name)
        return self

    def _add(self, node: Node) -> Topology:
        if node.name in self.nodes:
            raise TopologyException(f"Processor {node.name} is already added.")
        for parent in node.parents:
            if parent not in self.nodes:
                raise TopologyException(f"Predecessor processor {parent} is not added yet.")
        node.parents = list(dict.fromkeys(node.parents))
        self.nodes[node.name] = node
        return self


class _Groups:
    """Sets of names that are joined (union-find)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._parents = {name: name for name in names}

    def root(self, name: str) -> str:
        while self._parents[name] != name:
            name = self._parents[name]
        return name

    def join(self, first: str, second: str) -> None:
        self._parents[self.root(first)] = self.root(second)


_FLAGS: Final = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_GIVEN_WITHIN: Final = re.compile(r"(\(\?[aimsux]+\))+")
_BACKREFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


def check_pattern(pattern: re.Pattern[str]) -> None:
    """Raise TypeError for a pattern of bytes, TopologyException for one with backreferences."""
    if not isinstance(pattern.pattern, str):
        raise TypeError(f"a pattern of topics is text, not {pattern.pattern!r}")
    if _BACKREFERENCE.search(pattern.pattern):  # the subscription joins patterns: groups move
        raise TopologyException(f"Pattern {pattern.pattern} has a backreference.")


def same_pattern(pattern: re.Pattern[str]) -> tuple[str, int]:
    """Return what two patterns have in common that are one subscription."""
    return pattern.pattern, pattern.flags


def check_no_overlap(pattern: re.Pattern[str], sources: Iterable[SourceNode]) -> None:
    """Raise TopologyException for a pattern that matches a topic which another source names.

    A topic that two patterns match is found where it is read, as in Kafka.
    """
    if any(pattern.fullmatch(topic) for source in sources for topic in source.topics):
        raise TopologyException(
            f"Pattern {pattern.pattern} will match a topic that has already been registered by "
            "another source."
        )


def matching(topic: str, sources: Sequence[SourceNode]) -> SourceNode | None:
    """Return the source whose pattern matches a topic; TopologyException for several."""
    found = [
        source
        for source in sources
        if source.pattern is not None and source.pattern.fullmatch(topic)
    ]
    if len(found) > 1:
        first, second = (node.pattern.pattern for node in found[:2] if node.pattern is not None)
        raise TopologyException(
            f"Topic {topic} is already matched for another regex pattern {first} and hence cannot "
            f"be matched to this regex pattern {second} any more."
        )
    return found[0] if found else None


def subscription(names: Iterable[str], patterns: Iterable[re.Pattern[str]]) -> str:
    """Return one pattern, as text, of names and patterns; TopologyException if there is none."""
    text = "|".join([*map(re.escape, names), *map(as_text, patterns)])
    try:
        re.compile(text)
    except re.error as error:  # two groups of one name
        raise TopologyException(f"the patterns cannot be joined: {error}") from error
    return text


def as_text(pattern: re.Pattern[str]) -> str:
    """Return a pattern as text with its flags, to be a part of another one."""
    flags = "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)
    within = _GIVEN_WITHIN.match(pattern.pattern)
    text = pattern.pattern[within.end() :] if within else pattern.pattern
    if pattern.flags & re.VERBOSE:  # its last line may be a comment
        return f"(?x{flags}:{text}\n)"
    return f"(?{flags}:{text})"


def _part(topology: Topology, part: SubTopology) -> list[str]:
    sizes = _sizes(topology, part)

    def ordered(names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: (-sizes[name], name))

    lines = []
    by_name = {node.name: node for node in part.nodes}
    for name in ordered(by_name):
        node = by_name[name]
        children = ordered(child.name for child in topology.children(name))
        lines.append(f"    {_headline(node, topology.global_stores())}")
        if not isinstance(node, SinkNode):
            lines.append(f"      --> {', '.join(children) or 'none'}")
        if not isinstance(node, SourceNode):
            lines.append(f"      <-- {', '.join(ordered(node.parents)) or 'none'}")
    return lines


def _headline(node: Node, hidden: set[str]) -> str:
    if isinstance(node, SourceNode):
        return f"Source: {node.name} (topics: {node.topics_text})"
    if isinstance(node, SinkNode):
        if isinstance(node.topic, str):
            return f"Sink: {node.name} (topic: {node.topic})"
        return f"Sink: {node.name} (extractor class: {node.topic.__qualname__})"
    return f"Processor: {node.name} (stores: {_stores(node, hidden)})"


def _stores(node: Node, hidden: set[str]) -> str:
    stores = set(node.stores) - hidden if isinstance(node, ProcessorNode) else set()
    return f"[{', '.join(sorted(stores))}]"


def _sizes(topology: Topology, part: SubTopology) -> dict[str, int]:
    """Return how many nodes are on all ways from each node; predecessors come first in a part."""
    found: dict[str, int] = {}
    for node in reversed(part.nodes):
        children = topology.children(node.name)
        found[node.name] = 1 + sum(found[child.name] for child in children)
    return found
