"""Spark's data source "ottla": topics as data frames, batch and streaming, read and written.

Kafka: the spark-sql-kafka connector, without its jar. Spark finds the source by itself through the
top-level package `pyspark_ottla`; `ottla.spark.session()` gives a session with good settings, and
`ottla.spark.stop(session)` ends it with its JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark.local_session import session, stop, use_in_this_thread

__all__ = ["session", "stop", "use_in_this_thread"]


def __getattr__(name: str) -> Any:
    """Load a public name, and with it pyspark, when it is first asked for."""
    if name in __all__:
        try:
            from ottla.spark import local_session
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("ottla"):
                raise
            text = f"{error}: ottla.spark needs pip install 'ottla[spark]'"
            raise ModuleNotFoundError(text, name=error.name, path=error.path) from error

        return getattr(local_session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
