"""Examples in the docstrings of `ottla.streams`."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["builder", "stream"])
def test_examples_run(module: str) -> None:
    """Each example of a public class prints what it says."""
    failed, run = doctest.testmod(import_module(f"ottla.streams.dsl.{module}"))
    assert run
    assert not failed
