"""`ottla consumer-perf-test`: measure the throughput of one consumer.

Kafka: bin/kafka-consumer-perf-test.sh, org.apache.kafka.tools.ConsumerPerformance.
"""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connection import consumer_settings, pairs, read_file
from ottla.cli.options.flags import require, version_option
from ottla.cli.options.joptsimple import INTEGER, LONG, ToolCommand
from ottla.cli.output.failures import ToolError, failures_reported
from ottla.cli.output.java_format import BYTES_PER_MB, decimals, java_date, print_metrics, ratio
from ottla.cli.perf.read_flags import accept_old_flags, warn_of_timeout
from ottla.clients.consumer.core import RebalanceListener

if TYPE_CHECKING:
    from ottla.clients.blocking import Consumer
    from ottla.types import TopicPartition

_REST_OF_HEADER = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_POLL_S = 0.1

EXAMPLES = """
\b
Examples:
  ottla consumer-perf-test --bootstrap-server localhost:9092 --topic load --num-records 1000000
  ottla consumer-perf-test --bootstrap-server localhost:9092 --include 'load.*' \\
      --num-records 1000000 --show-detailed-stats --reporting-interval 1000
"""


@click.command("consumer-perf-test", cls=ToolCommand, epilog=EXAMPLES)
@version_option
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED. Where to connect.")
@click.option("--topic", help="The topic to read.")
@click.option("--include", metavar="PATTERN", help="Read all topics whose name matches.")
@click.option("--group", help="The group to read in; a new one by default.")
@click.option("--num-records", type=LONG, help="REQUIRED. How many records to read.")
@click.option("--messages", type=LONG, hidden=True)
@click.option("--fetch-size", type=INTEGER, default=BYTES_PER_MB, help="Bytes per partition.")
@click.option("--from-latest", is_flag=True, help="Start at the log end if no offset is committed.")
@click.option(
    "--socket-buffer-size", type=INTEGER, default=2 * BYTES_PER_MB, help="TCP receive buffer."
)
@click.option("--command-property", multiple=True, metavar="NAME=VALUE", help="A setting.")
@click.option("--consumer.config", "consumer_config", hidden=True)
@click.option("--command-config", metavar="FILE", help="A consumer's settings.")
@click.option("--print-metrics", "prints_metrics", is_flag=True, help="Show the client's metrics.")
@click.option("--show-detailed-stats", is_flag=True, help="Report at each interval.")
@click.option(
    "--timeout",
    type=INTEGER,
    default=10_000,
    is_flag=False,
    flag_value=10_000,
    help="Maximum time without a record, in ms.",
)
@click.option("--reporting-interval", type=INTEGER, default=5000, help="Ms between reports.")
@click.option(
    "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", help="Format of times, as in Java."
)
@click.option("--hide-header", is_flag=True, help="Omit the header.")
def consumer_perf_test(**flags: Any) -> None:
    """Read records as fast as possible and report the rates."""
    require(flags["bootstrap_server"], "bootstrap-server")
    if (flags["topic"] is None) == (flags["include"] is None):
        raise click.UsageError(
            "Exactly one of the following arguments is required: [topic], [include]"
        )
    accept_old_flags(flags)
    java_date(flags["date_format"], 0)  # reports an invalid letter before reading
    if not flags["hide_header"]:
        first = "time, threadId" if flags["show_detailed_stats"] else "start.time, end.time"
        click.echo(f"{first}, {_REST_OF_HEADER}")
    if flags["reporting_interval"] <= 0:
        raise click.ClickException("Reporting interval must be greater than 0.")
    given = _settings(flags)
    from ottla.clients.blocking import Consumer

    with failures_reported(), Consumer(config=consumer_settings(given)) as consumer:
        reading = ConsumerRun(consumer, flags)
        reading.run()
        measured = consumer.metrics() if flags["prints_metrics"] else None
    reading.finish()
    if measured is not None:
        print_metrics(measured)


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = read_file(flags["command_config"] or flags["consumer_config"])
    given |= pairs(flags["command_property"])
    number = random.randrange(100_000)  # noqa: S311 - a name, not a secret
    given |= {
        "bootstrap.servers": flags["bootstrap_server"],
        "group.id": flags["group"] or f"perf-consumer-{number}",
        "receive.buffer.bytes": flags["socket_buffer_size"],
        "max.partition.fetch.bytes": flags["fetch_size"],
        "auto.offset.reset": "latest" if flags["from_latest"] else "earliest",
        "check.crcs": "false",
    }
    given.setdefault("client.id", "perf-consumer-client")
    return given


