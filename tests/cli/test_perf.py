"""The performance tools without a broker: flags, rate, totals, and output."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from ottla.cli.options.argparse4j import ArgparseCommand
from ottla.cli.output.java_format import decimals, java_date, percentile, print_metrics, ratio
from ottla.cli.perf import consumer_perf_test as reading
from ottla.cli.perf.end_to_end_latency import MismatchError, _compare, end_to_end_latency
from ottla.cli.perf.producer_perf_test import Pace, Stats, _read_payloads, producer_perf_test
from ottla.cli.verify.replica_verification import Mismatch, ReplicaFetch, compare
from ottla.clients.consumer.record_decoder import ConsumerRecord
from ottla.clients.metric_windows import MetricName
from ottla.records.batch import RecordBatch
from ottla.records.builder import encode_batch
from ottla.types import TopicPartition
from tests.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HALF = TopicPartition("t", 0)


@click.command("many", cls=ArgparseCommand)
@click.option("--name")
@click.option("--pair", multiple=True)
def many(name: str | None, pair: tuple[str, ...]) -> None:
    """Print the parsed values."""
    click.echo(f"{name} {pair}")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--pair a b --name c", "c ('a', 'b')"),
        ("--name c --pair a --pair b", "c ('a', 'b')"),
        ("--pair a", "None ('a',)"),
    ],
)
def test_flags_take_many_words(words: str, shown: str) -> None:
    """A flag with several values takes all arguments up to the next flag."""
    assert CliRunner().invoke(many, words.split()).stdout.strip() == shown


def test_a_call_without_words_shows_help() -> None:
    """Without arguments the help is printed with status 0, as in argparse4j."""
    result = CliRunner().invoke(many, [])
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: many")


def test_paces() -> None:
    """A negative rate never waits, zero waits forever, others wait by the count."""
    assert Pace(-1).lead_s(10**9) == 0
    assert Pace(0).lead_s(0) == float("inf")
    assert 9 < Pace(10).lead_s(100) <= 10
    assert Pace(10).lead_s(0) == 0


def test_numbers_as_java_prints_them() -> None:
    """Divisions by zero give NaN or infinity; percentiles of no values are 0."""
    assert [decimals(ratio(1, 0), 1), decimals(ratio(0, 0), 1)] == ["Infinity", "NaN"]
    assert decimals(ratio(1, 3), 3) == "0.333"
    assert percentile([], 0.5) == 0
    assert percentile(list(range(100)), 0.99) == 99


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2024-03-05 21:07:09:045"),
        ("yy/M/d 'o''clock' h:m a", "24/3/5 o'clock 9:7 PM"),
        ("MMM EEE ''", "Mar Tue '"),
    ],
)
def test_dates(pattern: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's pattern letters, their repetitions and quotes."""
    monkeypatch.setitem(os.environ, "TZ", "UTC")
    time.tzset()
    try:
        assert java_date(pattern, 1_709_672_829_045) == shown
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(click.UsageError, match="Illegal pattern character 'Q'"):
        java_date("Q", 0)


