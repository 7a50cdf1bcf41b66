"""`ottla end-to-end-latency`: measure the time from sending a record to receiving it.

Kafka: bin/kafka-e2e-latency.sh, org.apache.kafka.tools.EndToEndLatency.
"""

from __future__ import annotations

import sys
import time
from random import Random
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.connection import consumer_settings, open_admin, producer_settings, read_file
from ottla.cli.options.flags import require
from ottla.cli.options.joptsimple import INTEGER, ToolCommand
from ottla.cli.output.failures import failure_text
from ottla.cli.output.java_format import decimals, percentile, ratio
from ottla.config.definition import double_text
from ottla.errors import KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.blocking import Consumer, Producer
    from ottla.clients.consumer.record_decoder import ConsumerRecord

POLL_TIMEOUT_MS = 60_000
_POSITIONAL = (
    "bootstrap-server",
    "topic",
    "num-records",
    "producer-acks",
    "record-size",
    "command-config",
)

EXAMPLES = """
\b
Examples:
  ottla end-to-end-latency --bootstrap-server localhost:9092 --topic ping --num-records 10000 \\
      --producer-acks all --record-size 100
"""


class MismatchError(Exception):
    """The record that was read differs from the record that was sent."""


class _Command(ToolCommand):
    """Also accepts the deprecated positional form, as Kafka does until 5.0."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Convert positional arguments to named ones, then parse."""
        if args and not any(word.startswith("--") for word in args):
            if len(args) not in {5, 6}:
                raise click.UsageError(
                    "Invalid number of arguments. Expected 5 or 6 positional arguments, but got "
                    f"{len(args)}. Usage: bootstrap-server topic num-records producer-acks "
                    "record-size [optional] command-config"
                )
            click.echo(
                "WARNING: Positional argument usage is deprecated and will be removed in Apache "
                "Kafka 5.0. Please use named arguments instead: --" + ", --".join(_POSITIONAL)
            )
            args = [
                part
                for name, value in zip(_POSITIONAL, args, strict=False)
                for part in (f"--{name}", value)
            ]
        return super().parse_args(ctx, args)


@click.command("end-to-end-latency", cls=_Command, epilog=EXAMPLES)
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED. Where to connect.")
@click.option("--topic", help="REQUIRED. The topic; created if it does not exist.")
@click.option("--num-records", type=INTEGER, help="REQUIRED. How many records to send.")
@click.option("--producer-acks", help="REQUIRED. 1 or all.")
@click.option("--record-size", type=INTEGER, help="REQUIRED. Bytes of a value.")
@click.option("--record-key-size", type=INTEGER, default=0, help="Bytes of a key; 0: no key.")
@click.option("--record-header-key-size", type=INTEGER, default=0, help="Bytes of a header's name.")
@click.option("--record-header-size", type=INTEGER, default=0, help="Bytes of a header; -1: null.")
@click.option("--num-headers", type=INTEGER, default=0, help="Headers of a record.")
@click.option("--command-config", metavar="FILE", help="Settings of all clients.")
def end_to_end_latency(**flags: Any) -> None:
    """Send records one by one, read each back, and report the latencies."""
    _check(flags)
    from ottla.clients.blocking import Consumer, Producer

    given: dict[str, Any] = read_file(flags["command_config"])
    given["bootstrap.servers"] = flags["bootstrap_server"]
    reading = {
        "group.id": f"test-group-{time.time_ns() // 1_000_000}",
        "enable.auto.commit": "false",
        "auto.offset.reset": "latest",
        "fetch.max.wait.ms": 0,  # the broker answers at once
    }
    writing = {"linger.ms": 0, "max.block.ms": (1 << 63) - 1, "acks": flags["producer_acks"]}
    try:
        _make_topic(flags)
        with (
            Consumer(config=consumer_settings({**given, **reading})) as consumer,
            Producer(config=producer_settings({**given, **writing})) as producer,
        ):
            topic = flags["topic"]
            # at the end of every partition before the first record is sent
            partitions = [
                TopicPartition(topic, partition.partition)
                for partition in consumer.partitions_for(topic)
            ]
            consumer.assign(partitions)
            consumer.seek_to_end(*partitions)
            for partition in partitions:
                consumer.position(partition)
            _measure(consumer, producer, flags)
    except (KafkaError, MismatchError) as error:
        click.echo(failure_text(error), err=True)
        sys.exit(1)


