"""A crash at each file operation of a fixed workload; a sample of them here.

All operations: `scripts/simulate --sweep`.
"""

from __future__ import annotations

import pytest

from tests.simulation.nodes import sweep
from tests.soaks import with_soaks

SEED = 0


@pytest.mark.soak
def test_a_kill_before_the_first_vote_is_stored_does_not_refuse_the_next_start() -> None:
    """The first records were appended while `quorum-state` was being written."""
    for operation in range(40, 54):
        sweep.crash_at(SEED, operation, power=False)


@pytest.mark.parametrize(("power", "stride"), with_soaks([(True, 149), (True, 47), (False, 47)]))
def test_a_crash_at_a_file_operation_breaks_no_promise(power: bool, stride: int) -> None:  # noqa: FBT001 - a parameter of the table
    """Formatting, starting, serving and stopping: after a restart everything promised is there."""
    count = sweep.operation_count(SEED)
    assert count > 200
    for operation in range(1 + 13 * power, count + 1, stride):
        sweep.crash_at(SEED, operation, power=power)
