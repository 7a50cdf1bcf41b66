#!/usr/bin/env python3
"""Plant bugs in the quorum or in replication one at a time; check that the simulation finds them.

    .venv/bin/python scripts/planted_quorum_bugs.py [--replicas | --cluster | --independent]
        [--only NAME,NAME] [--sample COUNT] [--max-events COUNT]

`tests/simulation/planted_quorum_bugs.toml` lists the edits (`planted_replica_bugs.toml` with
`--replicas`, `planted_cluster_bugs.toml` with `--cluster`, `planted_independent_bugs.toml` with
`--independent`). For each bug the seeds 0, 1, 2 … of `tests/simulation/quorum_seeds.py`
(`replica_seeds.py`; `cluster_seeds.py` for the two others) run on a copy of the sources until one
fails. Prints the seed, the number of events until then and the failure; exits with 1 when a bug is
not found within `--max-events`.

Kafka: none.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from planted_bugs import BROKEN_PLANT, ROOT, Edit, Plant, copy_sources, environment, with_plant

SIMULATIONS = ROOT / "tests" / "simulation"
PARTS = ("quorum", "replica")
MAX_EVENTS = 10_000_000
MIN_TIME_LIMIT_S = 1200
SLOWEST_EVENTS_PER_SECOND = 3000
FAILED = re.compile(
    r"^seed (?P<seed>\d+), event \d+: (?P<why>[^\n]*).*?after (?P<count>[\d,]+) ",
    re.DOTALL | re.MULTILINE,
)


def read_plants(subject: str) -> list[Plant]:
    """Return all plants of a data file; the field `test` is the bug's name."""
    path = SIMULATIONS / f"planted_{subject}_bugs.toml"
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    known = []
    if "known" in data:
        listed = {one.test: one for part in PARTS for one in read_plants(part)}
        known = [listed[name] for name in data["known"]]
    return known + [
        Plant(
            number,
            bug["what"],
            bug["name"],
            tuple(Edit(edit["file"], edit["old"], edit["new"]) for edit in bug["edit"]),
        )
        for number, bug in enumerate(data["bug"], start=1)
    ]


def run_seeds(subject: str, sources: Path, max_events: int) -> str:
    """Run seeds on a copy until one fails; return what is printed."""
    simulation = "cluster" if subject == "independent" else subject
    command = [sys.executable, "-m", f"tests.simulation.{simulation}_seeds", "--seeds", "0-999999"]
    limit_s = max(MIN_TIME_LIMIT_S, max_events // SLOWEST_EVENTS_PER_SECOND)
    try:
        done = subprocess.run(
            [*command, "--max-events", str(max_events)],
            env=environment(sources),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {limit_s} s"
    return done.stdout + done.stderr


def find(subject: str, plant: Plant, sources: Path, max_events: int) -> bool:
    """Plant one bug, run seeds, restore the files; print and return whether it is found."""
    texts = with_plant(plant, sources)
    before = {path: path.read_text(encoding="utf-8") for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        shown = run_seeds(subject, sources, max_events)
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")
    found = FAILED.search(shown)
    if found is None or BROKEN_PLANT.match(found["why"]):
        print(f"{plant.test:28} MISSED ({plant.what}): {shown[-500:]}", flush=True)
        return False
    text = f"seed {found['seed']:>5}, {found['count']:>10} events: {found['why'][:110]}"
    print(f"{plant.test:28} {text}", flush=True)
    return True


def main() -> int:
    """Plant all bugs and print the results; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    subjects = parser.add_mutually_exclusive_group()
    for option, subject, what in (
        ("--replicas", "replica", "bugs of replication"),
        ("--cluster", "cluster", "bugs that whole clusters find"),
        ("--independent", "independent", "those of someone who wrote no check"),
    ):
        subjects.add_argument(
            option, dest="subject", action="store_const", const=subject, help=what
        )
    parser.add_argument("--only", metavar="NAMES", help="only these bugs")
    parser.add_argument("--sample", metavar="COUNT", type=int, help="only so many, always the same")
    parser.add_argument("--max-events", metavar="COUNT", type=int, default=MAX_EVENTS)
    options = parser.parse_args()
    subject = options.subject or "quorum"
    plants = read_plants(subject)
    if options.only:
        plants = [plant for plant in plants if plant.test in options.only.split(",")]
    if options.sample:
        plants.sort(key=lambda plant: hashlib.sha256(plant.test.encode()).digest())
        plants = plants[: options.sample]
    with tempfile.TemporaryDirectory() as directory:
        sources = copy_sources(plants, Path(directory))
        results = [find(subject, plant, sources, options.max_events) for plant in plants]
    print(f"{sum(results)} of {len(results)} found")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
