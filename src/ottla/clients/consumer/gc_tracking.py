"""Excludes records from garbage collection; `gc_tracking.pxd` binds CPython's function.

Kafka: no counterpart.
"""

from __future__ import annotations

from typing import Any


def untrack(record: Any) -> None:
    """Do nothing: only the compiled function excludes a record."""
