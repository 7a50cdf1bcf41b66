"""Mutated requests against a live node; `scripts/fuzz_node.py` sends more of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.soaks import with_soaks

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_node.py"
FRAMES = 2000


def fuzz_node() -> Any:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("fuzz_node", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("listener", with_soaks(["broker", "controller"]))
def test_a_node_stands_mutated_requests_of_every_api(listener: str) -> None:
    """The node responds or closes, keeps running within bounds, and serves other clients."""
    figures = fuzz_node().run(FRAMES, kind=listener)
    assert figures["answered"] > FRAMES // 20
    assert figures["closed"] > FRAMES // 20
