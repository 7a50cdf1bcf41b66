"""CPU of two source trees of Ottla under the same load, in alternating runs.

    python benchmarks/against_kafka/trees.py --old ../old/src --new src --runs 7 --only "small"

Both trees must be compiled. Prints a row a case: medians of CPU and the ratio new / old.
`--everything` switches the metrics endpoint on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from brokers import Ottla
from run import CASES, back_free_pages, build_loader, create_topics, run_case


def start(tree: Path, directory: Path, overrides: list[str]) -> Ottla:
    """Start a node of a tree."""
    os.environ["PYTHONPATH"] = str(tree.resolve())
    return Ottla(directory, *overrides)


def main() -> None:
    """Run the cases and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--new", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--everything", action="store_true")
    options = parser.parse_args()
    loader = build_loader()
    overrides = ["metrics.listener=127.0.0.1:0"] if options.everything else []
    with tempfile.TemporaryDirectory() as made:
        nodes = {
            name: start(tree, Path(made) / name, overrides)
            for name, tree in (("old", options.old), ("new", options.new))
        }
        try:
            compare(loader, nodes, options.only, options.runs)
        finally:
            for node in nodes.values():
                node.stop()


def compare(loader: str, nodes: dict[str, Ottla], only: str, runs: int) -> None:
    """Print a row for each case whose name has the text in it."""
    for node in nodes.values():
        create_topics(node)
    for case in CASES:
        if only not in case.name:
            continue
        samples: dict[str, list[float]] = {"old": [], "new": []}
        for number in range(runs):
            order = list(nodes) if number % 2 else list(reversed(nodes))
            for name in order:
                back_free_pages()
                samples[name].append(run_case(loader, nodes[name], case).cpu)
        old, new = statistics.median(samples["old"]), statistics.median(samples["new"])
        low, high = min(samples["new"]), max(samples["new"])
        print(
            f"{case.name:42} old {old:9.2f}  new {new:9.2f} ({low:.2f}-{high:.2f})"
            f"  ratio {new / old:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
