#!/usr/bin/env python3
"""Play random sessions on real Kafka 4.3.0 and on Ottla and compare every answer.

scripts/random_sessions.py --seeds 1-500 runs many seeds; --steps replays some steps of one,
--nodes 3 asks clusters: node 1, which leads all partitions, and less often the other nodes.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from rich.progress import track

from tests.conformance.kafka import find_kafka
from tests.conformance.sessions.run import runner


def main() -> int:
    """Run the seeds; print each difference with the command that replays it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", required=True, help="first and last seed: 1-500")
    parser.add_argument("--steps", default="", help="only these steps: 0,5,17")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of each kind")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # Kafka's process, too
    first, _, last = options.seeds.partition("-")
    only = [int(number) for number in options.steps.split(",") if number]
    different = 0
    with tempfile.TemporaryDirectory() as directory:  # noqa: SIM117 - two lines read better
        with runner(find_kafka(), Path(directory), options.nodes) as sessions:
            seeds = range(int(first), int(last or first) + 1)
            for seed in track(seeds, "sessions", disable=not sys.stdout.isatty()):
                found = sessions.check(seed, only)
                if found is not None:
                    different += 1
                    print(found, flush=True)
                if not sys.stdout.isatty() and (seed - seeds[0]) % 10 == 9:
                    print(f"{seed - seeds[0] + 1} sessions", flush=True)
    print(f"{different} of {len(seeds)} sessions differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
