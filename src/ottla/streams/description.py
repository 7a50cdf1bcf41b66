"""The text form of a topology.

Kafka: org.apache.kafka.streams.TopologyDescription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.topology import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.streams.topology import Node, SubTopology, Topology


def describe(topology: Topology) -> str:
    """Return the description of a topology in Kafka's form."""
    lines = ["Topologies:"]
    indent = "   "
    for part in topology.sub_topologies():
        if part.is_global:
            lines += [indent + _global_headline(part), *_global_store(topology, part)]
        else:
            lines += [f"{indent}Sub-topology: {part.number}", *_part(topology, part), ""]
        indent = "  "
    return "\n".join(lines) + "\n"


def _global_headline(part: SubTopology) -> str:
    return f"Sub-topology: {part.number} for global store (will not generate tasks)"


def _global_store(topology: Topology, part: SubTopology) -> list[str]:
    source = part.sources()[0]
    (processor,) = topology.children(source.name)
    return [
        f"    Source: {source.name} (topics: {source.topics_text})",
        f"      --> {processor.name}",
        f"    Processor: {processor.name} (stores: {_stores(processor, set())})",
        "      --> none",
        f"      <-- {source.name}",
    ]


def _part(topology: Topology, part: SubTopology) -> list[str]:
    sizes = _sizes(topology, part)

    def ordered(names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: (-sizes[name], name))

    lines = []
    by_name = {node.name: node for node in part.nodes}
    for name in ordered(by_name):
        node = by_name[name]
        children = ordered(one.name for one in topology.children(name))
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
