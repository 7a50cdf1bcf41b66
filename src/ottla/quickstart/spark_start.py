"""Starts Spark in the background while events are sent, and stops it with the quickstart.

Kafka: none.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from pyspark.sql import SparkSession

START_SECONDS = 120.0


class SparkStart:
    """A session that is being started in a thread."""

    def __init__(self, temp_dir: Path) -> None:
        self.temp_dir = temp_dir
        self._spark: SparkSession | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop the session and its JVM; after an error, immediately, even while they start."""
        from ottla.spark.local_session import stop_java

        logging.disable(logging.CRITICAL)  # Py4J logs each call that fails because the JVM stopped
        if self._spark is not None and kind is None:
            with suppress(Exception):
                self._spark.stop()
        stop_java(timeout=5.0 if kind is None else 0.0)
        self._thread.join(5.0)
        stop_java(timeout=0.0)  # it may have started in the meantime

    def _start(self) -> None:
        try:
            from ottla.spark.local_session import session

            self._spark = session(
                "ottla quickstart",
                memory="2g",
                class_cache=False,
                fast_start=True,
                temp_dir=self.temp_dir,
            )
        except Exception as error:  # noqa: BLE001 - reported by `session`
            self._failure = error

    def session(self) -> SparkSession:
        """Wait for the session; raises OttlaError if it could not be started."""
        self._thread.join(START_SECONDS)
        if self._spark is None:
            reason = self._failure or f"not up after {START_SECONDS:.0f} s"
            raise OttlaError(f"Spark could not be started: {reason}")
        from ottla.spark.local_session import use_in_this_thread

        use_in_this_thread(self._spark)
        return self._spark
