"""The Spark job: weekly counts per carrier in event time, joined with the airlines' names.

Kafka: a Kafka Streams application with a windowed count and a GlobalKTable.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from ottla.errors import OttlaError
from ottla.quickstart.feed import AIRLINES, FLIGHTS, WEEKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVENT_SCHEMA = "time BIGINT, carrier STRING, departure_delay INT"
LATEST_EVENT = "14 days"
"""The watermark delay: a micro-batch ends at other days in each partition, up to four apart."""
MICRO_BATCH = 170_000
"""Offsets of a micro-batch: the year takes two, so that the job has a middle."""
GROUP = "quickstart"
"""The query's group: its offsets are committed with the results."""


def weekly_counts(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Return the streaming frame with a row for every closed week and carrier.

    The marker at the end of the topic moves the watermark past the last week; its own window
    stays open and produces no output.
    """
    source = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("maxOffsetsPerTrigger", MICRO_BATCH)
        .load()
    )
    event = sql.from_json(sql.col("value").cast("string"), EVENT_SCHEMA)
    flights = (
        source.select(event.alias("event"))
        .select("event.*")
        .withColumn("time", sql.timestamp_millis("time"))
        .withWatermark("time", LATEST_EVENT)
    )
    monday = sql.window("time", "7 days", "7 days", "4 days")
    return (
        flights.groupBy(monday.alias("week"), "carrier")
        .agg(
            sql.count("*").alias("flights"),
            sql.sum(sql.col("departure_delay").isNull().cast("int")).alias("cancelled"),
            sql.sum("departure_delay").alias("delay_minutes"),
        )
        .withColumn("week", sql.unix_millis("week.start"))
    )


def airlines_table(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Return the table of airlines from its topic."""
    return (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", AIRLINES)
        .option("columns", "key,value")
        .load()
        .selectExpr("CAST(key AS STRING) carrier", "CAST(value AS STRING) airline")
    )


def start_query(spark: SparkSession, bootstrap: str, checkpoint: str) -> StreamingQuery:
    """Start the job; it reads all available records and ends."""
    counts = weekly_counts(spark, bootstrap)
    joined = counts.join(sql.broadcast(airlines_table(spark, bootstrap)), "carrier", "left")
    fields = ("week", "carrier", "airline", "flights", "cancelled", "delay_minutes")
    return (
        joined.select(
            sql.col("carrier").alias("key"),
            sql.to_json(
                sql.struct(*fields[:5], sql.coalesce("delay_minutes", sql.lit(0)).alias(fields[5]))
            ).alias("value"),
        )
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", WEEKS)
        .option("kafka.group.id", GROUP)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


@contextmanager
def failures_reported() -> Iterator[None]:
    """Convert Spark's and Java's exceptions to OttlaError while the JVM is running."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise OttlaError(f"Spark: {cause_of(str(error))}") from None


def wait(query: StreamingQuery, progress: Callable[[int], None]) -> None:
    """Wait for the end of the job and report the rows read; raises OttlaError if it fails."""
    while not query.awaitTermination(0.1):  # type: ignore[arg-type] # fractions are accepted
        progress(sum(int(one.numInputRows) for one in query.recentProgress))
    if (failure := query.exception()) is not None:
        raise OttlaError(f"the Spark job failed: {cause_of(str(failure))}")


def cause_of(text: str) -> str:
    """Return the cause in a Spark error: the last Python exception, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("ottla.errors.")]
    if own:
        return own[-1].partition(": ")[2]
    java = [line.removeprefix(": ") for line in lines if line.startswith((": ", "Caused by: "))]
    return (java or lines or ["no reason was given"])[0]
