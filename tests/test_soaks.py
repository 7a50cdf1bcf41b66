"""Tests that take long run in continuous integration; the unit run has the first of them."""

from __future__ import annotations

import re

import pytest
from _pytest.mark.expression import Expression

from tests.soaks import with_soaks
from tests.source_trees import ROOT

SCRIPTS = ("test", "simulate", "conformance")


def _expression(script: str) -> Expression:
    text = (ROOT / "scripts" / script).read_text(encoding="utf-8")
    (found,) = set(re.findall(r'-m pytest -m (?:"([^"]*)"|(\w+))', text))
    return Expression.compile("".join(found))


@pytest.mark.parametrize("marks", [(), ("soak",), ("conformance",), ("soak", "conformance")])
def test_each_test_is_run_by_one_script(marks: tuple[str, ...]) -> None:
    """Whichever of the two marks it has."""

    def has(mark: str, /, **_: str | int | bool | None) -> bool:
        return mark in marks

    takers = [script for script in SCRIPTS if _expression(script).evaluate(has)]
    assert len(takers) == 1


def test_continuous_integration_runs_the_soaks() -> None:
    """With the seeds of the simulations."""
    assert "\nscripts/simulate --soaks\n" in (ROOT / ".ci" / "simulations").read_text()


def test_the_first_values_are_in_the_unit_run() -> None:
    """The others have the mark; their ids stay those of the values."""
    first, second, third = with_soaks([1, (2, 3), 4], count=2)
    assert (first, second) == (1, (2, 3))
    assert (third.values, third.id, [mark.name for mark in third.marks]) == ((4,), None, ["soak"])
    assert with_soaks([(1, 2), (3, 4)])[1].values == (3, 4)
