"""Bytes of clients that never log in; `scripts/fuzz_login.py` sends more of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_login.py"
COUNT = 5000


def fuzz_login() -> Any:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("fuzz_login", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_node_stands_bytes_before_a_login() -> None:
    """None logs in, and a client with a password is served."""
    figures = fuzz_login().run(COUNT)
    assert figures["witness_logins"] >= 2
    assert figures["bytes_received"] > 1000
