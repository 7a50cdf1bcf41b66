"""`ottla share-consumer-perf-test`: measure the throughput of a share group's members.

Kafka: bin/kafka-share-consumer-perf-test.sh, org.apache.kafka.tools.ShareConsumerPerformance.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.options.connection import consumer_settings, pairs, read_file
from ottla.cli.options.flags import require, version_option
from ottla.cli.options.joptsimple import INTEGER, LONG, ToolCommand
from ottla.cli.output.failures import failures_reported
from ottla.cli.output.java_format import BYTES_PER_MB, decimals, java_date, print_metrics, ratio
from ottla.cli.perf.read_flags import accept_old_flags, warn_of_timeout

if TYPE_CHECKING:
    from ottla.clients.share.blocking import ShareConsumer

HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, "
    "fetch.time.ms"
)
_POLL_S = 0.1
_CLOSE_S = 0.5

EXAMPLES = """
\b
Examples:
  ottla share-consumer-perf-test --bootstrap-server localhost:9092 --topic load \\
      --num-records 1000000
  ottla share-consumer-perf-test --bootstrap-server localhost:9092 --topic load \\
      --num-records 1000000 --threads 8 --show-consumer-stats
"""


@click.command("share-consumer-perf-test", cls=ToolCommand, epilog=EXAMPLES)
@version_option
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED. Where to connect.")
@click.option("--topic", help="REQUIRED. The topic to read.")
@click.option("--group", default="perf-share-consumer", help="The share group to read in.")
@click.option("--num-records", type=LONG, help="REQUIRED. How many records to read.")
@click.option("--messages", type=LONG, hidden=True)
@click.option("--fetch-size", type=INTEGER, default=BYTES_PER_MB, help="Bytes per request.")
@click.option(
    "--socket-buffer-size", type=INTEGER, default=2 * BYTES_PER_MB, help="TCP receive buffer."
)
@click.option("--threads", type=INTEGER, default=1, help="How many share consumers read.")
@click.option("--command-property", multiple=True, metavar="NAME=VALUE", help="A setting.")
@click.option("--consumer.config", "consumer_config", hidden=True)
@click.option("--command-config", metavar="FILE", help="A consumer's settings.")
@click.option("--print-metrics", "prints_metrics", is_flag=True, help="Show the clients' metrics.")
@click.option("--show-detailed-stats", is_flag=True, help="Report at each interval.")
@click.option("--show-consumer-stats", is_flag=True, help="Report on each share consumer.")
@click.option(
    "--timeout",
    type=LONG,
    default=10_000,
    is_flag=False,
    flag_value=10_000,
    help="Maximum time without a record, in ms.",
)
@click.option("--reporting-interval", type=LONG, default=5000, help="Ms between reports.")
@click.option(
    "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", help="Format of times, as in Java."
)
@click.option("--hide-header", is_flag=True, help="Omit the header.")
def share_consumer_perf_test(**flags: Any) -> None:
    """Read records in a share group as fast as possible and report the rates."""
    require(flags["topic"], "topic")
    require(flags["bootstrap_server"], "bootstrap-server")
    accept_old_flags(flags)
    if flags["threads"] <= 0:
        raise click.ClickException("Number of threads must be greater than 0.")
    if flags["reporting_interval"] <= 0:
        raise click.ClickException("Reporting interval must be greater than 0.")
    java_date(flags["date_format"], 0)  # reports an invalid letter before reading
    given = _settings(flags)
    if not flags["hide_header"]:
        click.echo(HEADER)
    from ottla.clients.share.blocking import ShareConsumer

    with failures_reported(), ExitStack() as closing:
        consumers = []
        for number in range(flags["threads"]):
            client_id = given["client.id"]
            name = client_id if flags["threads"] == 1 else f"{client_id}-{number + 1}"
            consumer = ShareConsumer(config=consumer_settings({**given, "client.id": name}))
            closing.callback(consumer.close, _CLOSE_S)
            consumers.append((name, consumer))
        reading = Reading(flags)
        reading.run([consumer for _, consumer in consumers])
        for _, consumer in consumers:
            consumer.commit()
        measured = [one.metrics() for _, one in consumers] if flags["prints_metrics"] else []
    reading.finish([name for name, _ in consumers])
    for values in measured:
        print_metrics(values)


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = read_file(flags["command_config"] or flags["consumer_config"])
    given |= pairs(flags["command_property"])
    given |= {
        "bootstrap.servers": flags["bootstrap_server"],
        "group.id": flags["group"],
        "receive.buffer.bytes": flags["socket_buffer_size"],
        "fetch.max.bytes": flags["fetch_size"],
        "check.crcs": "false",
    }
    given.setdefault("client.id", "perf-share-consumer-client")
    return given


class Count(NamedTuple):
    """Records and bytes of one share consumer."""

    records: int = 0
    size: int = 0


class Reading:
    """One run: the counts of each share consumer."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self._flags = flags
        self._began_ms = self._ended_ms = _now_ms()
        self._counts = [Count()] * flags["threads"]

    @property
    def _total(self) -> Count:
        return Count(
            sum(count.records for count in self._counts), sum(count.size for count in self._counts)
        )

    def run(self, consumers: list[ShareConsumer]) -> None:
        """Read until there are enough records, or none arrive within the timeout."""
        for consumer in consumers:
            consumer.subscribe([self._flags["topic"]])
        self._began_ms = _now_ms()
        with ThreadPoolExecutor(len(consumers)) as pool:
            running = [pool.submit(self._read, n, one) for n, one in enumerate(consumers)]
        for one in running:
            one.result()
        self._ended_ms = _now_ms()
        if self._total.records < self._flags["num_records"]:
            warn_of_timeout(self._flags["timeout"])

    def _read(self, number: int, consumer: ShareConsumer) -> None:
        flags = self._flags
        last_ms = reported_ms = now_ms = _now_ms()
        reported = Count()
        while self._total.records < flags["num_records"] and now_ms - last_ms <= flags["timeout"]:
            records = consumer.poll(_POLL_S)
            now_ms = _now_ms()
            if not records:
                continue
            last_ms = now_ms
            size = sum(len(record.key or b"") + len(record.value or b"") for record in records)
            before = self._counts[number]
            self._counts[number] = Count(before.records + len(records), before.size + size)
            if now_ms - reported_ms >= flags["reporting_interval"]:
                if flags["show_detailed_stats"]:
                    line = self._line(reported, self._counts[number], reported_ms, now_ms)
                    click.echo(f"{line} for share consumer {number + 1}")
                reported, reported_ms = self._counts[number], now_ms

    def _line(self, before: Count, after: Count, began_ms: int, ended_ms: int) -> str:
        pattern = self._flags["date_format"]
        elapsed_ms = ended_ms - began_ms
        megabytes = after.size / BYTES_PER_MB
        rates = (
            ratio(1000.0 * (after.size - before.size) / BYTES_PER_MB, elapsed_ms),
            ratio(1000.0 * (after.records - before.records), elapsed_ms),
        )
        return (
            f"{java_date(pattern, began_ms)}, {java_date(pattern, ended_ms)}, {megabytes:.4f}, "
            f"{decimals(rates[0], 4)}, {decimals(rates[1], 4)}, {after.records}, {elapsed_ms}"
        )

    def finish(self, names: list[str]) -> None:
        """Print the totals, of each share consumer too if requested."""
        if self._flags["show_consumer_stats"]:
            for number, (name, count) in enumerate(zip(names, self._counts, strict=True)):
                line = self._line(Count(), count, self._began_ms, self._ended_ms)
                text = f"Share consumer {number + 1} having client id {name} consumption metrics-"
                click.echo(f"{text} {line}")
        click.echo(self._line(Count(), self._total, self._began_ms, self._ended_ms))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
