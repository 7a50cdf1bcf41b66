"""`python -m ottla.testing.simulation sweep|syncs [seed]`: the long checks of `scripts/simulate`.

Kafka: none.
"""

from __future__ import annotations

import sys

from ottla.testing.simulation import sweep
from ottla.testing.simulation.model import InvariantViolated

SYNC_SEEDS = 12
SYNC_OPERATIONS = 90


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


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


if __name__ == "__main__":
    if sys.argv[1:2] == ["syncs"]:
        check_syncs()
    else:
        first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
        sys.exit(min(sweep_all(first), 1))
