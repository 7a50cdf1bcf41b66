"""`ottla verifiable-producer`: send numbers and report the result of each as JSON.

Kafka: bin/kafka-verifiable-producer.sh, org.apache.kafka.tools.VerifiableProducer.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.argparse4j import INTEGER, LONG, ArgparseCommand, need, refuse
from ottla.cli.options.connection import producer_settings, read_file
from ottla.cli.options.flags import warn_deprecated
from ottla.cli.output.failures import java_class, java_text, kafka_message
from ottla.cli.output.java_format import ratio
from ottla.cli.perf.producer_perf_test import Pace
from ottla.cli.verify.events import EventWriter, StopRequest
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.clients.blocking import Producer
    from ottla.clients.producer.batches import Delivery

EXAMPLES = """
\b
Examples:
  ottla verifiable-producer --bootstrap-server localhost:9092 --topic numbers --max-messages 1000
  ottla verifiable-producer --bootstrap-server localhost:9092 --topic numbers --throughput 100 \\
      --repeating-keys 10 --value-prefix 7
"""


@click.command("verifiable-producer", cls=ArgparseCommand, epilog=EXAMPLES)
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED. Where to connect.")
@click.option("--topic", help="REQUIRED. The topic to send to.")
@click.option("--max-messages", type=INTEGER, default=-1, help="Number of records; -1: no limit.")
@click.option("--throughput", type=INTEGER, default=-1, help="Records a second; -1: no limit.")
@click.option("--acks", type=INTEGER, default=-1, help="-1, 0 or 1.")
@click.option("--producer.config", "producer_config", hidden=True)
@click.option("--command-config", metavar="FILE", help="A producer's settings.")
@click.option("--message-create-time", type=LONG, default=-1, help="First timestamp, in ms.")
@click.option("--value-prefix", type=INTEGER, help="Prefix each value with this number and a dot.")
@click.option("--repeating-keys", type=INTEGER, help="Repeat the keys 0, 1, … below this number.")
def verifiable_producer(**flags: Any) -> None:
    """Send increasing numbers and print the result of each as a line of JSON."""
    need(flags["topic"], "--topic")
    if flags["bootstrap_server"] is None:
        refuse("one of the arguments --bootstrap-server is required")
    if flags["acks"] not in {-1, 0, 1}:
        refuse(f"argument --acks: invalid choice: '{flags['acks']}' (choose from {{0,1,-1}})")
    settings = producer_settings(_settings(flags))
    from ottla.clients.blocking import Producer

    events, stop = EventWriter(), StopRequest()
    stop.listen()
    began_s = time.monotonic()
    try:
        with Producer(config=settings) as producer:
            run = VerifiableProducerRun(producer, events, flags)
            run.send_all(stop)
    except KafkaError as error:
        click.echo(java_text(error), err=True)
        sys.exit(1)
    events.write("shutdown_complete")
    run.sum_up(time.monotonic() - began_s)
    sys.exit(stop.status)


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the settings; the file overrides flags, as in Kafka. Retries are off."""
    if flags["producer_config"] and flags["command_config"]:
        refuse("Options --producer.config and --command-config are mutually exclusive.")
    if flags["producer_config"]:
        warn_deprecated("producer.config")
    return {
        "bootstrap.servers": flags["bootstrap_server"],
        "acks": str(flags["acks"]),
        "retries": "0",
        **read_file(flags["command_config"] or flags["producer_config"]),
    }


class VerifiableProducerRun:
    """Counts of sent and acknowledged records; callbacks run in the producer's thread."""

    def __init__(self, producer: Producer, events: EventWriter, flags: dict[str, Any]) -> None:
        self._producer = producer
        self._events = events
        self._flags = flags
        self._sent = self._acknowledged = 0

    def send_all(self, stop: StopRequest) -> None:
        """Send at the requested rate until the limit is reached or a signal is received."""
        flags = self._flags
        pace = Pace(flags["throughput"])
        keys = _keys(flags["repeating_keys"])
        stamps = _timestamps(flags["message_create_time"])
        self._events.write("startup_complete")
        for number in itertools.count():
            if stop.number or 0 <= flags["max_messages"] <= number:
                break
            prefix = flags["value_prefix"]
            value = f"{number}" if prefix is None else f"{prefix}.{number}"
            key = next(keys)
            timestamp_ms = next(stamps)
            self._sent += 1
            try:
                self._producer.send(
                    self._flags["topic"],
                    value.encode(),
                    None if key is None else key.encode(),
                    timestamp_ms=timestamp_ms,
                    on_delivery=self._reporter(key, value),
                )
            except KafkaError as error:
                self._failed(key, value, error)
            while not stop.number and (lead := pace.lead_s(number + 1)) > 0:
                time.sleep(min(lead, 0.1))

    def _reporter(self, key: str | None, value: str) -> Callable[[Delivery], None]:
        def report(delivery: Delivery) -> None:
            error = delivery.error
            if error is not None:
                self._failed(key, value, error)
                return
            self._acknowledged += 1
            stored = delivery.metadata
            self._events.write(
                "producer_send_success",
                key=key,
                value=value,
                offset=stored.offset,
                topic=stored.topic,
                partition=stored.partition,
            )

        return report

    def _failed(self, key: str | None, value: str, error: KafkaError) -> None:
        self._events.write(
            "producer_send_error",
            topic=self._flags["topic"],
            key=key,
            value=value,
            exception=f"class {java_class(error)}",
            message=kafka_message(error),
        )

    def sum_up(self, elapsed_s: float) -> None:
        """Write the final event."""
        self._events.write(
            "tool_data",
            sent=self._sent,
            acked=self._acknowledged,
            target_throughput=self._flags["throughput"],
            avg_throughput=ratio(self._acknowledged, elapsed_s),
        )


def _keys(count: int | None) -> Iterator[str | None]:
    return itertools.repeat(None) if count is None else map(str, itertools.cycle(range(count)))


def _timestamps(first_ms: int) -> Iterator[int | None]:
    """Yield the first timestamp, then later ones increased by the elapsed time."""
    if first_ms == -1:
        yield from itertools.repeat(None)
    began_s = time.monotonic()
    stamp_ms = first_ms
    while True:
        yield stamp_ms
        stamp_ms += int((time.monotonic() - began_s) * 1000)
