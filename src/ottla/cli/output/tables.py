"""Tables of tools.

Kafka: org.apache.kafka.server.util.ToolsUtils.prettyPrintTable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows in columns as Kafka's tools do: padded, each followed by a tab."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