def _check(flags: dict[str, Any]) -> None:
    for name in ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size"):
        require(flags[name.replace("-", "_")], name)
    if flags["producer_acks"] not in {"1", "all"}:
        raise click.UsageError(
            "Invalid value for --producer-acks. Latency testing requires synchronous "
            "acknowledgement. Please use '1' or 'all'."
        )
    if flags["num_records"] <= 0:
        raise click.UsageError("Value for --num-records must be a positive integer.")
    for name, least in (
        ("record-size", 0),
        ("record-key-size", 0),
        ("record-header-key-size", 0),
        ("record-header-size", -1),
        ("num-headers", 0),
    ):
        if flags[name.replace("-", "_")] < least:
            ending = " or -1 for null header value" if least else ""
            raise click.UsageError(f"Value for --{name} must be a non-negative integer{ending}.")


def _make_topic(flags: dict[str, Any]) -> None:
    from ottla.clients.admin.topics import NewTopic

    topic = flags["topic"]
    with open_admin(flags["bootstrap_server"], flags["command_config"]) as admin:
        if any(listing.name == topic for listing in admin.list_topics()):
            return
        click.echo(
            f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and '
            "replication factor = 1"
        )
        outcome = admin.create_topics([NewTopic(topic, 1, 1)])[topic]
        if isinstance(outcome, KafkaError):
            click.echo(f"Creation of topic {topic} failed")
            raise outcome


def _measure(consumer: Consumer, producer: Producer, flags: dict[str, Any]) -> None:
    rng = Random(0)  # noqa: S311 - a load, not a secret
    count, total_ns = flags["num_records"], 0
    latencies_ms = []
    for number in range(count):
        value = _letters(rng, flags["record_size"])
        key = _letters(rng, flags["record_key_size"]) if flags["record_key_size"] else None
        headers = tuple(_header(rng, flags) for _ in range(flags["num_headers"]))
        began_ns = time.perf_counter_ns()
        producer.send(flags["topic"], value, key, headers=headers).result()
        records = consumer.poll(POLL_TIMEOUT_MS / 1000)
        elapsed_ns = time.perf_counter_ns() - began_ns
        _compare(records, value, key, headers)
        if number % 1000 == 0:
            click.echo(f"{number}\t{double_text(elapsed_ns / 1e6)}")
        total_ns += elapsed_ns
        latencies_ms.append(elapsed_ns // 1_000_000)
    latencies_ms.sort()
    click.echo(f"Avg latency: {decimals(ratio(total_ns / 1e6, count), 4)} ms")
    p50, p99, p999 = (percentile(latencies_ms, part) for part in (0.5, 0.99, 0.999))
    click.echo(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")


def _letters(rng: Random, size: int) -> bytes:
    return bytes([rng.randrange(65, 91)]) * size


def _header(rng: Random, flags: dict[str, Any]) -> tuple[str, bytes | None]:
    size = flags["record_header_size"]
    name = _letters(rng, flags["record_header_key_size"]).decode()
    return name, None if size < 0 else _letters(rng, size)


def _compare(
    records: list[ConsumerRecord],
    value: bytes,
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    """Raise MismatchError unless the record read equals the record sent."""
    if not records:
        raise MismatchError(
            f"poll() timed out before finding a result (timeout:[{POLL_TIMEOUT_MS}ms])"
        )
    first = records[0]
    if first.value != value:
        raise MismatchError(
            f"The message value read [{_shown(first.value)}] did not match the message value sent "
            f"[{_shown(value)}]"
        )
    if first.key != key:
        raise MismatchError(
            f"The message key read [{_shown(first.key)}] did not match the message key sent "
            f"[{_shown(key)}]"
        )
    if tuple(first.headers) != headers:
        raise MismatchError("The message headers read did not match those sent")
    if len(records) != 1:
        raise MismatchError(
            f"Only one result was expected during this test. We found [{len(records)}]"
        )


def _shown(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "replace")