class Joining(RebalanceListener):
    """Time that the consumer waited for partitions: total and since the last report (ms)."""

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._held: set[TopicPartition] = set()
        self.total_ms = self.window_ms = 0

    def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Start waiting when the last partition is revoked."""
        self._held.difference_update(partitions)
        if not self._held:
            self._began_ms = _now_ms()

    def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Add the time waited when the first partitions are assigned."""
        if not self._held:
            waited_ms = _now_ms() - self._began_ms
            self.total_ms += waited_ms
            self.window_ms += waited_ms
        self._held.update(partitions)


class ConsumerRun:
    """One run: counts so far and at the last report."""

    def __init__(self, consumer: Consumer, flags: dict[str, Any]) -> None:
        self._consumer = consumer
        self._flags = flags
        self._began_ms = self._ended_ms = self._reported_ms = _now_ms()
        self._joining = Joining(self._began_ms)
        self._records = self._bytes = 0
        self._reported = (0, 0)

    def run(self) -> None:
        """Read until there are enough records, or none arrive within the timeout."""
        flags = self._flags
        num_records, timeout_ms = flags["num_records"], flags["timeout"]
        if flags["topic"] is not None:
            self._consumer.subscribe([flags["topic"]], listener=self._joining)
        else:
            try:
                self._consumer.subscribe(pattern=flags["include"], listener=self._joining)
            except re.error as error:
                raise ToolError(f"{flags['include']} is an invalid regex: {error}") from error
        now_ms = self._reported_ms = last_ms = _now_ms()
        while self._records < num_records and now_ms - last_ms <= timeout_ms:
            batches = self._consumer.poll_batches(_POLL_S)
            now_ms = _now_ms()
            if batches:
                last_ms = now_ms
            for _, records in batches:
                self._records += len(records)
                self._bytes += sum(
                    len(record[2] or b"") + len(record[3] or b"") for record in records
                )
            if batches and now_ms - self._reported_ms >= flags["reporting_interval"]:
                if self._flags["show_detailed_stats"]:
                    click.echo(self._progress_line(now_ms))
                self._joining.window_ms = 0
                self._reported_ms = now_ms
                self._reported = (self._records, self._bytes)
        if self._records < num_records:
            warn_of_timeout(timeout_ms)
        self._ended_ms = _now_ms()

    def _progress_line(self, now_ms: int) -> str:
        elapsed_ms = now_ms - self._reported_ms
        joined_ms = self._joining.window_ms
        fetched_ms = elapsed_ms - joined_ms
        records = self._records - self._reported[0]
        megabytes = (self._bytes - self._reported[1]) / BYTES_PER_MB
        fetched = (0.0, 0.0)
        if fetched_ms > 0:
            fetched = (1000.0 * megabytes / fetched_ms, 1000.0 * records / fetched_ms)
        return (
            f"{java_date(self._flags['date_format'], now_ms)}, 0, "
            f"{self._bytes / BYTES_PER_MB:.4f}, "
            f"{decimals(ratio(1000.0 * megabytes, elapsed_ms), 4)}, {self._records}, "
            f"{decimals(ratio(1000.0 * records, elapsed_ms), 4)}, {joined_ms}, {fetched_ms}, "
            f"{fetched[0]:.4f}, {fetched[1]:.4f}"
        )

    def finish(self) -> None:
        """Print the totals."""
        elapsed_ms = self._ended_ms - self._began_ms
        joined_ms = self._joining.total_ms
        fetch_ms = elapsed_ms - joined_ms
        megabytes = self._bytes / BYTES_PER_MB
        if not self._flags["show_detailed_stats"]:
            pattern = self._flags["date_format"]
            click.echo(
                f"{java_date(pattern, self._began_ms)}, {java_date(pattern, self._ended_ms)}, "
                f"{megabytes:.4f}, {decimals(ratio(1000.0 * megabytes, elapsed_ms), 4)}, "
                f"{self._records}, {decimals(ratio(1000.0 * self._records, elapsed_ms), 4)}, "
                f"{joined_ms}, {fetch_ms}, {decimals(ratio(1000.0 * megabytes, fetch_ms), 4)}, "
                f"{decimals(ratio(1000.0 * self._records, fetch_ms), 4)}"
            )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
