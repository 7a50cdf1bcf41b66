#!/usr/bin/env python3
"""Draw the pictures of docs/performance.md from its tables.

    .venv/bin/python scripts/draw_figures.py [DIRECTORY]

Each picture shows one column of one table: ratios to Kafka, which is the line at 1. Text stays text
in the SVG files, so that a test compares them with the tables.

Kafka: none.
"""

from __future__ import annotations

import re
import sys
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
BETTER, WORSE, KAFKA = "#2a7f62", "#b5523b", "#555555"


class Picture(NamedTuple):
    """A column of the first table below a heading, and whether less is better."""

    name: str
    heading: str
    column: str
    title: str
    less_is_better: bool = True


PICTURES = (
    Picture("node_cpu", "## One node", "CPU", "CPU of a request, Kafka = 1"),
    Picture(
        "node_throughput",
        "## One node",
        "throughput",
        "Throughput, Kafka = 1",
        less_is_better=False,
    ),
    Picture("replicas_cpu", "## Three replicas", "CPU", "CPU with three replicas, Kafka = 1"),
    Picture("replicas_p99", "## Three replicas", "p99", "p99 with three replicas, Kafka = 1"),
)


def rows(page: str, picture: Picture) -> list[tuple[str, float]]:
    """Return label and value of each row of a picture's table; of several runs the worst one."""
    lines = page[page.index(f"\n{picture.heading}\n") :].splitlines()
    table = takewhile(lambda line: line.startswith("|"), dropwhile(_is_text, lines))
    head, _, *body = map(_cells, table)
    column = head.index(picture.column)
    worse = max if picture.less_is_better else min
    found = [(row[0], re.findall(r"\d+\.\d+", row[column])) for row in body]
    return [(label, worse(map(float, runs))) for label, runs in found if runs]


def _is_text(line: str) -> bool:
    return not line.startswith("|")


def _cells(line: str) -> list[str]:
    return [one.strip() for one in line.strip().strip("|").split("|")]


def draw(picture: Picture, values: list[tuple[str, float]], path: Path) -> None:
    """Draw bars, the first row on top."""
    import matplotlib as mpl  # late: a test reads the tables without it

    mpl.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": picture.name, "font.size": 9}
    figure, axes = plt.subplots(figsize=(7, 0.6 + 0.27 * len(values)), layout="constrained")
    numbers = [value for _, value in values]
    colors = [BETTER if (one <= 1) is picture.less_is_better else WORSE for one in numbers]
    bars = axes.barh([label for label, _ in values], numbers, color=colors, height=0.65)
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(1, color=KAFKA, linestyle="--", linewidth=1)
    axes.set_title(picture.title, loc="left", fontsize=10)
    axes.set_xlim(0, max(*numbers, 1) * 1.12)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def main() -> None:
    """Draw all pictures."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    page = PAGE.read_text(encoding="utf-8")
    for picture in PICTURES:
        draw(picture, rows(page, picture), directory / f"performance_{picture.name}.svg")


if __name__ == "__main__":
    main()
