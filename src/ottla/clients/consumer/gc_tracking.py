"""Excludes records from garbage collection; `gc_tracking.pxd` binds CPython's function.

Kafka: no counterpart.
"""

from __future__ import annotations

from typing import Any


def untrack(record: Any) -> None:
    """Leave a record alone: uncompiled, the collector is not spoken to."""
