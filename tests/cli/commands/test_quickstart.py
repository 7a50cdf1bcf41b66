"""`ottla quickstart --no-spark` and `ottla demo` as a user runs them, and their computations."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from ottla.quickstart.flights import DAY_MS, FIRST_MONDAY_MS, WEEK_MS, load_extract, week_of
from ottla.quickstart.run import Screen
from ottla.quickstart.summary import (
    WeekCounts,
    WeekKey,
    by_carrier,
    by_week,
    count_directly,
    differences,
    from_records,
    partial_weeks,
    worst_week,
)
from tests.soaks import with_soaks
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 2 * WAIT_S


def start(*arguments: str, directory: Path) -> subprocess.Popen[str]:
    """Start the command in its own directory, which also holds its temporary files."""
    (directory / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory / "tmp")},
    )


def left_behind(directory: Path) -> list[str]:
    """Return temporary files, and processes that name the directory."""
    files = [str(path) for path in (directory / "tmp").iterdir()]
    processes = [
        " ".join(process.info["cmdline"] or ())
        for process in psutil.process_iter(["cmdline"])
        if any(str(directory) in word for word in process.info["cmdline"] or ())
    ]
    return files + processes


def test_the_first_half_needs_nothing_else(tmp_path: Path) -> None:
    """Node, topics, events, a table and three commands; no escape sequences; no files remain."""
    process = start("quickstart", "--no-spark", directory=tmp_path)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert "\x1b" not in out + err
    assert "1,000 flights read back by a consumer" in out
    assert "JetBlue Airways" in out
    assert out.count("  ottla ") == 3
    assert re.search(r"[\d.]+ s  first event", out)  # benchmarks verify how many
    assert left_behind(tmp_path) == []


@pytest.mark.soak
def test_the_demo_is_the_first_half(tmp_path: Path) -> None:
    """`ottla demo` shows the same."""
    process = start("demo", directory=tmp_path)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert "1,000 flights read back" in out


@pytest.mark.soak
def test_a_kept_directory_may_be_used_again(tmp_path: Path) -> None:
    """--data-dir keeps the data, and a second run on them works."""
    for _ in range(2):
        arguments = ("quickstart", "--no-spark", "--data-dir", "kept")
        process = start(*arguments, directory=tmp_path)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
        assert "1,000 flights read back" in out
    assert (tmp_path / "kept" / "meta.properties").exists()


def test_a_failure_is_one_line(tmp_path: Path) -> None:
    """A data directory that is a file is reported without a traceback."""
    (tmp_path / "file").write_text("")
    process = start("quickstart", "--no-spark", "--data-dir", "file/below", directory=tmp_path)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert err.startswith("Error: ")
    assert len(err.strip().splitlines()) == 1
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("after_seconds", with_soaks([0.35, 0.5, 0.7, 0.9], count=2))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_at_any_point(
    tmp_path: Path, after_seconds: float, number: signal.Signals
) -> None:
    """SIGINT and SIGTERM leave no process and no temporary directory."""
    process = start("quickstart", "--no-spark", directory=tmp_path)
    time.sleep(after_seconds)
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS)
    # -number: before the handler was installed; 0: it was over before the signal
    if process.returncode not in (128 + number, -number, 0):
        # on a slow machine the interpreter itself has not begun, and ends by a status of its own
        assert (number, process.returncode) == (signal.SIGINT, 1), err
        assert err.endswith("KeyboardInterrupt\n")
    assert left_behind(tmp_path) == []


def test_the_node_ends_with_its_parent(tmp_path: Path) -> None:
    """The node also stops and removes its directory after SIGKILL of the command."""
    process = start("quickstart", "--no-spark", directory=tmp_path)
    assert process.stdout is not None
    process.stdout.readline()  # the node is up
    process.kill()
    process.communicate(timeout=SECONDS)
    wait_for(lambda: left_behind(tmp_path) == [])


def test_the_extract_is_in_order() -> None:
    """The extract has a thousand flights in event-time order, all of known airlines."""
    data = load_extract()
    times = [flight.time_ms for flight in data.flights]
    assert len(times) == 1000
    assert times == sorted(times)
    assert {flight.carrier for flight in data.flights} <= set(data.airlines)
    assert sum(flight.departure_delay is None for flight in data.flights) > 10


def test_weeks_begin_on_mondays() -> None:
    """Both bounds of a week, and a time before the first Monday of 1970."""
    assert week_of(FIRST_MONDAY_MS) == FIRST_MONDAY_MS
    assert week_of(FIRST_MONDAY_MS + WEEK_MS - 1) == FIRST_MONDAY_MS
    assert week_of(0) == FIRST_MONDAY_MS - WEEK_MS


def test_counting_and_comparing() -> None:
    """Cancelled flights have no delay; a wrong, missing or doubled window is found."""
    week = FIRST_MONDAY_MS
    counted = count_directly([(week, "AA", 5), (week + 1, "AA", None), (week, "BB", -2)])
    assert counted == {
        WeekKey(week, "AA"): WeekCounts(2, 1, 5),
        WeekKey(week, "BB"): WeekCounts(1, 0, -2),
    }
    assert counted[WeekKey(week, "AA")].mean_delay == 5.0
    values = [
        {"week": week, "carrier": "AA", "flights": 2, "cancelled": 1, "delay_minutes": 5},
        {"week": week, "carrier": "BB", "flights": 1, "cancelled": 0, "delay_minutes": -2},
    ]
    assert differences(counted, from_records(values)) == []
    assert len(differences(counted, from_records(values[:1]))) == 1
    assert len(differences(counted, from_records([*values, values[0]]))) == 1
    assert list(by_carrier(counted)) == ["AA", "BB"]
    assert by_week(counted) == {week: WeekCounts(3, 1, 3)}


def test_bars() -> None:
    """Bars grow by eighths of a character and stay within their column."""
    screen = Screen()
    screen.has_blocks = True
    assert screen.bar(0.0) == ""
    assert len(screen.bar(1.0)) == len(screen.bar(7.0)) == 30
    assert screen.columns([1.0, 2.0, 3.0]) == "▁▄█"
    screen.has_blocks = False
    assert screen.bar(1.0) == "#" * 30


def test_the_worst_week_is_a_complete_one() -> None:
    """The weeks at both ends of the year do not count; the picture's title names the worst."""
    first, year_ms = FIRST_MONDAY_MS, 3 * WEEK_MS
    partial = partial_weeks(first + 2 * DAY_MS, first + year_ms - 3 * DAY_MS)
    assert partial == {first, first + 2 * WEEK_MS}
    assert partial_weeks(first, first + year_ms - 1) == frozenset()
    weeks = {
        WeekKey(first, "UA"): WeekCounts(10, 0, 9_000),
        WeekKey(first + WEEK_MS, "UA"): WeekCounts(1_100, 100, 38_000),
        WeekKey(first + 2 * WEEK_MS, "UA"): WeekCounts(10, 10, 0),
    }
    totals = by_week(weeks)
    assert worst_week(totals, partial) == first + WEEK_MS
    assert worst_week(totals, totals) is None
    from ottla.quickstart.picture import findings  # loads matplotlib

    found = findings(weeks, partial)
    assert found.title.startswith("In the worst week, from 12 Jan 1970, ")
    assert found.title.endswith(" 38 minutes late on average")
    assert found.subtitle.startswith("1,120 flights, 110 cancelled")


@pytest.mark.soak
def test_the_picture_is_a_png(tmp_path: Path) -> None:
    """With carriers whose names are not known, and without a complete week."""
    from ottla.quickstart.picture import draw  # loads matplotlib

    weeks = {WeekKey(FIRST_MONDAY_MS, "UA"): WeekCounts(100, 1, 500)}
    draw(weeks, {}, {FIRST_MONDAY_MS}, tmp_path / "year.png")
    assert (tmp_path / "year.png").read_bytes().startswith(b"\x89PNG")
