"""`ottla producer-perf-test`: measure the throughput and latency of a producer.

Kafka: bin/kafka-producer-perf-test.sh, org.apache.kafka.tools.ProducerPerformance,
org.apache.kafka.server.util.ThroughputThrottler.
"""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.argparse4j import DOUBLE, INTEGER, LONG, ArgparseCommand, need, refuse
from ottla.cli.options.connection import pairs, producer_settings, read_file
from ottla.cli.options.flags import warn_deprecated
from ottla.cli.output.failures import fail, failure_text, java_text
from ottla.cli.output.java_format import BYTES_PER_MB, decimals, percentile, print_metrics, ratio
from ottla.errors import KafkaError
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.blocking import Producer
    from ottla.clients.producer.batches import Delivery, ProducerBatch

_KEPT_LATENCIES = 500_000
_ID_PREFIX = "performance-producer-"
_DEFAULT_DURATION_MS = 3000
_SOURCES = ("record_size", "payload_file", "payload_monotonic")

EXAMPLES = """
\b
Examples:
  ottla producer-perf-test --bootstrap-server localhost:9092 --topic load --num-records 1000000 \\
      --record-size 100 --throughput -1
  ottla producer-perf-test --bootstrap-server localhost:9092 --topic load --num-records 60000 \\
      --payload-file lines.txt --throughput 1000 --command-property acks=1 linger.ms=20
"""


@click.command("producer-perf-test", cls=ArgparseCommand, epilog=EXAMPLES)
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="The server(s) to connect to.")
@click.option("--topic", help="REQUIRED. The topic to send to.")
@click.option("--num-records", type=LONG, help="REQUIRED. How many records to send.")
@click.option("--throughput", type=DOUBLE, help="REQUIRED. Records a second; -1 has no limit.")
@click.option("--record-size", type=INTEGER, help="Size of records of random letters, in bytes.")
@click.option("--payload-file", metavar="FILE", help="Choose records from this file at random.")
@click.option("--payload-delimiter", default="\\n", help="Delimiter between records in the file.")
@click.option("--payload-monotonic", is_flag=True, help="Send 0, 1, 2, ….")
@click.option("--producer-props", multiple=True, hidden=True)
@click.option(
    "--command-property", multiple=True, metavar="NAME=VALUE …", help="A producer's settings."
)
@click.option("--producer.config", "producer_config", hidden=True)
@click.option("--command-config", metavar="FILE", help="A producer's settings.")
@click.option("--print-metrics", "prints_metrics", is_flag=True, help="Show the client's metrics.")
@click.option("--transactional-id", help="Transactional id: send records in transactions.")
@click.option("--transaction-duration-ms", type=LONG, help="Duration of a transaction.")
@click.option("--warmup-records", type=LONG, default=0, help="Records excluded from steady state.")
@click.option("--reporting-interval", type=LONG, default=5000, help="Time between reports, in ms.")
def producer_perf_test(**flags: Any) -> None:
    """Send records at the requested rate and report rates and latencies."""
    _check(flags)
    payload = _payload(flags)
    given = _settings(flags)
    from ottla.clients.blocking import Producer

    if flags["warmup_records"] > 0:
        click.echo(
            f"Warmup first {flags['warmup_records']} records. Steady state results will print "
            "after the complete test summary."
        )
    try:
        with Producer(config=producer_settings(given)) as producer:
            run = ProducerRun(producer, flags)
            run.send_all(payload)
            producer.flush()
            measured = producer.metrics() if flags["prints_metrics"] else None
        run.finish()
    except KafkaError as error:
        fail(failure_text(error))
    if measured is not None:
        print_metrics(measured)


def _check(flags: dict[str, Any]) -> None:
    for name in ("throughput", "num_records", "topic"):
        need(flags[name], f"--{name.replace('_', '-')}")
    given = [
        f"--{name.replace('_', '-')}"
        for name in _SOURCES
        if flags[name] is not None and flags[name] is not False
    ]
    if len(given) > 1:
        refuse(f"argument {given[-1]}: not allowed with argument {given[0]}")
    if not given:
        refuse("one of the arguments --record-size --payload-file --payload-monotonic is required")
    flags["warmup_records"] = max(flags["warmup_records"], 0)
    if flags["num_records"] <= 0:
        refuse("--num-records should be greater than zero.")
    if flags["warmup_records"] >= flags["num_records"]:
        refuse(
            "The value for --warmup-records must be strictly fewer than the number of records in "
            "the test, --num-records."
        )
    if flags["record_size"] is not None and flags["record_size"] <= 0:
        refuse("--record-size should be greater than zero.")
    _check_settings(flags)


def _check_settings(flags: dict[str, Any]) -> None:
    places = ("bootstrap_server", "command_property", "producer_props", "producer_config")
    if not any(flags[name] for name in (*places, "command_config")):
        refuse(
            "At least one of --bootstrap-server, --command-property, --producer-props, "
            "--producer.config or --command-config must be specified."
        )
    if flags["command_property"] and flags["producer_props"]:
        refuse("--command-property and --producer-props cannot be specified together.")
    if flags["command_config"] and flags["producer_config"]:
        refuse("--command-config and --producer.config cannot be specified together.")
    for name in ("transaction_duration_ms", "reporting_interval"):
        if flags[name] is not None and flags[name] <= 0:
            refuse(f"--{name.replace('_', '-')} should be greater than zero.")


