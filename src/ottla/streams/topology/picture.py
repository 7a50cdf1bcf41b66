"""A topology as a picture in SVG: sub-topologies side by side and in rows, nodes in layers.

Kafka: no counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from xml.sax.saxutils import escape

from ottla.streams.topology.topology import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.streams.topology.topology import Node, SubTopology, Topology


_GAP: Final = 30
_MARGIN: Final = 8
_LINE: Final = 15
_FONT: Final = 11
_LETTER: Final = 0.62 * _FONT
"""The width of a letter of the widest of the usual monospaced fonts."""
_LETTERS: Final = 40
"""Of a line: the names of Kafka's nodes are longer, and are divided."""
_PAGE: Final = 760
"""The width up to which sub-topologies stand side by side: that of a page of text."""
_COLORS: Final = {SourceNode: "#cfe8cf", SinkNode: "#f5dcc0"}


class _Box(NamedTuple):
    """A node's place in its sub-topology, and its lines of text."""

    node: Node
    column: int
    row: int
    lines: list[str]

    @property
    def width(self) -> int:
        return round(max(map(len, self.lines)) * _LETTER) + 2 * _MARGIN

    @property
    def height(self) -> int:
        return len(self.lines) * _LINE + _MARGIN


class _Part(NamedTuple):
    """A sub-topology: boxes of one width, rows as high as their highest box."""

    number: int
    boxes: dict[str, _Box]
    width: int
    tops: list[int]
    """The top of each row below that of the first, and the bottom of the last."""
    columns: int

    @property
    def full_width(self) -> int:
        return self.columns * (self.width + _GAP) - _GAP


def draw(topology: Topology) -> str:
    """Return the picture."""
    shapes: list[str] = []
    left = top = _GAP
    right = bottom = 0
    for part in map(_laid_out, topology.sub_topologies()):
        if left > _GAP and left + part.full_width > _PAGE:
            left, top = _GAP, bottom + _GAP
        shapes += _drawn(topology, part, left, top)
        left += part.full_width + _GAP
        right = max(right, left)
        bottom = max(bottom, top + part.tops[-1])
    size = f'width="{right}" height="{bottom}" viewBox="0 0 {right} {bottom}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" '
    head += 'style="background:#fff">'
    style = '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
    style += 'markerHeight="8" orient="auto"><path d="M0,0L8,4L0,8z"/></marker></defs>'
    return "\n".join([head, style, *shapes, "</svg>"]) + "\n"


def _laid_out(part: SubTopology) -> _Part:
    boxes = {}
    for node in part.nodes:
        column, row = _places(part)[node.name]
        lines = [*_wrapped(node.name), *_wrapped(_detail(node))]
        boxes[node.name] = _Box(node, column, row, lines)
    rows = 1 + max(box.row for box in boxes.values())
    tops = [0]
    for row in range(rows):
        height = max(box.height for box in boxes.values() if box.row == row)
        tops.append(tops[-1] + height + _GAP)
    columns = 1 + max(box.column for box in boxes.values())
    return _Part(part.number, boxes, max(box.width for box in boxes.values()), tops, columns)


def _wrapped(text: str) -> list[str]:
    """Return lines of at most so many letters, divided after a hyphen or a blank where one is."""
    lines = []
    while len(text) > _LETTERS:
        end = 1 + max(text.rfind("-", 0, _LETTERS), text.rfind(" ", 0, _LETTERS))
        lines.append(text[: end or _LETTERS])
        text = text[end or _LETTERS :]
    return [*lines, text] if text else lines


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


def _drawn(topology: Topology, part: _Part, left: int, top: int) -> Iterator[str]:
    def corner(box: _Box) -> tuple[int, int]:
        return left + box.column * (part.width + _GAP), top + part.tops[box.row]

    title = f"Sub-topology {part.number}"
    yield f'<text x="{left}" y="{top - _MARGIN}" font-size="13">{title}</text>'
    for box in part.boxes.values():
        x, y = corner(box)
        color = _COLORS.get(type(box.node), "#dce6f5")
        place = f'x="{x}" y="{y}" width="{part.width}" height="{box.height}"'
        yield f'<rect {place} rx="6" fill="{color}" stroke="#444"/>'
        for number, line in enumerate(box.lines, start=1):
            start = f'x="{x + _MARGIN}" y="{y + number * _LINE}"'
            yield f'<text {start} font-size="{_FONT}">{escape(line)}</text>'
        for child in topology.children(box.node.name):
            end_x, end_y = corner(part.boxes[child.name])
            line = f'x1="{x + part.width // 2}" y1="{y + box.height}" '
            line += f'x2="{end_x + part.width // 2}" y2="{end_y}"'
            yield f'<line {line} stroke="#444" marker-end="url(#a)"/>'


def _detail(node: Node) -> str:
    if isinstance(node, SourceNode):
        return f"topics: {', '.join(node.topics) or node.topics_text}"
    if isinstance(node, SinkNode):
        return f"topic: {node.topic}" if isinstance(node.topic, str) else "topic by record"
    if isinstance(node, ProcessorNode) and node.stores:
        return f"stores: {', '.join(node.stores)}"
    return ""
