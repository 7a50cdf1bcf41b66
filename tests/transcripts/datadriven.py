"""Data-driven tests: a command, `----`, the trace that it must leave; blank lines separate them.

`pytest tests/transcripts --rewrite` puts the traces of now in place of the old ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEPARATOR = "----"


def run_transcript(path: Path, run: Callable[[str], list[str]], *, rewrite: bool) -> None:
    """Run each command of a file and compare, or rewrite, its trace.

    Lines that begin with # are comments and stay.
    """
    blocks = path.read_text().strip("\n").split("\n\n")
    renewed = []
    for number, block in enumerate(blocks, start=1):
        head, _, expected = block.partition(f"\n{SEPARATOR}")
        commands = [line for line in head.splitlines() if not line.startswith("#")]
        if not commands:
            renewed.append(block)
            continue
        trace = [line for command in commands for line in run(command)]
        actual = "\n".join(trace) or "ok"
        renewed.append(f"{head}\n{SEPARATOR}\n{actual}")
        if not rewrite:
            where = f"{path.name}, block {number}: {head}"
            assert actual == expected.strip("\n"), where
    if rewrite:
        path.write_text("\n\n".join(renewed) + "\n")
