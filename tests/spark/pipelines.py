"""A streaming query from one topic to another, for tests of the exactly-once sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla import Admin, Consumer, Producer, TopicPartition
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


LIMIT_S = 300
"""Of one run; on a busy machine it takes ten times as long as on an idle one."""


def numbers(bootstrap: str, topic: str, start: int, end: int) -> None:
    """Send numbers to both partitions of a topic."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(start, end):
            producer.send(topic, b"%d" % number, partition=number % 2)


def committed(bootstrap: str, topic: str) -> list[int]:
    """Return the values that a reader of committed records finds, in order of their size.

    It waits for open transactions: EndTxn is answered before the markers are written.
    """
    wait_until_stable(bootstrap, topic)
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[int] = []
        while any(consumer.position(one) < ends[one] for one in partitions):
            found += [int(record.value) for record in consumer.poll(0.2)]
    return sorted(found)


def wait_until_stable(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open in both partitions of a topic."""
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with (
        Consumer(bootstrap_servers=bootstrap) as everything,
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as stable,
    ):
        wait_for(lambda: stable.end_offsets(partitions) == everything.end_offsets(partitions))


class Pipeline:
    """A query from one topic to another, which may be started again on its checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path, name: str) -> None:
        self.spark, self.bootstrap, self.name = spark, bootstrap, name
        self.checkpoint = directory / "checkpoint"
        self.source, self.sink = f"{name}-in", f"{name}-out"
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(self.source, partitions=2)
            admin.create_topic(self.sink, partitions=2)

    def read(self, **options: str) -> DataFrame:
        """Return the source."""
        return (
            self.spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )

    def run(self, frame: DataFrame | None = None, **options: str) -> None:
        """Run until all that is there is written."""
        query = (
            (self.read() if frame is None else frame)
            .selectExpr("value")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("kafka.group.id", self.name)
            .option("topic", self.sink)
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(LIMIT_S)

    def forget_commit(self, batch: int) -> None:
        """Take back Spark's own note that a batch is done, as if the driver had died before."""
        for path in (self.checkpoint / "commits").glob(f"*{batch}*"):
            path.unlink()

    def offsets(self) -> dict[TopicPartition, Any]:
        """Return the group's committed offsets."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            return admin.list_group_offsets(self.name)
