"""What the garbage collector need not look at: `garbage.pxd` gives compiled modules CPython's call.

Kafka: no counterpart.
"""

from __future__ import annotations

from typing import Any


def untrack(record: Any) -> None:
    """Leave a record alone: uncompiled, the collector is not spoken to."""
