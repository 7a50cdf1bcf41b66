"""`ottla replica-verification`: compare the batches of a partition's replicas.

Kafka: bin/kafka-replica-verification.sh, org.apache.kafka.tools.ReplicaVerificationTool.
"""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import require, require_host_and_port, version_option
from ottla.cli.options.joptsimple import INTEGER, LONG, ToolCommand
from ottla.cli.output.failures import java_text
from ottla.cli.output.java_format import java_date
from ottla.errors import CorruptMessage, KafkaError
from ottla.protocol.apis.fetch import FetchRequest
from ottla.records.batches import iterate_batches
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.blocking import Admin
    from ottla.records.batch import RecordBatch
    from ottla.types import Uuid

DEBUGGING_CONSUMER = -2
"""The replica id that allows reading from followers and above the high watermark."""
_DATE = "yyyy-MM-dd HH:mm:ss,SSS"

EXAMPLES = """
\b
Examples:
  ottla replica-verification --broker-list localhost:9092
  ottla replica-verification --broker-list localhost:9092 --topics-include 'orders.*' --time -2
"""


class ReplicaFetch(NamedTuple):
    """The response of one replica for one partition."""

    high_watermark: int
    batches: Iterator[RecordBatch]


class Mismatch(Exception):
    """Replicas with batches at different offsets; the text is Kafka's."""


@click.command("replica-verification", cls=ToolCommand, epilog=EXAMPLES)
@version_option
@click.option("--broker-list", metavar="HOST:PORT,…", help="REQUIRED. Where to connect.")
@click.option("--fetch-size", type=INTEGER, default=1_048_576, help="Bytes per partition.")
@click.option("--max-wait-ms", type=INTEGER, default=1000, help="Maximum wait of a broker.")
@click.option("--report-interval-ms", type=INTEGER, default=30_000, help="Time between reports.")
@click.option(
    "--time",
    "from_time",
    type=LONG,
    default=-1,
    help="Start at -1 (end), -2 (start) or a time in ms.",
)
@click.option("--topics-include", default=".*", metavar="PATTERN", help="Topics to verify.")
def replica_verification(**flags: Any) -> None:
    """Compare the replicas of all partitions continuously, up to the high watermark."""
    require(flags["broker_list"], "broker-list")
    require_host_and_port(flags["broker_list"])
    try:
        pattern = re.compile(flags["topics_include"].strip().replace(",", "|").replace(" ", ""))
    except re.error as error:
        raise click.ClickException(f"{flags['topics_include']} is an invalid regex") from error
    try:
        with open_admin(flags["broker_list"], None) as admin:
            verification = ReplicaVerification(admin, pattern, flags)
            click.echo(f"{_now()}: verification process is started")
            while True:
                verification.run_once()
    except KeyboardInterrupt:
        sys.exit(130)
    except Mismatch as error:
        click.echo(str(error))
        sys.exit(1)
    except (KafkaError, CorruptMessage) as error:
        click.echo(java_text(error), err=True)
        sys.exit(1)


