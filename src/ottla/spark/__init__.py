"""Spark's data source "ottla": topics as data frames, batch and streaming, read and written.

Kafka: the spark-sql-kafka connector, without its jar. Spark finds the source by itself through the
top-level package `pyspark_ottla`; `ottla.spark.session()` gives a session with good settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.session import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """Load `session`, and with it pyspark, when it is first asked for."""
    if name == "session":
        from ottla.spark.session import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
