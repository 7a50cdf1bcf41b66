"""`ottla verifiable-consumer`: consume in a group and report all events as JSON.

Kafka: bin/kafka-verifiable-consumer.sh, org.apache.kafka.tools.VerifiableConsumer.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options.argparse4j import INTEGER, ArgparseCommand, need, refuse
from ottla.cli.options.connection import consumer_settings, read_file
from ottla.cli.options.flags import warn_deprecated
from ottla.cli.output.failures import java_text, kafka_message
from ottla.cli.verify.events import EventWriter, StopRequest
from ottla.clients.consumer.core import RebalanceListener
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.blocking import Consumer
    from ottla.records.record import Record
    from ottla.types import TopicPartition

_POLL_S = 0.2

EXAMPLES = """
\b
Examples:
  ottla verifiable-consumer --bootstrap-server localhost:9092 --topic numbers --group-id checks
  ottla verifiable-consumer --bootstrap-server localhost:9092 --topic numbers --group-id checks \\
      --max-messages 1000 --verbose
"""


@click.command("verifiable-consumer", cls=ArgparseCommand, epilog=EXAMPLES)
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="REQUIRED. Where to connect.")
@click.option("--topic", help="REQUIRED. The topic to read.")
@click.option("--group-id", help="REQUIRED. The group to read in.")
@click.option("--group-protocol", default="classic", help="classic or consumer.")
@click.option("--group-remote-assignor", help="Assignor of the consumer protocol.")
@click.option("--group-instance-id", help="Name of a static member.")
@click.option("--max-messages", type=INTEGER, default=-1, help="Number of records; -1: no limit.")
@click.option("--session-timeout", type=INTEGER, help="Time without a heartbeat, in ms.")
@click.option("--verbose", is_flag=True, help="Print each record too.")
@click.option("--enable-autocommit", is_flag=True, help="Commit in the background.")
@click.option("--reset-policy", default="earliest", help="earliest, latest or none.")
@click.option(
    "--assignment-strategy",
    default="org.apache.kafka.clients.consumer.RangeAssignor",
    help="Assignor of the classic protocol.",
)
@click.option("--consumer.config", "consumer_config", hidden=True)
@click.option("--command-config", metavar="FILE", help="A consumer's settings.")
def verifiable_consumer(**flags: Any) -> None:
    """Read a topic and print rebalances, records and commits as lines of JSON."""
    need(flags["group_id"], "--group-id")
    need(flags["topic"], "--topic")
    need(flags["bootstrap_server"], "--bootstrap-server")
    settings = consumer_settings(_settings(flags))
    from ottla.clients.blocking import Consumer

    events, stop = EventWriter(), StopRequest()
    stop.listen()
    try:
        consumer = Consumer(config=settings)
    except KafkaError as error:
        click.echo(java_text(error), err=True)
        sys.exit(1)
    run = VerifiableConsumerRun(consumer, events, flags)
    try:
        run.read_all(stop)
    except KafkaError as error:  # Kafka logs it and shuts down normally
        click.echo(java_text(error), err=True)
    if stop.number:
        events.write("shutdown_requested")
    consumer.close()
    events.write("shutdown_complete")
    if not stop.number:
        events.write("shutdown_requested")
    sys.exit(stop.status)


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    if flags["consumer_config"] and flags["command_config"]:
        refuse("Options --consumer.config and --command-config are mutually exclusive.")
    if flags["consumer_config"]:
        warn_deprecated("consumer.config")
    given: dict[str, Any] = read_file(flags["command_config"] or flags["consumer_config"])
    if flags["group_protocol"].lower() == "consumer":
        given["group.protocol"] = flags["group_protocol"]
        if flags["group_remote_assignor"] is not None:
            given["group.remote.assignor"] = flags["group_remote_assignor"]
    else:
        given["partition.assignment.strategy"] = flags["assignment_strategy"]
        if flags["session_timeout"] is not None:
            given["session.timeout.ms"] = flags["session_timeout"]
    given["group.id"] = flags["group_id"]
    if flags["group_instance_id"] is not None:
        given["group.instance.id"] = flags["group_instance_id"]
    given["bootstrap.servers"] = flags["bootstrap_server"]
    given["enable.auto.commit"] = "true" if flags["enable_autocommit"] else "false"
    given["auto.offset.reset"] = flags["reset_policy"]
    return given


class VerifiableConsumerRun(RebalanceListener):
    """One consumer and its events."""

    def __init__(self, consumer: Consumer, events: EventWriter, flags: dict[str, Any]) -> None:
        self._consumer = consumer
        self._events = events
        self._flags = flags
        self._consumed = 0

    def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Report assigned partitions."""
        self._events.write(
            "partitions_assigned", partitions=[_named(partition) for partition in partitions]
        )

    def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Report revoked partitions."""
        self._events.write(
            "partitions_revoked", partitions=[_named(partition) for partition in partitions]
        )

    def _is_finished(self) -> bool:
        limit: int = self._flags["max_messages"]
        return 0 <= limit <= self._consumed

    def read_all(self, stop: StopRequest) -> None:
        """Read until the limit is reached or a signal is received. Raises KafkaError."""
        self._events.write("startup_complete")
        self._consumer.subscribe([self._flags["topic"]], listener=self)
        while not stop.number and not self._is_finished():
            batches = self._consumer.poll_batches(_POLL_S)
            if not batches:
                continue
            offsets = self._report(batches)
            if not self._flags["enable_autocommit"]:
                self._commit(offsets)

    def _report(
        self, batches: list[tuple[TopicPartition, list[Record]]]
    ) -> dict[TopicPartition, int]:
        """Report consumed records; return the offsets to commit."""
        offsets: dict[TopicPartition, int] = {}
        summaries = []
        for partition, records in _merged(batches).items():
            if self._flags["max_messages"] >= 0:
                del records[self._flags["max_messages"] - self._consumed :]
            if not records:
                continue
            first, last = records[0].offset, records[-1].offset
            offsets[partition] = last + 1
            summaries.append(
                {**_named(partition), "count": len(records), "minOffset": first, "maxOffset": last}
            )
            if self._flags["verbose"]:
                for record in records:
                    self._events.write(
                        "record_data",
                        key=_text(record.key),
                        value=_text(record.value),
                        topic=partition.topic,
                        partition=partition.partition,
                        offset=record.offset,
                    )
            self._consumed += len(records)
        total = sum(len(records) for _, records in batches)
        self._events.write("records_consumed", count=total, partitions=summaries)
        return offsets

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        shown = [{**_named(partition), "offset": offset} for partition, offset in offsets.items()]
        try:
            self._consumer.commit(offsets)
        except KafkaError as error:
            if error.code is ErrorCode.FENCED_INSTANCE_ID:
                raise
            self._events.write(
                "offsets_committed", offsets=shown, error=kafka_message(error), success=False
            )
            return
        self._events.write("offsets_committed", offsets=shown, success=True)


def _merged(
    batches: list[tuple[TopicPartition, list[Record]]],
) -> dict[TopicPartition, list[Record]]:
    """Join the batches of each partition."""
    found: dict[TopicPartition, list[Record]] = {}
    for partition, records in batches:
        found.setdefault(partition, []).extend(records)
    return found


def _named(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
