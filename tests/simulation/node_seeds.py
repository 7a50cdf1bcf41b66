"""The long checks of `scripts/simulate`: seeds, sweep and syncs.

Run: python -m tests.simulation.node_seeds seeds|sweep|syncs …
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from hashlib import blake2b

from tests.simulation.nodes import sweep
from tests.simulation.nodes.compaction import CompactionWorkload
from tests.simulation.nodes.model import InvariantViolated
from tests.simulation.nodes.retention import RetentionWorkload
from tests.simulation.nodes.workload import Workload

SYNC_SEEDS = 12
SYNC_OPERATIONS = 90


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_seeds(first: int, last: int) -> int:
    """Run all workloads of these seeds; return how many failed.

    The digest is that of all events: equal under any PYTHONHASHSEED.
    """
    counts: Counter[str] = Counter()
    digest = blake2b(digest_size=16)
    for seed in range(first, last + 1):
        workload, retention = Workload(seed), RetentionWorkload(seed)
        compaction = CompactionWorkload(seed)
        for one in (workload, retention, compaction):
            try:
                one.run()
            except InvariantViolated as error:
                counts["failed"] += 1
                _say(str(error))
            counts["events"] += one.simulation.trace.event_count
            digest.update(one.simulation.trace.digest().encode())
        counts.update(workload.node_rot.counts)
        counts["crashes"] += workload.crash_count
        counts["rotten records"] += workload.rot_count
        counts["rotten timestamps"] += retention.rot_count
        counts["expired records"] += retention.expired_count
        counts["compacted records"] += compaction.removed_count
    for name, count in sorted(counts.items()):
        _say(f"{name}: {count:,}")
    _say(f"seeds {first} to {last}: {counts['failed']} failed, digest {digest.hexdigest()}")
    return counts["failed"]


def sweep_all(seed: int) -> int:
    """Crash at every file operation, by power cut and by kill; return how many runs failed."""
    count = sweep.operation_count(seed)
    failed = 0
    for operation in range(1, count + 1):
        for power in (True, False):
            try:
                sweep.crash_at(seed, operation, power=power)
            except InvariantViolated as error:
                failed += 1
                _say(f"operation {operation}, {'power cut' if power else 'kill'}: {error}")
    _say(f"seed {seed}: {2 * count} runs, a crash at each of {count} operations, {failed} failed")
    return failed


def check_syncs() -> int:
    """Take out each sync in turn; return how many no run notices."""
    places = sorted(set().union(*(sweep.sync_places(seed) for seed in range(SYNC_SEEDS))))
    missed = 0
    for place in places:
        operations, seeds = range(1, SYNC_OPERATIONS), range(SYNC_SEEDS)
        at = next((one for one in operations if sweep.is_noticed_at(place, one)), None)
        by = None if at else next((one for one in seeds if sweep.is_noticed(place, one)), None)
        missed += at is None and by is None
        shown = f"operation {at}" if at else "no run" if by is None else f"seed {by}"
        _say(f"{place}: noticed by {shown}")
    _say(f"{missed} of {len(places)} are noticed by no run; see tests/simulation/test_fsyncs.py")
    return missed


def main(command: str, *given: str) -> int:
    """Run a check; return the exit code."""
    logging.disable(logging.CRITICAL)
    if command == "syncs":
        check_syncs()
        return 0
    if command == "seeds":
        first, _, last = given[0].partition("-")
        return min(run_seeds(int(first), int(last or first)), 1)
    return min(sweep_all(int(given[0]) if given else 0), 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
