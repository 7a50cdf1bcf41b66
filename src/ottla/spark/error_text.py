"""Short error texts: Spark prints no Python traceback for an error that the user can correct.

Kafka: none. Spark formats the exceptions of its Python workers itself; it leaves the traceback out
while SPARK_HIDE_TRACEBACK is set. A worker process ends after an exception, so that the variable
does not affect a later one.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER_MODULE = "pyspark.worker_util"
"""Imported by Spark's Python worker processes only."""


@contextmanager
def short_errors() -> Iterator[None]:
    """Report a KafkaError inside as its message; others keep their traceback."""
    try:
        yield
    except KafkaError:
        if WORKER_MODULE in sys.modules:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
