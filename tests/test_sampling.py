"""Which conformance tests a run of CI takes."""

from __future__ import annotations

from tests.sampling import SHARES, changed_since, last_full_run, sample, subjects
from tests.source_trees import PACKAGE, TESTS

DIRECTORY = TESTS / "conformance"
MODULES = sorted(DIRECTORY.rglob("test_*.py"))


def test_every_module_is_taken_by_one_share() -> None:
    """The commits of one period together take every module."""
    taken = [sample(MODULES, f"{turn:012x}", frozenset()) for turn in range(SHARES)]
    assert frozenset().union(*taken) == frozenset(MODULES)
    assert all(len(chosen) < len(MODULES) / 2 for chosen in taken)


def test_each_directory_has_a_module_in_every_run() -> None:
    """A run has one check of each kind, whichever commit it is of."""
    directories = {path.parent for path in MODULES}
    for turn in range(SHARES):
        chosen = sample(MODULES, f"{turn:012x}", frozenset())
        assert {path.parent for path in chosen} == directories


def test_a_changed_subject_takes_its_modules() -> None:
    """A change of a source takes the modules that import it, directly or by their support."""
    changed = frozenset({PACKAGE / "records" / "compression.py"})
    importers = {module for module in MODULES if changed & subjects(module)}
    assert importers
    assert importers <= sample(MODULES, "0" * 12, changed)


def test_a_module_is_its_own_subject() -> None:
    """A changed test is run."""
    module = DIRECTORY / "test_schemas.py"
    assert module in sample(MODULES, "0" * 12, frozenset({module}))
    assert TESTS / "conformance" / "kafka.py" in subjects(module)


def test_an_unknown_commit_takes_every_module() -> None:
    """A clone without the commit of the last full run runs everything."""
    assert changed_since("f" * 40) is None
    assert sample(MODULES, "0" * 12, None) == frozenset(MODULES)


def test_the_last_full_run_is_recorded() -> None:
    """The record names a commit, a date and the counts of each run."""
    assert set(last_full_run()) == {"commit", "date", "counts"}
