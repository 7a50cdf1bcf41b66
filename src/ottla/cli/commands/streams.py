"""`ottla streams`: run and describe an application of `ottla.streams`.

Kafka: no counterpart; Kafka Streams applications are programs.
"""

from __future__ import annotations

import json
import logging
import runpy
import sys
import time
import traceback
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.spark import check_java, import_from, setting, spark_config, spark_options
from ottla.cli.options.stop_signals import StopSignals
from ottla.cli.output.failures import with_next_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from rich.live import Live
    from rich.table import Table

    from ottla.config.metrics import MetricsAddress
    from ottla.streams.query.stores import StoreSelection
    from ottla.streams.run.application import Streams
    from ottla.streams.run.metrics import StreamsMetrics
    from ottla.streams.run.progress import Progress
    from ottla.streams.topology.topology import Topology

log = logging.getLogger("ottla.streams")

EXAMPLES = """
\b
Examples:
  ottla streams describe app.py
  ottla streams describe app.py --svg app.svg
  ottla streams run app.py --bootstrap-server localhost:9092 --checkpoint app-checkpoint
  ottla streams query app.py --checkpoint app-checkpoint --store counts
  ottla streams query app.py --checkpoint app-checkpoint --store counts --from a --to f --limit 20
\b
app.py has a name `topology` or `builder`.
"""
_YARN_FILES = "spark.yarn.dist.files"
_FROM_TIME = "Only windows that start at or after this time; sessions that end at or after it."
_TO_TIME = "Only windows and sessions that start at or before this time."
_VERBOSE = click.option(
    "--verbose", is_flag=True, help="Show Spark's log, too: errors with their traces."
)
_PROGRAM = click.argument("program", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group("streams", epilog=EXAMPLES)
def streams() -> None:
    """Run and describe an application of ottla.streams."""


@streams.command("describe")
@_PROGRAM
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture.")
def describe(program: Path, svg: Path | None) -> None:
    """Print the topology as Topology.describe() does, or draw it."""
    topology = _load_topology(program)
    if svg is None:
        click.echo(topology.describe(), nl=False)
        return
    from ottla.streams.topology.picture import draw

    svg.write_text(draw(topology), encoding="utf-8")


@streams.command("query")
@_PROGRAM
@click.option("--checkpoint", required=True, help="Directory or URI of the application.")
@click.option("--store", required=True, help="Name of the store (Materialized(name=…)).")
@click.option("--key", help="Only the entries of this key.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")
@click.option("--from", "first", metavar="KEY", help="Only keys from this one on, by their bytes.")
@click.option("--to", "last", metavar="KEY", help="Only keys up to this one, which is included.")
@click.option("--prefix", metavar="TEXT", help="Only keys that start so.")
@click.option("--from-time", "first_ms", type=int, metavar="MS", help=_FROM_TIME)
@click.option("--to-time", "last_ms", type=int, metavar="MS", help=_TO_TIME)
@click.option(
    "--as-of",
    "as_of_ms",
    type=int,
    metavar="MS",
    help="For a versioned store: the state at this time.",
)
@click.option("--reverse", is_flag=True, help="The last entry first.")
@click.option("--limit", type=click.IntRange(0), help="Only so many entries.")
@click.option("--count", "counts", is_flag=True, help="Print the number of entries.")
@_VERBOSE
def query(
    program: Path,
    checkpoint: str,
    store: str,
    *,
    conf: tuple[str, ...],
    counts: bool,
    verbose: bool,
    **given: Any,
) -> None:
    """Print the entries of a store as of the last committed micro-batch, one in a line.

    By the bytes of their keys, windows and sessions by their start. Keys that are no text are given
    in JSON.
    """
    from ottla.errors import OttlaError
    from ottla.streams.query.stores import StoreSelection

    topology = _load_topology(program)
    settings = dict(setting("--conf", text) for text in conf)
    selection = StoreSelection(**given)
    try:
        with _session(settings, verbose=verbose) as spark:
            entries = _entries(topology, checkpoint, store, spark, selection)
    except OttlaError as error:
        raise click.ClickException(with_next_step(str(error), error)) from error
    for name, value in () if counts else entries:
        click.echo(f"{_text(name)}\t{_text(value)}")
    if counts:
        click.echo(len(entries))


@contextmanager
def _session(settings: dict[str, str], *, verbose: bool) -> Iterator[SparkSession]:
    """Make a session of Spark for the block; its errors are ClickException, made while it lives."""
    from ottla.spark.jvm.local_session import check_settings, session, stop

    level = _log_level(verbose=verbose)
    with ExitStack() as end, _in_one_line(shows_trace=verbose):
        spark = session("ottla streams query", master="local[1]", config=settings, log_level=level)
        end.callback(stop, spark)
        check_settings(spark)
        yield spark


def _log_level(*, verbose: bool) -> str:
    return "ERROR" if verbose else "OFF"


@contextmanager
def _in_one_line(*, shows_trace: bool = False) -> Iterator[None]:
    """Make ClickException of errors of Spark, Java and files, while the JVM that has them lives."""
    from ottla.streams.run.supervisor import query_errors, reason

    try:
        yield
    except query_errors() as error:
        if shows_trace:
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        raise click.ClickException(reason(error)) from error


def _entries(
    topology: Topology,
    checkpoint: str,
    store: str,
    spark: SparkSession,
    selection: StoreSelection,
) -> list[tuple[Any, Any]]:
    """Return the selected entries of a store; OttlaError."""
    from ottla.streams.query.stores import query_store, select

    found = query_store(topology, checkpoint, store, spark)
    serde = topology.stores[store].key or topology.config.default_key_serde
    return list(select(found, serde, selection))


def _text(value: Any) -> str:
    """Return a value in JSON, without time and headers; others as Python writes them."""
    from ottla.streams import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders

    if isinstance(value, (ValueAndTimestamp, ValueTimestampHeaders, AggregationWithHeaders)):
        value = value[0]
    return json.dumps(value, ensure_ascii=False, default=str)


def _address(_context: object, _option: object, value: str | None) -> MetricsAddress | None:
    """Return the address of --metrics; BadParameter for another text, before Spark is started."""
    from ottla.config.metrics import ADDRESS_FORM, read_address

    found = None if value is None else read_address(value)
    if value is not None and found is None:
        raise click.BadParameter(f"{value!r} is no address: write {ADDRESS_FORM}")
    return found


@streams.command("run")
@_PROGRAM
@click.option("--bootstrap-server", required=True, help="Addresses of the cluster.")
@click.option("--command-config", metavar="FILE", help="Properties of clients: security, timeouts.")
@click.option("--checkpoint", required=True, help="Directory or URI to go on from.")
@spark_options
@click.option("--once", is_flag=True, help="Process the available records, and end.")
@click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the Kafka clients.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON object for each micro-batch.")
@click.option("--restarts", type=int, help="Give up after so many failures in a row.")
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    callback=_address,
    help="Serve /metrics for Prometheus there, while the run lasts.",
)
@_VERBOSE
def run(program: Path, **options: Any) -> None:
    """Run the application until it is stopped by Ctrl-C; it goes on from its checkpoint."""
    for_spark = spark_config(options)
    if options["deploy_mode"] == "cluster":
        raise SystemExit(_submit(program, options, for_spark))
    with StopSignals(_end_java, is_endless=not options["once"]) as signals:
        try:
            _run_program(program, options, for_spark, signals)
        except (KeyboardInterrupt, click.ClickException) as error:
            if not signals.is_stopping and isinstance(error, click.ClickException):
                raise
            signals.settle()  # an error may be what the interrupt left of a call
            click.echo("stopped", err=True)
            raise SystemExit(signals.status) from None