def _payload(flags: dict[str, Any]) -> Callable[[int], bytes]:
    """Return a function from a record's number to its value."""
    rng = Random(0)  # noqa: S311 - the same load each time, as in Kafka
    if flags["payload_file"] is not None:
        values = _read_payloads(flags["payload_file"], flags["payload_delimiter"])
        return lambda _number: rng.choice(values)
    size = flags["record_size"]
    if size is None:
        return lambda number: b"%d" % number
    letters = bytes(65 + byte % 26 for byte in range(256))
    random_bytes = rng.randbytes
    return lambda _number: random_bytes(size).translate(letters)


def _read_payloads(name: str, delimiter: str) -> list[bytes]:
    path = Path(name)
    click.echo(f"Reading payloads from: {path.absolute()}")
    if not path.exists() or not path.stat().st_size:
        raise click.ClickException("File does not exist or empty file provided.")
    parts = re.split("\n" if delimiter == "\\n" else delimiter, path.read_text(encoding="utf-8"))
    if not parts[0]:
        del parts[0]
    if parts and not parts[-1]:
        del parts[-1]
    click.echo(f"Number of records read: {len(parts)}")
    if not parts:
        raise click.ClickException("The payload file contains only delimiters.")
    return [part.encode() for part in parts]


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    if flags["producer_props"]:
        warn_deprecated("producer-props", "command-property")
    if flags["producer_config"]:
        warn_deprecated("producer.config")
    given: dict[str, Any] = read_file(flags["command_config"] or flags["producer_config"])
    given |= pairs(flags["command_property"] or flags["producer_props"])
    if flags["bootstrap_server"]:
        given["bootstrap.servers"] = flags["bootstrap_server"]
    given.setdefault("client.id", "perf-producer-client")
    if flags["transactional_id"] or flags["transaction_duration_ms"] is not None:
        generated = f"{_ID_PREFIX}{Uuid(secrets.token_bytes(16))}"
        given["transactional.id"] = flags["transactional_id"] or generated
    return given


# ---------------------------------------------------------------- measurements


