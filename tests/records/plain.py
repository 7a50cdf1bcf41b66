"""The compiled modules once more, uncompiled, so that tests can hold both against each other."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import ottla.records
from ottla.records import column_scan, scan

FOLDER = Path(ottla.records.__file__).parent


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"plain_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_both() -> tuple[Any, Any]:
    """Load the two modules, the second on top of the first instead of the compiled one."""
    plain_scan = _load("scan")
    compiled = sys.modules["ottla.records.scan"]
    sys.modules["ottla.records.scan"] = plain_scan
    try:
        return plain_scan, _load("column_scan")
    finally:
        sys.modules["ottla.records.scan"] = compiled


PLAIN_SCAN, PLAIN_COLUMN_SCAN = _load_both()
SCANS: list[Any] = [scan, PLAIN_SCAN]
COLUMN_SCANS: list[Any] = [column_scan, PLAIN_COLUMN_SCAN]
IDS = ["installed", "plain"]


def is_compiled() -> bool:
    """Say whether the installed scan is C."""
    return not str(scan.__file__).endswith(".py")