def _run_program(
    program: Path, options: dict[str, Any], for_spark: dict[str, str], signals: StopSignals
) -> None:
    """Run the application of a program; its errors are ClickException."""
    from ottla.errors import OttlaError
    from ottla.streams.run.application import Streams

    check_java(options["master"], for_spark)
    import_from(options["py_files"])
    app = Streams(
        _load_topology(program),
        bootstrap_servers=options["bootstrap_server"],
        checkpoint=options["checkpoint"],
        config=_client_settings(options),
        master=options["master"],
        spark_config=for_spark,
        log_level=_log_level(verbose=options["verbose"]),
    )
    try:
        with _in_one_line():
            if options["conf"]:  # Spark checks these settings before the brokers are asked
                app.open()
            if options["once"]:
                _run_once(app, options["metrics"], as_json=options["as_json"])
            else:
                _run_on(app, options["restarts"], options["metrics"], as_json=options["as_json"])
    except OttlaError as error:
        raise click.ClickException(with_next_step(str(error), error)) from error
    finally:
        signals.settle()
        _stop(app)


def _client_settings(options: dict[str, Any]) -> dict[str, str]:
    """Return the settings of the file, as options of the source and the sink, and those given."""
    from ottla.cli.options.connection import read_file
    from ottla.clients.settings import COMMON

    of_file = read_file(options["command_config"])
    known = {f"kafka.{name}": value for name, value in of_file.items() if name in COMMON}
    known.pop("kafka.bootstrap.servers", None)
    return {**known, **dict(setting("--config", option) for option in options["settings"])}


def _stop(app: Streams) -> None:
    """Stop in another thread: an interrupted call leaves the thread's connection unusable."""

    def stop() -> None:
        try:
            app.stop()
        except Exception as error:  # noqa: BLE001 - the JVM is ended in any state
            log.warning("the session did not stop in good order: %s", error)

    thread = Thread(target=stop, daemon=True)
    thread.start()
    thread.join()
    _end_java()


