"""A few hundred random damages: `scripts/simulate --damages` runs as many as wanted."""

from __future__ import annotations

import pytest

from tests.soaks import with_soaks
from tests.verification.damages import appended_records, disk_with, find, sample, serve, try_damage

DAMAGES = 240
"""Every kind of file about fifteen times; in a unit run, about four."""


def test_a_stopped_node_has_no_finding() -> None:
    """Its logs have deleted records, aborted transactions and compacted keys."""
    assert find(disk_with(sample())) == []


@pytest.mark.usefixtures("caplog")
@pytest.mark.parametrize("damages", with_soaks([range(60), range(60, DAMAGES)]))
def test_each_damage_is_found_or_harmless(damages: range) -> None:
    """None is served as data."""
    files = sample()
    right, appended = serve(disk_with(files)), appended_records(files)
    for seed in damages:
        outcome = try_damage(files, right, appended, seed)
        assert outcome.is_found or outcome.is_harmless, f"seed {seed}: {outcome.text}"
        assert not outcome.is_served, f"seed {seed}: {outcome.text}"
        assert outcome.is_found or not outcome.is_exposed, f"seed {seed}: {outcome.text}"
