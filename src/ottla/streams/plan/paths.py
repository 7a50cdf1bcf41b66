"""Where Spark runs a sub-topology itself: paths through operators with columns.

Kafka: none.

A path leads from a topic, or from a processor of a stage, through operators with columns to a sink
or to the next processor that is a function. Each is computed by itself, so that types never change
hands; what lies between are the stages, whose levels follow from the paths between them.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.streams.columns.operators import ColumnOperator, TypedInput
from ottla.streams.config import log_and_continue, log_and_fail
from ottla.streams.data.serdes import Serde, has_columns, takes_columns
from ottla.streams.errors import TopologyException
from ottla.streams.processors.stateless import Branch, Filter, PassThrough
from ottla.streams.topology.topology import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from ottla.streams.config import StreamsConfig
    from ottla.streams.topology.topology import Node, SubTopology, Topology

Edge = tuple[str, str]
"""The names of a node and one of its successors."""


PICKLED: Final = Serde("pickle", pickle.dumps, pickle.loads)
"""Of values that a query hands to itself, from one stage to another."""


@dataclass(frozen=True)
class Entry:
    """Where records of a path enter a stage."""

    parent: str
    child: str
    port: int = -1
    """The address of its rows."""


@dataclass(frozen=True)
class Path:
    """Nodes in a row, from where records come to where they go."""

    nodes: tuple[ProcessorNode, ...]
    end: SinkNode | Entry
    source: SourceNode | None
    """What it reads, if it begins at a topic."""
    edge: Edge
    level: int
    """The level of the stages after which it runs; -1 for one that begins at a topic."""
    part: int
    """The number of its sub-topology."""
    number: int = -1
    reports_errors: bool = False
    reported: frozenset[str] = frozenset()
    """The nodes whose errors it reports, not another path that begins in the same way."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads."""
        return () if self.source is None else self.source.topics

    @property
    def patterns(self) -> list[SourceNode]:
        """Its source, if that reads the topics of a pattern."""
        return [] if self.source is None or self.source.pattern is None else [self.source]

    def serdes(self, config: StreamsConfig) -> TypedInput:
        """Return the serdes of its input: the source's, or those of its first operator."""
        if self.source is not None:
            return _typed(self.source, config)
        if not self.nodes:
            return TypedInput(PICKLED, PICKLED)
        first = self.nodes[0].supplier
        assert isinstance(first, ColumnOperator), "a path from a stage begins with a column"
        return first.serdes


class Split(NamedTuple):
    """A sub-topology as levels of functions, and the paths between them."""

    levels: list[list[Node]]
    paths: list[Path]


@dataclass(frozen=True)
class _Parts:
    """The nodes of a sub-topology: which Spark runs, and the levels of the others."""

    topology: Topology
    number: int
    nodes: Mapping[str, Node]
    native: AbstractSet[str] = frozenset()
    levels: Mapping[str, int] = field(default_factory=dict)

    def is_source(self, name: str) -> bool:
        """Whether Spark reads this source."""
        node = self.nodes[name]
        return isinstance(node, SourceNode) and is_readable(node, self.topology.config)


def split(topology: Topology, sub_topology: SubTopology) -> Split:
    """Return what Spark runs of a sub-topology; one level and no path without columns."""
    nodes = {node.name: node for node in sub_topology.nodes}
    parts = _Parts(topology, sub_topology.number, nodes)
    parts = replace(parts, native=_native(parts))
    if not parts.native:
        return Split([list(nodes.values())], [])
    parts = replace(parts, levels=_levels(parts))
    levels: list[list[Node]] = [[] for _ in range(1 + max(parts.levels.values(), default=-1))]
    for name, level in parts.levels.items():
        levels[level].append(nodes[name])
    return Split(levels, _reporting_once(parts, [*_paths(parts), *_crossings(parts)]))


def is_readable(source: SourceNode, config: StreamsConfig) -> bool:
    """Whether Spark reads the records of a source as typed columns."""
    handler = config.deserialization_exception_handler
    return (
        not source.is_global
        and source.timestamp_extractor is None
        and handler in (log_and_fail, log_and_continue)
        and all(has_columns(serde) for serde in _typed(source, config))
    )


def _typed(node: SourceNode | SinkNode, config: StreamsConfig) -> TypedInput:
    key: Serde = node.key or config.default_key_serde
    return TypedInput(key, node.value or config.default_value_serde)


def _native(parts: _Parts) -> AbstractSet[str]:
    """Return the names of the nodes that Spark runs: columns, and what it can between them."""
    columns = {name for name, node in parts.nodes.items() if _has_columns(node)}
    native: set[str] = set()
    for name, node in parts.nodes.items() if columns else ():  # predecessors come first
        follows = bool(node.parents) and all(
            parent in native or parts.is_source(parent) for parent in node.parents
        )
        if name in columns or (follows and _is_neutral(node, parts.topology.config)):
            native.add(name)
    return native


