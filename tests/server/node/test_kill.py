"""A node that is killed under load, a few times; `scripts/kill_loop.py` does it fifty times."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "kill_loop.py"


def kill_loop() -> Any:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("kill_loop", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.soak
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    """Records keep their places, none is there twice, no gap, no commit goes back."""
    pytest.importorskip("confluent_kafka")
    figures = kill_loop().run(3, tmp_path)
    assert figures["acknowledged"] > 100
    assert figures["found"] >= figures["acknowledged"]
    assert not figures["refused"]
