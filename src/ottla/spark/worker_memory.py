"""Keeps modules out of the garbage collections of Spark's Python workers.

PySpark's daemon collects all garbage of a worker after each task. With pyarrow and pandas loaded
that takes 30 ms of CPU and more, in each of the six processes of a micro-batch. Objects that are
there at a worker's second and eighth use, its modules, are exempted from then on. What the first
uses have left is freed before, by the daemon.

Kafka: none; Spark: pyspark/daemon.py.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Final

from ottla.spark.processes import is_forked

FROZEN_AT: Final = (2, 8)
"""The uses before which the modules are exempted: later uses may load more of them."""
_uses = count(1)


def note_use() -> None:
    """Count a use of this process, if it is one of Spark's workers."""
    if is_forked() and next(_uses) in FROZEN_AT:
        gc.freeze()