class ReplicaVerification:
    """The compared partitions and the offsets up to which their replicas are equal."""

    def __init__(self, admin: Admin, pattern: re.Pattern[str], flags: dict[str, Any]) -> None:
        self._admin = admin
        self._flags = flags
        self._reported_ms = _now_ms()
        listed = [topic for topic in admin.list_topics() if pattern.fullmatch(topic.name)]
        if not listed:
            sys.exit(1)
        described = admin.describe_topics([listing.name for listing in listed])
        self._topic_ids: dict[str, Uuid] = {listing.name: listing.topic_id for listing in listed}
        self._of_broker: dict[int, list[TopicPartition]] = {}
        partitions = []
        for topic in described.values():
            if isinstance(topic, KafkaError):
                raise topic
            for partition in topic.partitions:
                partitions.append(TopicPartition(topic.name, partition.partition))
                for replica in partition.replicas:
                    self._of_broker.setdefault(replica, []).append(partitions[-1])
        self.offsets = self._first_offsets(partitions)

    def _first_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        answers = self._admin.list_offsets(dict.fromkeys(partitions, self._flags["from_time"]))
        offsets = {}
        for partition, answer in answers.items():
            if isinstance(answer, KafkaError):
                raise answer
            offsets[partition] = answer.offset
        return offsets

    def run_once(self) -> None:
        """Fetch all partitions from every broker, compare them, and report at intervals."""
        fetched: dict[TopicPartition, dict[int, ReplicaFetch]] = {
            partition: {} for partition in self.offsets
        }
        for broker, partitions in self._of_broker.items():
            for partition, answer in self._fetch(broker, partitions).items():
                fetched[partition][broker] = answer
        lag, slowest = -1, None
        for partition, replicas in fetched.items():
            self.offsets[partition] = compare(partition, replicas, self.offsets[partition])
            highest = max((replica.high_watermark for replica in replicas.values()), default=-1)
            if highest - self.offsets[partition] > lag:
                lag, slowest = highest - self.offsets[partition], partition
        now_ms = _now_ms()
        if now_ms - self._reported_ms > self._flags["report_interval_ms"]:
            offset = -1 if slowest is None else self.offsets[slowest]
            click.echo(
                f"{java_date(_DATE, now_ms)}: max lag is {lag} for partition {slowest} at offset "
                f"{offset} among {len(fetched)} partitions"
            )
            self._reported_ms = now_ms

    def _fetch(
        self, broker: int, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, ReplicaFetch]:
        """Fetch from one broker; an unreachable one returns nothing and is retried later."""
        try:
            answer = self._admin.request(self._request(partitions), broker)
        except KafkaError as error:
            click.echo(java_text(error), err=True)
            time.sleep(self._flags["max_wait_ms"] / 1000)
            return {}
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        return {
            TopicPartition(
                names.get(topic.topic_id, topic.topic), partition.partition_index
            ): ReplicaFetch(
                partition.high_watermark,
                iterate_batches(partition.records or b"", partial_tail=True),
            )
            for topic in answer.responses
            for partition in topic.partitions
        }

    def _request(self, partitions: list[TopicPartition]) -> FetchRequest:
        topic_class = FetchRequest.FetchTopic
        by_topic: dict[str, list[Any]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(
                topic_class.FetchPartition(
                    partition=partition.partition,
                    fetch_offset=self.offsets[partition],
                    log_start_offset=0,
                    partition_max_bytes=self._flags["fetch_size"],
                )
            )
        state = FetchRequest.ReplicaState(replica_id=DEBUGGING_CONSUMER, replica_epoch=-1)
        return FetchRequest(
            replica_state=state,
            max_wait_ms=self._flags["max_wait_ms"],
            min_bytes=1,
            topics=[
                topic_class(topic=name, topic_id=self._topic_ids[name], partitions=requested)
                for name, requested in by_topic.items()
            ],
        )


def compare(partition: TopicPartition, replicas: dict[int, ReplicaFetch], offset: int) -> int:
    """Compare batches below the high watermark; return the offset up to which they are equal.

    Prints a line for differing checksums. Raises Mismatch for batches at different offsets.
    """
    while replicas:
        first: tuple[int, RecordBatch] | None = None
        for replica, answer in replicas.items():
            batch = next(answer.batches, None)
            if batch is None or batch.last_offset >= answer.high_watermark:
                return offset
            if first is None:
                first = (replica, batch)
                continue
            other, expected = first
            if expected.last_offset != batch.last_offset:
                raise Mismatch(
                    f"{_now()}: partition {partition}: replica {other}'s offset "
                    f"{expected.last_offset} doesn't match replica {replica}'s offset "
                    f"{batch.last_offset}"
                )
            if expected.crc != batch.crc:
                click.echo(
                    f"{_now()}: partition {partition} has unmatched checksum at offset "
                    f"{batch.last_offset}; replica {other}'s checksum {expected.crc}; replica "
                    f"{replica}'s checksum {batch.crc}"
                )
        assert first is not None
        offset = first[1].next_offset
    return offset


def _now() -> str:
    return java_date(_DATE, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
