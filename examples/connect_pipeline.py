"""From a database to a topic, counted in windows on Spark, and from there to files of Parquet.

ottla streams run examples/connect_pipeline.py --bootstrap-server localhost:9092 --checkpoint DIR

runs the middle; the two connectors are settings for a worker (`PUT /connectors/NAME/config`), whose
file has the JSON converter without schemas, and `ottla.spark.checkpoint.dir`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ottla.streams import Consumed, Record, StreamsBuilder, StreamsConfig, Suppressed, TimeWindows


def from_database(url: str) -> dict[str, str]:
    """Return the settings of the connector that reads the table `orders`, as it grows."""
    return {
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "connection.url": url,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "orders",
        "topic.prefix": "shop-",
        "poll.interval.ms": "500",
    }


def to_files(directory: str) -> dict[str, str]:
    """Return the settings of the connector that writes files of Parquet, on Spark."""
    return {
        "connector.class": "SparkFormatSink",
        "topics": "sales",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "format": "parquet",
        "schema": "item STRING, hour_ms BIGINT, orders BIGINT",
        "spark.option.path": directory,
        "consumer.override.isolation.level": "read_committed",
    }


def hour(item: Any, orders: int) -> tuple[str, dict[str, Any]]:
    """Return an hour of an item as a record."""
    return item.key, {"item": item.key, "hour_ms": item.window.start, "orders": orders}


def ordered_at(record: Record, partition_time: int) -> int:
    """Return the time of an order, not that of its record."""
    del partition_time
    moment: int = record.value["at_ms"]
    return moment


builder = StreamsBuilder(StreamsConfig(application_id="sales-by-hour"))
(
    builder.stream("shop-orders", consumed=Consumed(timestamp_extractor=ordered_at))
    .group_by(lambda _, order: order["item"])
    .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(hours=1)))
    .count()
    .suppress(Suppressed.until_window_closes())
    .to_stream()
    .map(hour)
    .to("sales")
)
