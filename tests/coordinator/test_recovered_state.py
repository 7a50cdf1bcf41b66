"""Each coordinator, loaded from its log, equals the live one; compacted and in any runs as well.

What waits in the live one after a step waits for something that comes.

`OTTLA_HISTORIES=5000 pytest tests/coordinator/test_recovered_state.py` tries more histories;
a failure names its seed.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from tests.coordinator.histories import GroupHistory, ShareHistory, TransactionHistory
from tests.coordinator.recovered import check
from tests.soaks import with_soaks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.coordinator.histories import History

HISTORIES: Final = int(os.environ.get("OTTLA_HISTORIES", "12"))
STEPS: Final = 160
CHECKS: Final = 4
"""Comparisons in a history, at random steps."""


@pytest.mark.parametrize("seeds", with_soaks([range(3), range(3, HISTORIES)]))
@pytest.mark.parametrize(
    ("kind", "compacts"), [(GroupHistory, True), (TransactionHistory, True), (ShareHistory, False)]
)
def test_a_loaded_coordinator_equals_the_live_one(
    kind: Callable[[Random], History], seeds: range, *, compacts: bool
) -> None:
    """All that is replayed is a function of the log, whatever the cleaner and the loader skip."""
    for seed in seeds:
        rng = Random(seed)
        history = kind(rng)
        moments = {STEPS - 1, *rng.sample(range(STEPS), CHECKS - 1)}
        for step in range(STEPS):
            try:
                history.step()
                stalls = list(history.runtime.stalls())
                assert not stalls, stalls
            except AssertionError as error:
                error.add_note(f"seed {seed}, step {step}")
                raise
            if step in moments:
                shard = history.runtime.shard(0)
                found = check(history.runtime, shard, history.log, rng, compacts=compacts)
                assert not found, f"seed {seed}, step {step}: " + "\n".join(found)