def test_metrics_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are sorted and as wide as the longest name."""
    tags = (("client-id", "c"), ("topic", "t"))
    values: dict[str, float | str] = {"bb": 1.0, "a": "text", "c": float("nan")}
    print_metrics({MetricName("g", name, tags): value for name, value in values.items()})
    assert capsys.readouterr().out == (
        "\nMetric Name                   Value\n"
        "g:a:{client-id=c, topic=t}  : text\n"
        "g:bb:{client-id=c, topic=t} : 1.000\n"
        "g:c:{client-id=c, topic=t}  : NaN\n"
    )


# ---------------------------------------------------------------- producer


def test_sums_of_a_run() -> None:
    """Counts, average, maximum and percentiles of acknowledged records."""
    stats = Stats(100, interval_ms=60_000)
    for latency_ms in range(100):
        stats.record(latency_ms, 10, 0)
    line = stats.total_line()
    assert line.startswith("100 records sent, ")
    assert line.endswith(
        "49.50 ms avg latency, 99.00 ms max latency, 50 ms 50th, 95 ms 95th, 99 ms 99th, "
        "99 ms 99.9th."
    )


def test_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    """A report closes a window; without records it only opens the next."""
    stats = Stats(10, interval_ms=0, is_steady=True)
    later_ms = time.time_ns() // 1_000_000 + 10
    stats.record(5, 100, later_ms)
    stats.record(7, 100, later_ms)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "In steady state."
    assert [line.split(" records sent")[0] for line in rest] == ["1", "1"]
    assert rest[1].endswith("7.0 ms avg latency, 7.0 ms max latency.")
    stats.is_silent = True
    stats.record(5, 100, later_ms)
    assert capsys.readouterr().out == ""


def test_nothing_acknowledged() -> None:
    """A run without a response reports zeros instead of failing."""
    assert "NaN ms avg latency" in Stats(1, interval_ms=1).total_line()


@pytest.mark.parametrize(
    ("text", "delimiter", "parts"),
    [
        ("\na\n\nb\n", "\\n", [b"a", b"", b"b"]),
        ("a,b;c", "[,;]", [b"a", b"b", b"c"]),
        ("whole", "\\n", [b"whole"]),
    ],
)
def test_payload_files(text: str, delimiter: str, parts: list[bytes], tmp_path: Path) -> None:
    """Files are split at a delimiter; one at the beginning or end creates no record."""
    path = tmp_path / "payloads"
    path.write_text(text)
    assert _read_payloads(str(path), delimiter) == parts


def test_wrong_flags_are_refused() -> None:
    """Usage errors are reported before a record is sent."""
    arguments = ["--topic", "t", "--num-records", "1", "--throughput", "1", "--record-size", "0"]
    result = CliRunner().invoke(producer_perf_test, arguments)
    assert "--record-size should be greater than zero." in result.stderr
    assert result.exit_code != 0


# ---------------------------------------------------------------- consumer


class FakeConsumer:
    """Returns two batches, then none; calls the listener first."""

    def __init__(self) -> None:
        self.batches: Iterator[Any] = iter(
            [[(HALF, [(0, 0, b"k", b"value", ())])], [(HALF, [(1, 0, None, None, ())] * 2)]]
        )

    def subscribe(self, _topics: list[str], *, listener: Any) -> None:
        """Assign at once."""
        listener.on_partitions_assigned((HALF,))
        listener.on_partitions_revoked((HALF,))
        listener.on_partitions_assigned((HALF,))

    def poll_batches(self, _timeout: float) -> Any:
        """Return the next batches."""
        return next(self.batches, [])


def test_reading(capsys: pytest.CaptureFixture[str]) -> None:
    """All bytes and records are counted; too few are reported; details follow each interval."""
    flags = {
        "num_records": 9,
        "timeout": 0,
        "topic": "t",
        "include": None,
        "reporting_interval": 0,
        "show_detailed_stats": True,
        "date_format": "yyyy",
    }
    consumer: Any = FakeConsumer()
    once = reading.ConsumerRun(consumer, flags)
    once._reported_ms -= 1000
    once.run()
    once.finish()
    out = capsys.readouterr().out
    assert "timeout (0 ms) exceeded" in out
    flags["show_detailed_stats"] = False
    once.finish()
    assert ", 3, " in capsys.readouterr().out


def test_an_invalid_pattern_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Python's error of the pattern is reported without a traceback."""
    arguments = ("--bootstrap-server", "127.0.0.1:1", "--num-records", "1", "--include", "a(")
    status, _, said = run(capsys, "consumer-perf-test", *arguments)
    assert status == 1
    assert said.startswith("a( is an invalid regex: missing ), unterminated subpattern")


# ---------------------------------------------------------------- latency


def answer(value: bytes, key: bytes | None = None) -> ConsumerRecord:
    """Make a record as a consumer returns it."""
    fields = dict.fromkeys(ConsumerRecord._fields)
    return ConsumerRecord(**{**fields, "value": value, "key": key, "headers": ()})  # type: ignore[arg-type]  # other fields are not used


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "poll() timed out"),
        ([answer(b"x")], "The message value read [x] did not match the message value sent [v]"),
        (
            [answer(b"v", b"k")],
            "The message key read [k] did not match the message key sent [null]",
        ),
        ([answer(b"v"), answer(b"v")], "We found [2]"),
    ],
)
def test_wrong_answers(records: list[ConsumerRecord], message: str) -> None:
    """The record read is compared with the record sent."""
    with pytest.raises(MismatchError) as raised:
        _compare(records, b"v", None, ())
    assert message in str(raised.value)


def test_latency_takes_the_old_form() -> None:
    """Five or six positional arguments are the deprecated form; other counts are refused."""
    result = CliRunner().invoke(end_to_end_latency, ["a", "b", "c"])
    assert "Expected 5 or 6 positional arguments, but got 3." in result.stderr
    result = CliRunner().invoke(end_to_end_latency, ["h:1", "t", "5", "2", "10"])
    assert result.stdout.startswith("WARNING: Positional argument usage is deprecated")
    assert "Please use '1' or 'all'." in result.stderr


# ---------------------------------------------------------------- replicas


def batch(offset: int, value: bytes = b"v") -> RecordBatch:
    """Make a batch of one record."""
    return RecordBatch(encode_batch([(0, None, value, ())], base_offset=offset))


def fetched(*batches: RecordBatch, high_watermark: int = 100) -> ReplicaFetch:
    """Make one replica's answer."""
    return ReplicaFetch(high_watermark, iter(batches))


def test_equal_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    """The offset advances as far as all replicas agree, below the high watermark."""
    both = {1: fetched(batch(0), batch(1), batch(2)), 2: fetched(batch(0), batch(1))}
    assert compare(HALF, both, 0) == 2
    low = {1: fetched(batch(0), batch(1), high_watermark=1), 2: fetched(batch(0), batch(1))}
    assert compare(HALF, low, 0) == 1
    assert compare(HALF, {}, 7) == 7
    assert capsys.readouterr().out == ""


def test_unequal_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    """Different bytes are reported; different offsets end the run."""
    assert compare(HALF, {1: fetched(batch(0)), 2: fetched(batch(0, b"w"))}, 0) == 1
    assert (
        "partition t-0 has unmatched checksum at offset 0; replica 1's" in capsys.readouterr().out
    )
    with pytest.raises(Mismatch, match="replica 1's offset 0 doesn't match replica 2's offset 5"):
        compare(HALF, {1: fetched(batch(0)), 2: fetched(batch(5))}, 0)