def _end_java() -> None:
    """Kill the JVM, if it is still there: a run that was interrupted while it started."""
    from ottla.spark.jvm.local_session import stop_java

    stop_java(timeout=0)


def _submit(program: Path, options: dict[str, Any], config: dict[str, str]) -> int:
    """Have the cluster run the same command; return its exit status."""
    import ottla
    from ottla.spark.jvm.submission import submit

    main = Path(ottla.__file__).with_name("__main__.py")
    arguments = ["streams", "run", program.name]
    for flag in ("bootstrap_server", "checkpoint", "master", "restarts", "metrics"):
        if options[flag] is not None:
            arguments += [f"--{flag.replace('_', '-')}", str(options[flag])]
    for flag, values in (("--config", options["settings"]), ("--conf", options["conf"])):
        arguments += [word for value in values for word in (flag, value)]
    arguments += [f"--{flag}" for flag in ("once", "verbose") if options[flag]]
    arguments += ["--json"] if options["as_json"] else []
    files = ",".join(filter(None, (str(program.resolve()), config.get(_YARN_FILES))))
    name = {"spark.app.name": program.stem, **config, _YARN_FILES: files}
    return submit(options["master"], name, main, arguments)


def _run_once(app: Streams, address: MetricsAddress | None, *, as_json: bool) -> None:
    """Process the available records, print a line for each micro-batch, and serve the progress."""
    from ottla.streams.run.metrics import StreamsMetrics
    from ottla.streams.run.progress import ProgressLog

    metrics = StreamsMetrics(app.topology.config.application_id)
    shown = ProgressLog(click.echo, as_json=as_json)

    def take(progress: Progress) -> None:
        metrics.take(progress)
        shown.take(progress)

    with _serving(metrics, address):
        app.process_available(on_progress=take)
    if not as_json:
        click.echo(f"done: {shown.summary}")


def _run_on(
    app: Streams, restarts: int | None, address: MetricsAddress | None, *, as_json: bool
) -> None:
    """Show the progress, serve it, and start again after failures.

    In a terminal it is a table that changes; elsewhere, or as JSON, a line for each micro-batch.
    """
    from ottla.streams.run.metrics import StreamsMetrics
    from ottla.streams.run.progress import ProgressLog, table_of
    from ottla.streams.run.supervisor import supervise

    name = app.topology.config.application_id
    metrics = StreamsMetrics(name)
    has_table = sys.stdout.isatty() and not as_json
    shown = ProgressLog(None if has_table else click.echo, as_json=as_json)

    last: Progress | None = None

    def wait(seconds: float) -> None:
        """Wait before a restart; settings that Spark refuses are its errors, brokers or not."""
        metrics.restarted()
        app.open()
        time.sleep(seconds)

    table = _live(table_of(name, shown)) if has_table else nullcontext()
    with _serving(metrics, address), table as live:

        def show() -> int:
            nonlocal last
            if app.query is None or not app.query.isActive:
                app.start()
            app.await_termination(1)
            for last in app.progress_after(last):  # noqa: B020 - the last one is kept
                metrics.take(last)
                shown.take(last)
            if live is not None:
                live.update(table_of(name, shown))
            return -1 if last is None else last.batch

        supervise(show, wait, restarts)


@contextmanager
def _live(table: Table) -> Iterator[Live]:
    """Show a table that changes."""
    from rich.live import Live

    with Live(table, refresh_per_second=2) as live:
        yield live


def _serving(
    metrics: StreamsMetrics, address: MetricsAddress | None
) -> AbstractContextManager[object]:
    """Return the server of /metrics; UsageError where it cannot listen."""
    from ottla.streams.run.metrics import MetricsServer, bind_problem

    if address is None:
        return nullcontext()
    try:
        return MetricsServer(metrics, *address)
    except (OSError, UnicodeError) as error:
        raise click.UsageError(f"--metrics: {bind_problem(*address, error)}") from error


def _load_topology(program: Path) -> Topology:
    """Return the topology that a program defines; ClickException when it fails or has none."""
    from ottla.streams import StreamsBuilder, Topology, TopologyException

    names = _program_names(program)
    found = names.get("topology", names.get("builder"))
    if isinstance(found, StreamsBuilder):
        try:
            found = found.build()
        except TopologyException as error:
            raise click.ClickException(f"{program}: {error}") from error
    if not isinstance(found, Topology):
        raise click.UsageError(
            f"{program} defines neither `topology` nor `builder`: call its StreamsBuilder `builder`"
        )
    return found


def _program_names(program: Path) -> dict[str, Any]:
    """Return a program's names; an error of it becomes one line, with the line of the program."""
    try:
        return runpy.run_path(str(program))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(program)]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        hint = "; install it, or give it by --py-files"
        raise click.ClickException(
            f"{program}, line {line}: {type(error).__name__}: {getattr(error, 'msg', error)}"
            f"{hint if isinstance(error, ModuleNotFoundError) else ''}"
        ) from error