class Stats:
    """Counts and latencies (ms) of acknowledged records, in total and since the last report."""

    def __init__(self, records: int, *, interval_ms: int, is_steady: bool = False) -> None:
        self._began_ms = self._window_began_ms = _now_ms()
        self._sampling = max(1, records // min(records, _KEPT_LATENCIES))
        self._interval_ms = interval_ms
        self._is_steady = is_steady
        self.is_silent = False
        self._latencies: list[int] = []
        self.count = self._bytes = self._latency_sum = self._highest = 0
        self._new_window()

    def _new_window(self) -> None:
        self._window_count = self._window_bytes = self._window_sum = self._window_highest = 0
        self._window_began_ms = _now_ms()

    def record(self, latency_ms: int, size: int, now_ms: int) -> None:
        """Count one acknowledged record."""
        if self.count % self._sampling == 0:
            self._latencies.append(latency_ms)
        self.count += 1
        self._bytes += size
        self._latency_sum += latency_ms
        self._highest = max(self._highest, latency_ms)
        self._window_count += 1
        self._window_bytes += size
        self._window_sum += latency_ms
        self._window_highest = max(self._window_highest, latency_ms)
        if now_ms - self._window_began_ms >= self._interval_ms:
            if self._is_steady and self.count == self._window_count:
                click.echo("In steady state.")
            if not self.is_silent:
                elapsed = _now_ms() - self._window_began_ms
                click.echo(
                    f"{self._window_count} records sent, "
                    f"{decimals(ratio(1000.0 * self._window_count, elapsed), 1)} records/sec "
                    f"({decimals(ratio(1000.0 * self._window_bytes, elapsed) / BYTES_PER_MB, 2)} "
                    f"MB/sec), {decimals(ratio(self._window_sum, self._window_count), 1)} ms avg "
                    f"latency, {self._window_highest:.1f} ms max latency."
                )
            self._new_window()

    def total_line(self) -> str:
        """Return the summary line."""
        elapsed = _now_ms() - self._began_ms
        ordered = sorted(self._latencies)
        p50, p95, p99, p999 = (percentile(ordered, part) for part in (0.5, 0.95, 0.99, 0.999))
        return (
            f"{self.count}{' steady state' if self._is_steady else ''} records sent, "
            f"{decimals(ratio(1000.0 * self.count, elapsed), 6)} records/sec "
            f"({decimals(ratio(1000.0 * self._bytes, elapsed) / BYTES_PER_MB, 2)} MB/sec), "
            f"{decimals(ratio(self._latency_sum, self.count), 2)} ms avg latency, "
            f"{self._highest:.2f} ms max latency, {p50} ms 50th, {p95} ms 95th, {p99} ms 99th, "
            f"{p999} ms 99.9th."
        )


class _Sent:
    """The records of one batch: send times, sizes, and the time of their completion."""

    __slots__ = ("done_ms", "first", "records")

    def __init__(self, first: Delivery) -> None:
        self.first = first
        self.records: list[tuple[int, int, bool]] = []
        self.done_ms = -1

    def finished(self, _delivery: Delivery) -> None:
        """Store the time of completion; called in the producer's thread."""
        self.done_ms = _now_ms()


class _Transactions:
    """Transactions of --transaction-duration-ms; does nothing without transactional.id."""

    def __init__(self, producer: Producer, flags: dict[str, Any]) -> None:
        given_ms = flags["transaction_duration_ms"]
        self._is_enabled = bool(flags["transactional_id"]) or given_ms is not None
        self._duration_ms = _DEFAULT_DURATION_MS if given_ms is None else given_ms
        self._producer = producer
        self._began_ms: int | None = None
        if self._is_enabled:
            producer.init_transactions()

    def begin_if_due(self) -> None:
        """Begin a transaction unless one is open."""
        if self._is_enabled and self._began_ms is None:
            self._producer.begin_transaction()
            self._began_ms = _now_ms()

    def commit_if_due(self, now_ms: int) -> None:
        """Commit a transaction that is open for the duration."""
        if self._began_ms is not None and now_ms - self._began_ms >= self._duration_ms:
            self.commit()

    def commit(self) -> None:
        """Commit the open transaction, if there is one."""
        if self._began_ms is not None:
            self._producer.commit_transaction()
            self._began_ms = None


class ProducerRun:
    """Sends all records. The producer's thread only stores times; this class does the counting."""

    def __init__(self, producer: Producer, flags: dict[str, Any]) -> None:
        self._producer = producer
        self._flags = flags
        self._interval_ms = flags["reporting_interval"]
        self._stats = Stats(flags["num_records"], interval_ms=self._interval_ms)
        self._steady: Stats | None = None
        self._waiting: dict[ProducerBatch, _Sent] = {}
        self._transactions = _Transactions(producer, flags)

    def send_all(self, payload: Callable[[int], bytes]) -> None:
        """Send all records at the requested rate."""
        flags = self._flags
        warmup, count, topic = flags["warmup_records"], flags["num_records"], flags["topic"]
        pace = Pace(flags["throughput"]) if flags["throughput"] >= 0 else None
        send = self._producer.send
        last_batch: ProducerBatch | None = None
        records: list[tuple[int, int, bool]] = []
        for number in range(count):
            value = payload(number)
            self._transactions.begin_if_due()
            began_ms = _now_ms()
            if warmup and number == warmup:
                left = self._flags["num_records"] - self._flags["warmup_records"]
                self._steady = Stats(left, interval_ms=self._interval_ms, is_steady=True)
                self._stats.is_silent = True
            try:
                delivery = send(topic, value)
            except KafkaError as error:
                self._failed(error)
                continue
            if delivery.batch is not last_batch:
                last_batch = delivery.batch
                records = self._records_of(delivery)
            records.append((began_ms, len(value), self._steady is not None))
            self._transactions.commit_if_due(began_ms)
            if pace is not None and pace.lead_s(number + 1) > 0:
                self._collect()
                pace.wait(number + 1)

        self._transactions.commit()

    def _records_of(self, delivery: Delivery) -> list[tuple[int, int, bool]]:
        from ottla.clients.producer.producer import call_on_delivery

        self._collect()
        sent = self._waiting.get(delivery.batch)
        if sent is None:
            sent = self._waiting[delivery.batch] = _Sent(delivery)
            call_on_delivery(delivery, sent.finished)
        return sent.records

    def _collect(self) -> None:
        """Count completed batches, to which no more records are added."""
        done = [(batch, sent) for batch, sent in self._waiting.items() if sent.done_ms >= 0]
        for batch, sent in done:
            del self._waiting[batch]
            error = sent.first.error
            for began_ms, size, is_steady in sent.records:
                if error is not None:
                    self._failed(error)
                    continue
                latency_ms = sent.done_ms - began_ms
                self._stats.record(latency_ms, size, sent.done_ms)
                if is_steady and self._steady is not None:
                    self._steady.record(latency_ms, size, sent.done_ms)

    def _failed(self, error: KafkaError) -> None:
        click.echo(java_text(error), err=True)

    def finish(self) -> None:
        """Print the totals."""
        self._collect()
        click.echo(self._stats.total_line())
        if self._steady is not None:
            click.echo(self._steady.total_line())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Pace:
    """Delays a loop to at most `rate` iterations per second; a negative rate is unlimited."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = time.monotonic()

    def lead_s(self, done: int) -> float:
        """Return the delay before the next iteration; infinite for a rate of 0."""
        if self._rate < 0:
            return 0.0
        if self._rate == 0:
            return float("inf")
        return max(0.0, done / self._rate - (time.monotonic() - self._began))

    def wait(self, done: int) -> None:
        """Sleep until `done` iterations conform to the rate."""
        while (lead := self.lead_s(done)) > 0:
            time.sleep(min(lead, 1.0))
