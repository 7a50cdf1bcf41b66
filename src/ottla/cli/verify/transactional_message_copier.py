"""`ottla transactional-message-copier`: copy a partition in transactions, for system tests.

Kafka: org.apache.kafka.tools.TransactionalMessageCopier.
"""

from __future__ import annotations

import random
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.options.argparse4j import INTEGER, ArgparseCommand, need
from ottla.cli.output.failures import java_text
from ottla.cli.output.message_json import json_text
from ottla.cli.verify.events import StopRequest
from ottla.clients.consumer.core import GroupMetadata, RebalanceListener
from ottla.errors import ErrorCode, FatalTransactionError, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.blocking import Consumer, Producer
    from ottla.clients.consumer.record_decoder import ConsumerRecord

_POLL_S: Final = 0.2
_UNKNOWN: Final = 0x7FFF_FFFF_FFFF_FFFF
"""The number of remaining records while a group member has no partitions."""
_ABORTED_IN: Final = 3

_REQUIRED: Final = (
    "input-topic",
    "input-partition",
    "output-topic",
    "broker-list",
    "transactional-id",
)

EXAMPLES = """
\b
Examples:
  ottla transactional-message-copier --broker-list localhost:9092 --input-topic numbers \\
      --input-partition 0 --output-topic copies --transactional-id copier --consumer-group copier
"""


@click.command("transactional-message-copier", cls=ArgparseCommand, epilog=EXAMPLES)
@click.option("--input-topic", help="REQUIRED. The topic to read.")
@click.option("--input-partition", type=INTEGER, help="REQUIRED. The partition to read.")
@click.option("--output-topic", help="REQUIRED. The topic to write.")
@click.option("--broker-list", metavar="HOST:PORT,…", help="REQUIRED. Where to connect.")
@click.option("--max-messages", type=INTEGER, default=-1, help="Number of records; -1: to the end.")
@click.option("--consumer-group", default="-1", help="The group whose offsets are committed.")
@click.option("--transaction-size", type=INTEGER, default=200, help="Records in a transaction.")
@click.option("--transaction-timeout", type=INTEGER, default=60_000, help="In ms.")
@click.option("--transactional-id", help="REQUIRED. The producer's transactional id.")
@click.option("--enable-random-aborts", is_flag=True, help="Abort a third of the transactions.")
@click.option("--group-mode", is_flag=True, help="Subscribe; the input partition is ignored.")
@click.option("--use-group-metadata", is_flag=True, help="Commit as a member of the group.")
def transactional_message_copier(**flags: Any) -> None:
    """Copy records in transactions that carry the consumed offsets; report progress as JSON."""
    for flag in _REQUIRED:
        need(flags[flag.replace("-", "_")], f"--{flag}")
    from ottla.clients.blocking import Consumer, Producer

    stop = StopRequest()
    stop.listen()
    try:
        with (
            Producer(
                config={
                    "bootstrap.servers": flags["broker_list"],
                    "transactional.id": flags["transactional_id"],
                    "transaction.timeout.ms": flags["transaction_timeout"],
                    "batch.size": 512,
                    "max.in.flight.requests.per.connection": 5,
                }
            ) as producer,
            Consumer(
                config={
                    "bootstrap.servers": flags["broker_list"],
                    "group.id": flags["consumer_group"],
                    "isolation.level": "read_committed",
                    "max.poll.records": flags["transaction_size"],
                    "enable.auto.commit": "false",
                    "session.timeout.ms": 10_000,
                    "max.poll.interval.ms": 180_000,
                    "heartbeat.interval.ms": 3_000,
                    "auto.offset.reset": "earliest",
                }
            ) as consumer,
        ):
            copier = Copier(consumer, producer, flags)
            copier.run(stop)
    except KafkaError as error:
        click.echo(java_text(error), err=True)
        sys.exit(1)
    copier.report("ShutdownComplete")
    sys.exit(stop.status)


class Copier(RebalanceListener):
    """Copies the records of a consumer with a transactional producer."""

    def __init__(self, consumer: Consumer, producer: Producer, flags: dict[str, Any]) -> None:
        self._consumer = consumer
        self._producer = producer
        self._flags = flags
        self._limit: int = flags["max_messages"] if flags["max_messages"] >= 0 else _UNKNOWN
        self._remaining = self._limit
        self._consumed = 0
        """Records since the last rebalance."""
        self._total = 0

    def report(self, stage: str) -> None:
        """Print the state as a line of JSON."""
        now_s = time.time()
        stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now_s))
        document = {
            "transactionalId": self._flags["transactional_id"],
            "stage": stage,
            "time": f"{stamp}:{int(now_s * 1000) % 1000:03d}",
            "totalProcessed": self._total,
            "consumed": self._consumed,
            "remaining": self._remaining,
        }
        click.echo(json_text(document))

    def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Count the remaining records of the partitions."""
        self._remaining = sum(self._left_in(partition) for partition in partitions)
        self._consumed = 0
        self.report("RebalanceComplete")

    def run(self, stop: StopRequest) -> None:
        """Copy until nothing remains or a signal is received. Raises KafkaError."""
        self._producer.init_transactions()
        self._begin()
        while self._remaining > 0 and not stop.number:
            self.report("ProcessLoop")
            records = self._consumer.poll(_POLL_S)
            if records:
                self._copy(records)

    def _begin(self) -> None:
        topic = self._flags["input_topic"]
        if self._flags["group_mode"]:
            self._consumer.subscribe([topic], listener=self)
            return
        partition = TopicPartition(topic, self._flags["input_partition"])
        self._consumer.assign([partition])
        self._remaining = min(self._left_in(partition), self._limit)

    def _left_in(self, partition: TopicPartition) -> int:
        end = self._consumer.end_offsets([partition])[partition]
        return max(end - self._consumer.position(partition), 0)

    def _copy(self, records: list[ConsumerRecord]) -> None:
        try:
            is_committed = self._in_transaction(records)
        except FatalTransactionError as error:
            text = (
                f"The transactional.id {self._flags['transactional_id']} has been claimed by "
                "another process"
            )
            fenced = error.code is ErrorCode.PRODUCER_FENCED
            raise KafkaError(error.code, text if fenced else error.message) from error
        except KafkaError:
            is_committed = False
        if is_committed:
            self._remaining -= len(records)
            self._consumed += len(records)
            self._total += len(records)
        else:
            self._abort()

    def _in_transaction(self, records: list[ConsumerRecord]) -> bool:
        """Copy records; return False for a transaction that is to be aborted."""
        producer = self._producer
        producer.begin_transaction()
        for one in records:
            producer.send(
                self._flags["output_topic"], one.value, key=one.key, partition=one.partition
            )
        after = {
            TopicPartition(record.topic, record.partition): record.offset + 1 for record in records
        }
        group = self._consumer.group_metadata()
        if not self._flags["use_group_metadata"]:
            group = GroupMetadata(self._flags["consumer_group"], -1, "", None)
        producer.send_offsets_to_transaction(after, group)
        if self._flags["enable_random_aborts"] and not random.randrange(_ABORTED_IN):  # noqa: S311 - no secret
            return False
        producer.commit_transaction()
        return True

    def _abort(self) -> None:
        """Abort the transaction and read again from the committed offsets."""
        self._producer.abort_transaction()
        partitions = self._consumer.assignment
        for partition, committed in self._consumer.committed(partitions).items():
            if committed is None:
                self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, committed.offset)
