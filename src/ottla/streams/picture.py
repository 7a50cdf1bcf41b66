"""A topology as a picture in SVG: sub-topologies side by side, nodes in layers.

Kafka: no counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from ottla.streams.topology import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.streams.topology import Node, SubTopology, Topology

_WIDTH: Final = 330
_HEIGHT: Final = 40
_GAP: Final = 30
_COLORS: Final = {SourceNode: "#cfe8cf", SinkNode: "#f5dcc0"}


def draw(topology: Topology) -> str:
    """Return the picture."""
    shapes: list[str] = []
    left = _GAP
    bottom = 0
    for part in topology.sub_topologies():
        places = _places(part)
        columns = 1 + max(column for column, _ in places.values())
        rows = 1 + max(row for _, row in places.values())
        shapes += _part(topology, part, places, left)
        left += columns * (_WIDTH + _GAP)
        bottom = max(bottom, (rows + 1) * (_HEIGHT + _GAP))
    size = f'width="{left}" height="{bottom}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    style = '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
    style += 'markerHeight="8" orient="auto"><path d="M0,0L8,4L0,8z"/></marker></defs>'
    return "\n".join([head, style, *shapes, "</svg>"]) + "\n"


def _places(part: SubTopology) -> dict[str, tuple[int, int]]:
    """Return the column and row of each node: a row below its lowest predecessor."""
    rows: dict[str, int] = {}
    for node in part.nodes:  # predecessors come first
        rows[node.name] = 1 + max((rows[parent] for parent in node.parents), default=-1)
    used: dict[int, int] = {}
    places = {}
    for name, row in rows.items():
        places[name] = (used.get(row, 0), row)
        used[row] = used.get(row, 0) + 1
    return places


def _part(
    topology: Topology, part: SubTopology, places: dict[str, tuple[int, int]], left: int
) -> Iterator[str]:
    def corner(name: str) -> tuple[int, int]:
        column, row = places[name]
        return left + column * (_WIDTH + _GAP), (row + 1) * (_HEIGHT + _GAP) - _GAP

    yield f'<text x="{left}" y="22" font-size="14">Sub-topology {part.number}</text>'
    for node in part.nodes:
        x, y = corner(node.name)
        yield from _box(node, x, y)
        for child in topology.children(node.name):
            end_x, end_y = corner(child.name)
            line = f'x1="{x + _WIDTH // 2}" y1="{y + _HEIGHT}" '
            line += f'x2="{end_x + _WIDTH // 2}" y2="{end_y}"'
            yield f'<line {line} stroke="#444" marker-end="url(#a)"/>'


def _box(node: Node, x: int, y: int) -> Iterator[str]:
    color = _COLORS.get(type(node), "#dce6f5")
    place = f'x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}"'
    yield f'<rect {place} rx="6" fill="{color}" stroke="#444"/>'
    yield f'<text x="{x + 8}" y="{y + 16}" font-size="11">{escape(node.name)}</text>'
    yield f'<text x="{x + 8}" y="{y + 32}" font-size="10">{escape(_detail(node))}</text>'


def _detail(node: Node) -> str:
    if isinstance(node, SourceNode):
        return f"topics: {', '.join(node.topics) or node.topics_text}"
    if isinstance(node, SinkNode):
        return f"topic: {node.topic}" if isinstance(node.topic, str) else "topic by record"
    if isinstance(node, ProcessorNode) and node.stores:
        return f"stores: {', '.join(node.stores)}"
    return ""
