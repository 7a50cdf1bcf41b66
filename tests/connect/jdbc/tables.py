"""Tasks without a worker, and the tables and records that they move."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect import data
from ottla.connect.data import Struct, struct
from ottla.connect.jdbc.sink import JdbcSinkTask
from ottla.connect.jdbc.source import JdbcSourceConnector, JdbcSourceTask
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.connect.jdbc.databases import Server

KINDS = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.conformance),
    pytest.param("mariadb", marks=pytest.mark.conformance),
]
REAL = KINDS[1:]


TASKS: list[JdbcSinkTask | JdbcSourceTask] = []


class SourceContext:
    """Keeps offsets as a worker does."""

    transaction = None

    def __init__(self, stored: Mapping[str, Any] | None = None) -> None:
        self.config: Mapping[str, str] = {}
        self.stored = dict(stored or {})
        self.reconfigurations = 0

    def offset(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self.stored.get(json.dumps(partition, sort_keys=True))

    def offsets(self, partitions: Any) -> list[Mapping[str, Any] | None]:
        return [self.offset(it) for it in partitions]

    def put(self, record: SourceRecord) -> None:
        self.stored[json.dumps(record.source_partition, sort_keys=True)] = record.source_offset

    def request_task_reconfiguration(self) -> None:
        self.reconfigurations += 1

    def raise_error(self, error: Exception) -> None:
        raise error


class SinkContext:
    """Keeps what a sink requests and refuses."""

    def __init__(self, *, tolerates: bool = False) -> None:
        self.config: Mapping[str, str] = {}
        self.timeout_ms = -1
        self.refused: list[tuple[SinkRecord, Exception]] = []
        self.tolerates = tolerates

    def set_timeout_ms(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms

    def report_errant(self, record: SinkRecord, error: Exception) -> None:
        assert self.tolerates
        self.refused.append((record, error))


def source_task(server: Server, context: SourceContext, more: Mapping[str, str]) -> JdbcSourceTask:
    """Return the started task of a connector with one task."""
    config = {
        **server.settings, "name": "s", "topic.prefix": "t-", "mode": "bulk",
        "poll.interval.ms": "0", **more,
    }  # fmt: skip
    connector = JdbcSourceConnector()
    connector.context = context
    connector.start(config)
    (task_config,) = connector.task_configs(1)
    connector.stop()
    task = JdbcSourceTask()
    task.context = context  # type: ignore[assignment]
    task.start(task_config)
    TASKS.append(task)
    return task


def drain(task: JdbcSourceTask, count: int, context: SourceContext | None = None) -> list[Any]:
    """Return so many records, and at least one poll after them that is empty or repeats them."""
    records: list[SourceRecord] = []
    for _ in range(200):
        batch = task.poll() or ()
        for record in batch:
            records.append(record)
            if context is not None:
                context.put(record)
        if len(records) >= count:
            return records
    raise AssertionError(f"{len(records)} records")


def sink_task(
    server: Server, more: Mapping[str, str], context: SinkContext | None = None
) -> JdbcSinkTask:
    """Return a started task."""
    task = JdbcSinkTask()
    task.context = context or SinkContext()  # type: ignore[assignment]
    task.start({**server.settings, "auto.create": "true", **more})
    TASKS.append(task)
    return task


def record(
    value: Struct | None, offset: int = 0, *, key: Any = None, topic: str = "orders"
) -> SinkRecord:
    """Return a record of partition 3."""
    key_schema = key.schema if isinstance(key, Struct) else data.INT64 if key is not None else None
    return SinkRecord(
        topic, 3, key_schema, key, None if value is None else value.schema, value,
        offset=offset, original=TopicPartition(topic, 3),
    )  # fmt: skip


ORDER = struct(
    "order", id=data.INT64, item=data.STRING.as_optional(), price=data.decimal(2).as_optional()
)
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}


def order(number: int, item: str | None = "tea", price: str = "1.50") -> Struct:
    return Struct(ORDER, id=number, item=item, price=Decimal(price))


def rows_of(server: Server, columns: str = "id, item", table: str = "orders") -> list[Any]:
    return server.sql(f"SELECT {columns} FROM {table} ORDER BY 1")


def numbers(records: list[SourceRecord]) -> list[int]:
    return [it.value["id"] for it in records]


CREATE = {
    "sqlite": "CREATE TABLE {} (id INTEGER PRIMARY KEY NOT NULL, ts DATETIME, item TEXT)",
    "postgresql": "CREATE TABLE {} (id BIGSERIAL PRIMARY KEY, ts TIMESTAMP(6), item TEXT)",
    "mariadb": (
        "CREATE TABLE {} (id BIGINT AUTO_INCREMENT PRIMARY KEY, ts DATETIME(6), item TEXT)"
    ),
}


def fill(server: Server, ids: range, *, seconds: int = 0, table: str = "items") -> None:
    """Add rows, with timestamps of the same second or one second apart."""
    for number in ids:
        moment = f"2024-05-01 10:00:{number * seconds:02}.123456"
        server.sql(f"INSERT INTO {table} VALUES ({number}, '{moment}', 'i{number}')")
