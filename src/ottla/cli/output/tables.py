"""Tables of tools.

Kafka: org.apache.kafka.server.util.ToolsUtils.prettyPrintTable; the print methods of the tools of
groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows in columns as Kafka's tools do: padded, each followed by a tab."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def cell(value: object) -> str:
    """Return the text of a table's cell; a dash for None."""
    return "-" if value is None else str(value)


def columns(widths: Mapping[str, str | None], rows: Iterable[Sequence[object]]) -> str:
    """Lay out rows under titles; "15" is a fixed width, "15+" grows, None leaves the column out."""
    lines = [[cell(value) for value in row] for row in rows]
    sizes = {}
    for number, width in enumerate(widths.values()):
        if width is not None:
            grown = [len(line[number]) for line in lines] if width.endswith("+") else []
            sizes[number] = max([int(width.rstrip("+")), *grown])
    return "\n".join(
        " ".join(f"{line[number]:<{size}}" for number, size in sizes.items())
        for line in ([*widths], *lines)
    )


def print_problem(text: str) -> None:
    """Print an error that does not end the tool."""
    click.echo(f"\nError: {text}")