def _has_columns(node: Node) -> bool:
    return isinstance(getattr(node, "supplier", None), ColumnOperator)


def _is_neutral(node: Node, config: StreamsConfig) -> bool:
    """Whether Spark can run a node without a column."""
    if isinstance(node, SinkNode):
        typed = all(takes_columns(serde) for serde in _typed(node, config))
        return isinstance(node.topic, str) and node.partitioner is None and typed
    if not isinstance(node, ProcessorNode):
        return False
    supplier = node.supplier
    if isinstance(supplier, Branch):
        return supplier.is_for_all
    return isinstance(supplier, PassThrough) or is_key_filter(supplier)


def is_key_filter(supplier: object) -> bool:
    """Whether a processor drops the records without a key, before a repartition topic."""
    from ottla.streams.dsl.graph import has_key

    return isinstance(supplier, Filter) and supplier.predicate is has_key


def _levels(parts: _Parts) -> dict[str, int]:
    """Return the level of each function: one more after each path; those of a store are equal."""
    shared: dict[str, list[str]] = {}
    for node in parts.nodes.values():
        for store in getattr(node, "stores", ()):
            shared.setdefault(store, []).append(node.name)
    found: dict[str, int] = {}
    for _ in range(len(parts.nodes) + 2):
        before = dict(found)
        for name, node in parts.nodes.items():
            found[name] = max([found.get(name, 0), *_from_parents(parts, node, found)])
        for names in shared.values():
            highest = max(found[name] for name in names)
            found.update(dict.fromkeys(names, highest))
        if found == before:
            break
    else:
        raise TopologyException("columns lie between processors that share a store")
    functions = [name for name in parts.nodes if name not in parts.native]
    for name in functions:
        if isinstance(parts.nodes[name], SourceNode):  # it runs with the first that it feeds
            fed = [child.name for child in parts.topology.children(name)]
            found[name] = min((found[one] for one in fed if one in functions), default=0)
    return {name: found[name] for name in functions if _is_used(parts, name)}


def _from_parents(parts: _Parts, node: Node, found: dict[str, int]) -> Iterator[int]:
    for parent in node.parents:
        enters = node.name in parts.native and parent not in parts.native
        is_read = parts.is_source(parent)
        yield found[parent] + (1 if enters and not is_read else 0)


def _is_used(parts: _Parts, name: str) -> bool:
    """Whether a function is needed: not a source of which only Spark reads."""
    if not parts.is_source(name):
        return True
    return any(child.name not in parts.native for child in parts.topology.children(name))


def _paths(parts: _Parts) -> Iterator[Path]:
    for name, node in parts.nodes.items():
        if name not in parts.native:
            continue
        for parent in node.parents:
            if parent in parts.native:
                continue
            source = parts.nodes[parent] if parts.is_source(parent) else None
            level = -1 if source is not None else parts.levels[parent]
            for nodes, end in _ways(parts, node):
                assert source is None or isinstance(source, SourceNode)
                yield Path(tuple(nodes), end, source, (parent, name), level, parts.number)


def _crossings(parts: _Parts) -> Iterator[Path]:
    """Yield paths without columns: from a function to one of a later level."""
    for name, level in parts.levels.items():
        for child in parts.topology.children(name):
            if parts.levels.get(child.name, level) > level:
                edge = (name, child.name)
                yield Path((), Entry(*edge), None, edge, level, parts.number)


def _ways(parts: _Parts, first: Node) -> Iterator[tuple[list[ProcessorNode], SinkNode | Entry]]:
    """Yield each way from a node to where Spark's part ends."""
    if isinstance(first, SinkNode):
        yield [], first
        return
    assert isinstance(first, ProcessorNode)
    for child in parts.topology.children(first.name):
        if child.name in parts.native:
            for nodes, end in _ways(parts, child):
                yield [first, *nodes], end
        else:
            yield [first], Entry(first.name, child.name)


def _reporting_once(parts: _Parts, paths: Iterable[Path]) -> list[Path]:
    """Let one reader of each topic report what it cannot read, one path what a node cannot."""
    sources = {name for name in parts.levels if isinstance(parts.nodes[name], SourceNode)}
    seen: set[tuple[Edge, tuple[str, ...]]] = set()
    reporting = []
    for path in paths:
        reports = path.source is not None and path.source.name not in sources
        if path.source is not None:
            sources.add(path.source.name)
        names = tuple(node.name for node in path.nodes)
        ways = [(path.edge, names[:count]) for count in range(1, len(names) + 1)]
        reported = frozenset(way[1][-1] for way in ways if way not in seen)
        seen.update(ways)
        reporting.append(replace(path, reports_errors=reports, reported=reported))
    return reporting
