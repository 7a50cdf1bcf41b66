#!/usr/bin/env python3
"""Kill, pause and isolate nodes of a cluster under load and check the history of its clients.

    scripts/kill_cluster.py --seconds 600 --seed 1
    scripts/kill_cluster.py --exactly-once --kills 200

An idempotent acks=all producer and a consumer (librdkafka) run all the time, and four clients
that read, write and compare-and-set registers. In the end all nodes run and are in sync: each
acknowledged record is at its offset, no record exists twice, the order of each partition is that
of the producer, the consumer saw what is there and nothing else, the history of each register is
linearizable, and the files of the three replicas are equal. The page cache survives a killed
process; the simulation tests power loss. --nodes ook replaces the third node by a real Kafka.

With --exactly-once four programs copy what the producer writes over a second to a third topic, in
transactions with the offsets; they are killed and paused like the nodes. In the end both copies
have at read_committed what the source has: each record once, in its order.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.conformance.clusters.chain import SETTINGS, ChainFaults
from tests.conformance.clusters.faults import Faults
from tests.conformance.clusters.history import Lost
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster
from tests.conformance.clusters.trial import Trial
from tests.conformance.kafka import find_kafka

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.clusters.nodes import Member

_MEMBERS = {
    "o": OTTLA,
    "k": KAFKA,
    "O": OTTLA._replace(roles="broker"),
    "K": KAFKA._replace(roles="broker"),
    "c": OTTLA._replace(roles="controller"),
    "C": KAFKA._replace(roles="controller"),
}


def run(
    directory: Path,
    *,
    members: Sequence[Member],
    seconds: float,
    seed: int,
    rate: int,
    echo: bool,
    exactly_once: bool = False,
    kills: int = 0,
) -> dict[str, Any]:
    """Run the cluster for this time and check the history; return the figures. Raises Lost.

    With kills the run ends after so many instead.
    """
    rng = random.Random(seed)
    kafka = find_kafka() if any(one.kind == "kafka" for one in members) else None
    cluster = Cluster(directory, members, kafka)
    cluster.format({one.node_id: SETTINGS for one in cluster.nodes})
    trial = Trial(
        cluster, rate=rate, seed=seed, chain_directory=directory if exactly_once else None
    )
    faults = ChainFaults(cluster, rng, trial.chain) if trial.chain else Faults(cluster, rng)
    waits: list[float] = []
    try:
        trial.start()
        begun = time.monotonic()
        while faults.kills < kills if kills else time.monotonic() - begun < seconds:
            time.sleep(rng.uniform(0, 3))
            cluster.check()
            done = faults.apply_one()
            waits.append(trial.wait_for_progress(done))
            if echo:
                _show(begun, trial, faults, done, waits[-1])
        figures = trial.check()
    finally:
        if trial.chain:
            trial.chain.kill()
        cluster.kill()
        trial.write_history(directory / "history.jsonl")
    return figures | {
        "nodes": [one.kind for one in members],
        "seed": seed,
        "seconds": round(time.monotonic() - begun, 1),
        "faults": dict(faults.count),
        "kills": faults.kills,
        "errors": dict(trial.load.errors),
        "producers": trial.load.producers,
        "wait_seconds_median": round(sorted(waits)[len(waits) // 2], 2),
        "wait_seconds_max": round(max(waits), 2),
    }


def _show(begun: float, trial: Trial, faults: Faults, done: str, wait_s: float) -> None:
    print(
        f"{time.monotonic() - begun:6.1f} s  {trial.load.acknowledged.total()} acknowledged, "
        f"{len(trial.load.seen)} seen, {len(trial.registers.history)} operations, "
        f"{faults.count.total()} faults; {done}, served after {wait_s:.1f} s",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """Run with command line arguments; print the figures and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=200, help="records a second")
    parser.add_argument("--kills", type=int, default=0, help="run until so many processes died")
    parser.add_argument("--exactly-once", action="store_true", help="with a chain of transactions")
    parser.add_argument(
        "--nodes",
        default="ooo",
        help="a letter a node: o Ottla, k Kafka 4.3.0, both broker and controller; O and K are "
        "brokers only, c and C controllers only, of Ottla and of Kafka",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--directory", help="keep data and history here, also without a failure")
    asked = parser.parse_args()
    directory = Path(asked.directory or tempfile.mkdtemp(prefix="ottla-kill-cluster-")).absolute()
    try:
        figures = run(
            directory,
            members=[_MEMBERS[letter] for letter in asked.nodes],
            seconds=asked.seconds,
            seed=asked.seed,
            rate=asked.rate,
            echo=not asked.json,
            exactly_once=asked.exactly_once,
            kills=asked.kills,
        )
    except Lost as lost:
        print(f"seed {asked.seed}: {lost}; data and history: {directory}", file=sys.stderr)
        return 1
    if not asked.directory:
        shutil.rmtree(directory)
    print(json.dumps(figures, indent=None if asked.json else 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
