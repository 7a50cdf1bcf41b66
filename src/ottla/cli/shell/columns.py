"""Lays names out in columns, as `ls` does on a terminal.

Kafka: org.apache.kafka.shell.command.LsCommandHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MIN_COLUMN_CHARACTERS: Final = 4
_GAP_CHARACTERS: Final = 2


def listing(
    files: Sequence[str], directories: Sequence[tuple[str, Sequence[str]]], width: int | None
) -> Iterator[str]:
    """Yield the lines of `ls`: the files, then each directory with its children.

    `width` is the terminal's, None for one name a line. A directory is named unless it is alone.
    """
    yield from _rows(files, width)
    is_first = not files
    is_named = bool(files) or len(directories) > 1
    for name, children in directories:
        if is_named and children:
            yield f"{name}:" if is_first else f"\n{name}:"
        is_first = False
        yield from _rows(children, width)


def _rows(names: Sequence[str], width: int | None) -> Iterator[str]:
    if not names:
        return
    widths, rows = _columns(names, width)
    for row in range(rows):
        cells = names[row::rows]
        padded = [cell.ljust(widths[number]) for number, cell in enumerate(cells)]
        if len(cells) == len(widths):
            padded[-1] = cells[-1]
        yield "".join(padded)


def _columns(names: Sequence[str], width: int | None) -> tuple[list[int], int]:
    """Return the widths of the most columns that fit, and the number of rows."""
    most = 1 if width is None else width // _MIN_COLUMN_CHARACTERS
    for count in range(most, 1, -1):
        rows = -(-len(names) // count)
        widths = [
            max(map(len, names[start : start + rows])) + _GAP_CHARACTERS
            for start in range(0, len(names), rows)
        ]
        if len(widths) == count and sum(widths) <= (width or 0):
            return widths, rows
    return [max(map(len, names)) + _GAP_CHARACTERS], len(names)
