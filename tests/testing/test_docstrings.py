"""Examples in the docstrings of `ottla.testing`."""

from __future__ import annotations

import doctest

import pytest

import ottla
from ottla import testing


@pytest.mark.parametrize("name", ["Cluster", "Kafka", "SimulatedCluster"])
def test_examples_run(name: str) -> None:
    """Each example of a class prints what it says."""
    names = {
        "Producer": ottla.Producer,
        **{public: getattr(testing, public) for public in testing.__all__},
    }
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in doctest.DocTestFinder().find(names[name], name, globs=names):
        runner.run(example)
    assert runner.tries
    assert not runner.failures
