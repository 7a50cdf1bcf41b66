"""`ottla verifiable-share-consumer`: consume in a share group and report all events as JSON.

Kafka: bin/kafka-verifiable-share-consumer.sh, org.apache.kafka.tools.VerifiableShareConsumer.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.argparse4j import INTEGER, ArgparseCommand, need, refuse
from ottla.cli.options.connection import consumer_settings, open_admin, read_file
from ottla.cli.output.failures import java_text, kafka_message
from ottla.cli.verify.events import EventWriter, StopRequest
from ottla.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from ottla.clients.share.blocking import ShareConsumer
    from ottla.types import TopicPartition

_POLL_S = 0.2
MODES = ("auto", "sync", "async")
STRATEGIES = ("earliest", "latest")

EXAMPLES = """
\b
Examples:
  ottla verifiable-share-consumer --bootstrap-server localhost:9092 --topic numbers \\
      --group-id checks --offset-reset-strategy earliest --max-messages 1000
"""


@click.command("verifiable-share-consumer", cls=ArgparseCommand, epilog=EXAMPLES)
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED. Where to connect.")
@click.option("--topic", help="REQUIRED. The topic to read.")
@click.option("--group-id", help="REQUIRED. The share group to read in.")
@click.option("--max-messages", type=INTEGER, default=-1, help="Number of records; -1: no limit.")
@click.option("--verbose", is_flag=True, help="Print each record too.")
@click.option("--acknowledgement-mode", default="auto", help="auto, sync or async.")
@click.option(
    "--offset-reset-strategy", default="", help="Where the group begins: earliest or latest."
)
@click.option("--command-config", metavar="FILE", help="A consumer's settings.")
def verifiable_share_consumer(**flags: Any) -> None:
    """Read a topic and print records and acknowledgements as lines of JSON."""
    need(flags["topic"], "--topic")
    need(flags["group_id"], "--group-id")
    need(flags["bootstrap_server"], "--bootstrap-server")
    mode, strategy = flags["acknowledgement_mode"].lower(), flags["offset_reset_strategy"].lower()
    if mode not in MODES:
        refuse(f"argument --acknowledgement-mode: invalid choice: '{mode}' (choose from {MODES})")
    given = read_file(flags["command_config"])
    given |= {"group.id": flags["group_id"], "bootstrap.servers": flags["bootstrap_server"]}
    settings = consumer_settings(given)
    from ottla.clients.share.blocking import ShareConsumer

    events, stop = EventWriter(), StopRequest()
    stop.listen()
    try:
        consumer = ShareConsumer(config=settings)
    except KafkaError as error:
        click.echo(java_text(error), err=True)
        sys.exit(1)
    run = Run(consumer, events, {**flags, "acknowledgement_mode": mode})
    try:
        events.write("startup_complete")
        if strategy:
            from ottla.clients.admin.configs import ConfigResource, ResourceType

            if strategy not in STRATEGIES:
                raise ConfigError(f"Unknown share group auto offset reset strategy: {strategy}")
            group = ConfigResource(ResourceType.GROUP, flags["group_id"])
            with open_admin(flags["bootstrap_server"], flags["command_config"]) as admin:
                failure = admin.alter_configs({group: {"share.auto.offset.reset": strategy}})[group]
            if failure is not None:
                raise failure
            events.write("offset_reset_strategy_set", offsetResetStrategy=strategy)
        run.read_all(stop)
    except KafkaError as error:  # Kafka logs it and shuts down normally
        click.echo(java_text(error), err=True)
    consumer.close()
    events.write("shutdown_complete")
    sys.exit(stop.status)


class Run:
    """One share consumer and its events."""

    def __init__(self, consumer: ShareConsumer, events: EventWriter, flags: dict[str, Any]) -> None:
        self._consumer = consumer
        self._events = events
        self._flags = flags
        self._acknowledged = 0

    def _is_finished(self) -> bool:
        limit: int = self._flags["max_messages"]
        return 0 <= limit <= self._acknowledged

    def read_all(self, stop: StopRequest) -> None:
        """Read until enough is acknowledged or a signal is received. Raises KafkaError."""
        self._consumer.subscribe([self._flags["topic"]])
        self._consumer.set_acknowledgement_callback(self._on_acknowledged)
        while not stop.number and not self._is_finished():
            records = self._consumer.poll(_POLL_S)
            if not records:
                continue
            offsets: dict[tuple[str, int], list[int]] = {}
            for record in records:
                offsets.setdefault((record.topic, record.partition), []).append(record.offset)
                if self._flags["verbose"]:
                    self._events.write(
                        "record_data",
                        key=_text(record.key),
                        value=_text(record.value),
                        topic=record.topic,
                        partition=record.partition,
                        offset=record.offset,
                    )
            shown = [_named(*place, found) for place, found in offsets.items()]
            self._events.write("records_consumed", count=len(records), partitions=shown)
            if self._flags["acknowledgement_mode"] == "async":
                self._consumer.commit_nowait()
            elif self._flags["acknowledgement_mode"] == "sync":
                for partition, error in self._consumer.commit().items():
                    if error is not None:
                        text = "Failed to commit offset synchronously for topic partition"
                        click.echo(f"{text}: {partition}", err=True)

    def _on_acknowledged(
        self, offsets: dict[TopicPartition, frozenset[int]], error: KafkaError | None
    ) -> None:
        count = sum(map(len, offsets.values()))
        shown = [_named(*place, sorted(found)) for place, found in offsets.items()]
        more = {} if error is None else {"error": kafka_message(error)}
        is_good = error is None
        self._events.write(
            "offsets_acknowledged", count=count, partitions=shown, success=is_good, **more
        )
        if is_good:
            self._acknowledged += count


def _named(topic: str, partition: int, offsets: list[int]) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "count": len(offsets), "offsets": offsets}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
