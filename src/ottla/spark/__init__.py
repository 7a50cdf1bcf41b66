"""Spark's data source "ottla": reads and writes topics as data frames, batch and streaming.

Kafka: the spark-sql-kafka connector, without its jar. Spark discovers the source through the
top-level package `pyspark_ottla`; `ottla.spark.session()` returns a session with suitable settings,
and `ottla.spark.stop(session)` ends it and its JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.jvm.local_session import session, stop, use_in_this_thread

__all__ = ["session", "stop", "use_in_this_thread"]


def __getattr__(name: str) -> Any:
    """Load a public name, and with it pyspark, on first access."""
    if name in __all__:
        try:
            from ottla.spark.jvm import local_session
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("ottla"):
                raise
            text = f"{error}: ottla.spark needs pip install '.[spark]' in Ottla's source tree"
            raise ModuleNotFoundError(text, name=error.name, path=error.path) from error

        return getattr(local_session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
