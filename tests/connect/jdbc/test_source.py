"""The source: against SQLite, and in conformance runs against real servers."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect import data
from ottla.connect.data import Schema
from ottla.connect.errors import ConnectException, DataException, RetriableException
from ottla.connect.jdbc.database import split_name
from ottla.connect.jdbc.dialects import Sqlite
from ottla.connect.jdbc.source import JdbcSourceConnector
from ottla.connect.records import SinkRecord
from tests.connect.jdbc.tables import (
    CREATE,
    KINDS,
    REAL,
    UPSERT,
    SourceContext,
    drain,
    fill,
    numbers,
    record,
    rows_of,
    sink_task,
    source_task,
)
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.connect.jdbc.databases import Server


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_bulk_reads_the_table_each_time(server: Server) -> None:
    """All rows, again and again, without offsets."""
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 6))
    task = source_task(server, SourceContext(), {"batch.max.rows": "2"})
    records = drain(task, 10)
    task.stop()
    assert numbers(records)[:10] == [1, 2, 3, 4, 5] * 2
    assert records[0].source_offset is None
    assert records[0].value_schema is not None
    assert records[0].value_schema.name == "items"
    assert records[0].topic == "t-items"


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_incrementing_goes_on_from_its_offset(server: Server) -> None:
    """After a restart the next row; an offset that Confluent's connector stored counts."""
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 6))
    context = SourceContext()
    mode = {"mode": "incrementing", "incrementing.column.name": "id", "batch.max.rows": "2"}
    task = source_task(server, context, mode)
    assert numbers(drain(task, 5, context)) == [1, 2, 3, 4, 5]
    task.stop()
    fill(server, range(6, 8))
    task = source_task(server, context, mode)
    assert numbers(drain(task, 2, context)) == [6, 7]
    task.stop()
    names = {"sqlite": "items", "postgresql": "public.items", "mariadb": "test.items"}
    partition = json.dumps({"protocol": "1", "table": names[server.kind]})
    assert context.stored == {partition: {"incrementing": 7}}
    older = SourceContext({json.dumps({"table": "items"}): {"incrementing": 4}})
    task = source_task(server, older, {**mode, "incrementing.column.name": ""})
    if server.kind == "sqlite":
        with pytest.raises(ConnectException, match="columns that increment themselves"):
            task.poll()
    else:
        assert numbers(drain(task, 3)) == [5, 6, 7]
    task.stop()


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_rows_of_the_same_timestamp_are_never_lost(server: Server) -> None:
    """Whatever record was the last one whose offset was stored."""
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 4))
    fill(server, range(4, 6), seconds=1)
    mode = {
        "mode": "timestamp", "timestamp.column.name": "ts", "validate.non.null": "false",
        "batch.max.rows": "2",
    }  # fmt: skip
    task = source_task(server, SourceContext(), mode)
    records = drain(task, 5)
    task.stop()
    assert sorted(numbers(records)) == [1, 2, 3, 4, 5]
    for sent in range(1, 6):
        context = SourceContext()
        context.put(records[sent - 1])
        again = source_task(server, context, mode)
        seen = set(numbers(records[:sent]))
        rest = 5 - (0 if sent < 3 else sent)
        seen |= set(numbers(drain(again, rest))) if rest else set()
        again.stop()
        assert seen == {1, 2, 3, 4, 5}
    assert records[4].source_offset == {
        "timestamp": 1_714_557_605_123,
        "timestamp_nanos": 123_456_000,
    }


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_timestamp_and_number_are_exact(server: Server) -> None:
    """Each row once from any offset, also at equal timestamps; a change comes again."""
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 5))
    mode = {
        "mode": "timestamp+incrementing", "timestamp.column.name": "ts",
        "incrementing.column.name": "id", "validate.non.null": "false", "batch.max.rows": "3",
    }  # fmt: skip
    task = source_task(server, SourceContext(), mode)
    records = drain(task, 4)
    assert numbers(records) == [1, 2, 3, 4]
    for sent in range(1, 4):
        context = SourceContext()
        context.put(records[sent - 1])
        again = source_task(server, context, mode)
        assert numbers(drain(again, 4 - sent)) == [1, 2, 3, 4][sent:]
        again.stop()
    server.sql("UPDATE items SET ts = '2024-05-01 11:00:00' WHERE id = 2")
    assert numbers(drain(task, 1)) == [2]
    task.stop()


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01 10:00:00.120", "2024-05-01 10:00:00.000", "2024-05-01T10:00:00",
        "2024-05-01 10:00:00Z", "2024-05-01 12:00:00.5+02:00", "2024-05-01",
    ],
)  # fmt: skip
@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_moments_compare_however_sqlite_has_them(server: Server, text: str) -> None:
    """The texts of equal moments differ: no row is lost by that, and none comes for ever."""
    server.sql(CREATE[server.kind].format("items"))
    server.sql(f"INSERT INTO items VALUES (1, '{text}', 'x')")
    mode = {"timestamp.column.name": "ts", "validate.non.null": "false", "mode": "timestamp"}
    task = source_task(server, SourceContext(), mode)
    assert numbers(drain(task, 1)) == [1]
    assert [task.poll() for _ in range(3)] == [None] * 3
    task.stop()
    mode |= {"mode": "timestamp+incrementing", "incrementing.column.name": "id"}
    task = source_task(server, SourceContext(), mode)
    assert numbers(drain(task, 1)) == [1]
    server.sql(f"INSERT INTO items VALUES (2, '{text}', 'x')")
    assert numbers(drain(task, 1)) == [2]
    assert [task.poll() for _ in range(3)] == [None] * 3
    server.sql("UPDATE items SET ts = 'soon'")
    with pytest.raises(ConnectException, match="A query failed"):
        drain(task, 1)
    task.stop()


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_rows_of_the_last_moments_wait(server: Server) -> None:
    """timestamp.delay.interval.ms leaves rows alone whose transactions may overlap."""
    server.sql(CREATE[server.kind].format("items"))
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    for number, age_s in ((1, 60), (2, 1)):
        moment = (now - dt.timedelta(seconds=age_s)).isoformat(" ")
        server.sql(f"INSERT INTO items VALUES ({number}, '{moment}', 'x')")
    mode = {"mode": "timestamp", "timestamp.column.name": "ts", "validate.non.null": "false"}
    task = source_task(server, SourceContext(), {**mode, "timestamp.delay.interval.ms": "30000"})
    assert numbers(drain(task, 1)) == [1]
    assert [task.poll() for _ in range(3)] == [None] * 3
    task.stop()
    mode["timestamp.initial"] = "-1"
    task = source_task(server, SourceContext(), mode)
    assert [task.poll() for _ in range(3)] == [None] * 3
    task.stop()


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_a_query_is_read_as_a_table(server: Server) -> None:
    """With its own WHERE and percent signs, in bulk and by increments."""
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 6))
    query = "SELECT id, item FROM items WHERE item LIKE 'i%' AND id % 2 = 1"
    for mode in ("bulk", "incrementing"):
        context = SourceContext()
        more = {"mode": mode, "query": query, "incrementing.column.name": "id"}
        task = source_task(server, context, more)
        records = drain(task, 3, context)
        task.stop()
        assert numbers(records)[:3] == [1, 3, 5]
        assert records[0].topic == "t-"
        assert records[0].source_partition == {"query": "query"}
    assert list(context.stored.values()) == [{"incrementing": 5}]


@pytest.mark.parametrize("server", REAL, indirect=True)
@pytest.mark.parametrize("mode", ["bulk", "incrementing"])
def test_a_query_may_end_in_a_comment(server: Server, mode: str) -> None:
    """The text after the query, query.suffix too, is no part of the comment."""
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 6))
    more = {
        "mode": mode, "query": "SELECT id FROM items -- all", "incrementing.column.name": "id",
        "query.suffix": "LIMIT 2",
    }  # fmt: skip
    task = source_task(server, SourceContext(), more)
    assert numbers(list(task.poll() or ())) == [1, 2]
    task.stop()


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_rows_of_a_poll_that_fails_come_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is lost at the end of a query, after its rows were read."""
    monkeypatch.setattr("ottla.connect.jdbc.source._RETRY_S", 0.01)
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 4))
    mode = {"mode": "incrementing", "incrementing.column.name": "id"}
    task = source_task(server, SourceContext(), mode)
    commit = task._database.commit

    def lose() -> None:
        monkeypatch.setattr(task._database, "commit", commit)
        raise RetriableException("lost")

    monkeypatch.setattr(task._database, "commit", lose)
    assert task.poll() is None
    assert numbers(drain(task, 3)) == [1, 2, 3]


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_stop_at_the_end_of_a_poll_closes_the_connection(server: Server) -> None:
    """While the poll has the lock still, and has looked for a stop for the last time."""
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 4))
    task = source_task(server, SourceContext(), {"batch.max.rows": "1"})
    lock = threading.Lock()

    class LateStop:
        """Has the worker stop the task just before the lock is free."""

        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *error: object) -> None:
            task.stop()
            lock.release()

        def acquire(self, *, blocking: bool) -> bool:
            return lock.acquire(blocking=blocking)

        def release(self) -> None:
            lock.release()

    task._lock = LateStop()  # type: ignore[assignment]
    assert numbers(list(task.poll() or ())) == [1]
    assert task._database._connection is None
    assert not lock.locked()


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_a_column_that_may_be_null_later_is_optional_then(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its type is the same: only the catalog says so, and it is not read for each query."""
    monkeypatch.setattr("ottla.connect.jdbc.source._RETRY_S", 0.01)
    table = "CREATE TABLE items (id BIGINT NOT NULL, item VARCHAR(9){})"
    server.sql(table.format(" NOT NULL"))
    server.sql("INSERT INTO items VALUES (1, 'a')")
    mode = {"mode": "incrementing", "incrementing.column.name": "id"}
    task = source_task(server, SourceContext(), mode)
    (first,) = drain(task, 1)
    assert first.value_schema.field("item").schema == data.STRING
    server.sql(f"DROP TABLE items;\n{table.format('')}")
    server.sql("INSERT INTO items VALUES (2, 'b'), (3, NULL)")
    records = drain(task, 2)
    task.stop()
    assert numbers(records) == [2, 3]
    assert records[1].value_schema.field("item").schema == data.STRING.as_optional()
    records[1].value.validate()


@pytest.mark.parametrize("server", REAL[1:], indirect=True)
def test_a_stop_reads_no_further_rows(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL reads an open result to its end before it closes a cursor: minutes of a big table."""
    server.sql(CREATE[server.kind].format("items"))
    fill(server, range(1, 6))
    task = source_task(server, SourceContext(), {"batch.max.rows": "2"})
    assert numbers(list(task.poll() or ())) == [1, 2]
    reads: list[object] = []
    monkeypatch.setattr(task._database._connection, "_read_packet", reads.append)
    task.stop()
    assert reads == []
    assert task._database._connection is None


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_tables_are_chosen_and_divided(server: Server) -> None:
    """By names and patterns; a new table has other tasks requested."""
    for name in ("a1", "a2", "b1"):
        server.sql(CREATE[server.kind].format(name))
    base = {**server.settings, "mode": "bulk", "topic.prefix": "t-", "name": "s"}

    def tables(more: Mapping[str, str], tasks: int = 1) -> list[list[str]]:
        connector = JdbcSourceConnector()
        connector.context = SourceContext()
        connector.start({**base, **more})
        configs = connector.task_configs(tasks)
        connector.stop()
        return [[split_name(it)[-1] for it in config["tables"].split(",")] for config in configs]

    assert tables({}) == [["a1", "a2", "b1"]]
    assert tables({}, 2) == [["a1", "b1"], ["a2"]]
    assert tables({}, 9) == [["a1"], ["a2"], ["b1"]]
    assert tables({"table.whitelist": "b1,nothing"}) == [["b1"]]
    assert tables({"table.blacklist": "b1"}) == [["a1", "a2"]]
    patterns = {"table.include.list": "(.*[.])?a.", "table.exclude.list": ".*2"}
    assert tables(patterns) == [["a1"]]
    server.sql("CREATE VIEW v1 AS SELECT id FROM a1")
    try:
        assert tables({"table.types": "VIEW"}) == [["v1"]]
    finally:
        server.sql("DROP VIEW v1")
    connector, context = JdbcSourceConnector(), SourceContext()
    connector.context = context
    connector.start({**base, "table.poll.interval.ms": "50"})
    server.sql(CREATE[server.kind].format("c1"))
    wait_until(lambda: context.reconfigurations)
    assert "c1" in connector.task_configs(1)[0]["tables"]
    connector.stop()


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for half a minute at most."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_a_connector_starts_while_the_database_is_away(server: Server) -> None:
    """It has no tasks at first, and requests them when the database is there again."""
    server.sql(CREATE[server.kind].format("items"))
    connector, context = JdbcSourceConnector(), SourceContext()
    connector.context = context
    config = {"mode": "bulk", "topic.prefix": "t-", "name": "s", "connection.attempts": "1"}
    server.kill()
    try:
        connector.start({**server.settings, **config})
        assert connector.task_configs(1) == []
    finally:
        server.start()
    wait_until(lambda: context.reconfigurations)
    (task,) = connector.task_configs(1)
    assert split_name(task["tables"])[-1] == "items"
    connector.stop()


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_first_search_that_cannot_succeed_ends_the_connector(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an outage came before it; later searches leave the tasks alone."""
    server.sql(CREATE[server.kind].format("items"))
    errors: list[Exception] = []
    connector, context = JdbcSourceConnector(), SourceContext()
    monkeypatch.setattr(context, "raise_error", errors.append)
    connector.context = context
    config = {
        **server.settings, "mode": "bulk", "topic.prefix": "t-", "name": "s",
        "connection.backoff.ms": "1", "table.poll.interval.ms": "1",
    }  # fmt: skip
    refusal = ConnectException("authentication failed")
    outcomes: list[Exception] = [RetriableException("away"), RetriableException("away"), refusal]
    search = Sqlite.tables

    def tables(*arguments: Any) -> Any:
        if outcomes:
            raise outcomes.pop(0)
        return search(*arguments)

    monkeypatch.setattr(Sqlite, "tables", tables)
    connector.start(config)
    wait_until(lambda: errors)
    assert errors == [refusal]
    outcomes.append(refusal)
    with pytest.raises(ConnectException, match="authentication"):
        connector.start(config)
    connector.start(config)
    outcomes.append(refusal)
    wait_until(lambda: not outcomes)
    connector.stop()
    assert (errors, context.reconfigurations) == ([refusal], 0)
    assert len(connector.task_configs(1)) == 1


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_columns_that_may_be_null_are_refused(server: Server) -> None:
    """validate.non.null, for numbers and for timestamps; and columns that are missing."""
    server.sql(CREATE[server.kind].format("items"))
    for mode, column, text in (
        ("timestamp", "ts", "all of these columns nullable"),
        ("incrementing", "gone", "No column gone"),
    ):
        settings = {"mode": mode, f"{mode}.column.name": column}
        task = source_task(server, SourceContext(), settings)
        with pytest.raises(ConnectException, match=text):
            task.poll()
        task.stop()


MOMENT = dt.datetime(2024, 2, 29, 12, 34, 56, 123_456, dt.UTC)
EARLIER = dt.datetime(2024, 2, 29, 10, 34, 56, 0, dt.UTC)
Row = tuple[str, str, str, Schema, Any]
TYPES: dict[str, list[Row]] = {
    "both": [
        ("i2", "smallint", "-5", data.INT16, -5),
        ("i4", "int", "70000", data.INT32, 70_000),
        ("i8", "bigint", "1099511627776", data.INT64, 1 << 40),
        ("n", "numeric(12,3)", "12.345", data.decimal(3), Decimal("12.345")),
        ("n0", "numeric(6)", "123456", data.decimal(0), Decimal(123_456)),
        ("s", "varchar(9)", "'näh'", data.STRING, "näh"),
        ("t", "text", "'x'", data.STRING, "x"),
        ("d", "date", "'2024-02-29'", data.DATE, dt.date(2024, 2, 29)),
        ("ti", "time(3)", "'12:34:56.789'", data.TIME, dt.time(12, 34, 56, 789_000)),
    ],
    "postgresql": [
        ("b", "boolean", "true", data.BOOLEAN, True),
        ("f4", "real", "1.5", data.FLOAT32, 1.5),
        ("f8", "float8", "2.25", data.FLOAT64, 2.25),
        ("c", "char(3)", "'ab'", data.STRING, "ab "),
        ("co", 'text COLLATE "C"', "'x'", data.STRING, "x"),
        ("nn", "numeric", "1.25", data.decimal(38), Decimal("1.25")),
        ("bi", "bytea", "'\\x00ff'", data.BYTES, b"\x00\xff"),
        ("ts", "timestamp", "'2024-02-29 12:34:56.123456'", data.TIMESTAMP, MOMENT),
        ("tz", "timestamptz", "'2024-02-29 12:34:56+02'", data.TIMESTAMP, EARLIER),
        ("j", "jsonb", "'{\"a\": 1}'", data.STRING, '{"a": 1}'),
        ("u", "uuid", f"'{uuid.UUID(int=5)}'", data.STRING, str(uuid.UUID(int=5))),
    ],
    "mariadb": [
        ("b", "boolean", "true", data.INT8, 1),
        ("f4", "float", "1.5", data.FLOAT32, 1.5),
        ("f8", "double", "2.25", data.FLOAT64, 2.25),
        ("c", "char(3)", "'ab'", data.STRING, "ab"),
        ("u1", "tinyint unsigned", "200", data.INT16, 200),
        ("u4", "int unsigned", "4000000000", data.INT64, 4_000_000_000),
        ("u8", "bigint unsigned", f"{(1 << 64) - 1}", data.decimal(0), Decimal((1 << 64) - 1)),
        ("bi", "varbinary(9)", "x'00ff'", data.BYTES, b"\x00\xff"),
        ("bl", "blob", "x'01'", data.BYTES, b"\x01"),
        ("ts", "datetime(6)", "'2024-02-29 12:34:56.123456'", data.TIMESTAMP, MOMENT),
        ("tz", "timestamp(3) NULL", "'2024-02-29 10:34:56'", data.TIMESTAMP, EARLIER),
        ("j", "json", "'{\"a\": 1}'", data.STRING, '{"a": 1}'),
        ("e", "enum('p', 'q')", "'q'", data.STRING, "q"),
        ("y", "year", "2024", data.INT16, 2024),
    ],
}


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_types_of_columns_are_those_of_confluent(server: Server) -> None:
    """Schemas and values of each type, and the same from a table that the sink makes of them."""
    table = TYPES["both"] + TYPES[server.kind]
    required = "i2"
    columns = ", ".join(
        f"{name} {kind}{' NOT NULL' if name == required else ''}" for name, kind, *_ in table
    )
    # a type without a counterpart is left out
    other = "a int[]" if server.kind == "postgresql" else "p point"
    server.sql(f"CREATE TABLE types ({columns}, {other})")
    values = ", ".join(it[2] for it in table)
    server.sql(f"INSERT INTO types VALUES ({values}, NULL)")
    task = source_task(server, SourceContext(), {})
    (read,) = drain(task, 1)
    task.stop()
    schema = read.value_schema
    assert [it.name for it in schema.fields] == [it[0] for it in table]
    for name, _, _, expected, value in table:
        assert schema.field(name).schema == (
            expected if name == required else expected.as_optional()
        )
        assert read.value[name] == value, name
    read.value.validate()
    sink = sink_task(server, {})
    sink.put([record(read.value, topic="copy")])
    task = source_task(server, SourceContext(), {"table.whitelist": "copy"})
    (copied,) = drain(task, 1)
    task.stop()
    for name, *_ in table:
        copy, original = copied.value[name], read.value[name]
        if name == "ts" and server.kind == "mariadb":  # DATETIME(3), as Connect's have
            original = original.replace(microsecond=123_000)
        if name == "n0" and server.kind == "postgresql":  # DECIMAL without a scale
            copy = copy.quantize(Decimal(1))
        assert copy == original, name


@pytest.mark.parametrize("server", REAL, indirect=True)
@pytest.mark.parametrize(
    ("mapping", "whole", "fraction"),
    [
        ("none", data.decimal(0), data.decimal(3)),
        ("precision_only", data.INT32, data.decimal(3)),
        ("best_fit", data.INT32, data.FLOAT64),
        ("best_fit_eager_double", data.INT32, data.FLOAT64),
    ],
)
def test_numbers_are_mapped(server: Server, mapping: str, whole: Schema, fraction: Schema) -> None:
    """numeric.mapping, by digits before and after the point."""
    server.sql("CREATE TABLE numbers (n0 numeric(6) NOT NULL, n3 numeric(12,3) NOT NULL)")
    server.sql("INSERT INTO numbers VALUES (7, 1.5)")
    task = source_task(
        server, SourceContext(), {"numeric.mapping": mapping, "timestamp.granularity": "nanos_long"}
    )
    (read,) = drain(task, 1)
    task.stop()
    assert [it.schema for it in read.value_schema.fields] == [
        data.INT32 if whole is data.INT32 else whole, fraction,
    ]  # fmt: skip
    assert [float(it) for it in read.value.values] == [7, 1.5]
    read.value.validate()


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_time_zones_of_columns_without_one(server: Server) -> None:
    """db.timezone is the zone of what a table says, both ways."""
    if server.kind == "mariadb":
        return  # its zones have to be loaded first
    server.sql("CREATE TABLE zones (id int, ts timestamp)")
    server.sql("INSERT INTO zones VALUES (1, '2024-07-01 12:00:00')")
    zone = {"db.timezone": "Europe/Rome"}
    task = source_task(server, SourceContext(), zone)
    (read,) = drain(task, 1)
    task.stop()
    assert read.value["ts"] == dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)
    sink_task(server, zone).put([record(read.value, topic="zones")])
    assert server.sql("SELECT DISTINCT ts FROM zones") == [(dt.datetime(2024, 7, 1, 12),)]  # noqa: DTZ001


@pytest.mark.parametrize("server", REAL[1:], indirect=True)
def test_zero_dates_of_mariadb_are_null(server: Server) -> None:
    """Where a column may be null; else the error names the column."""
    server.sql("CREATE TABLE days (id int NOT NULL, d date, ts datetime, at timestamp NULL)")
    server.sql(
        "SET sql_mode='';\nINSERT INTO days VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00')"
    )
    task = source_task(server, SourceContext(), {})
    (read,) = drain(task, 1)
    task.stop()
    assert read.value.values == [1, None, None, None]
    read.value.validate()
    server.sql("DROP TABLE days;\nCREATE TABLE days (id int, d date NOT NULL)")
    server.sql("SET sql_mode='';\nINSERT INTO days VALUES (1, '0000-00-00')")
    task = source_task(server, SourceContext(), {})
    with pytest.raises(DataException, match="Column d has the date 0000-00-00, which no calendar"):
        task.poll()
    task.stop()


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_a_number_that_is_no_decimal_fails_the_task(server: Server) -> None:
    """NaN has no counterpart; the error names the column."""
    if server.kind == "mariadb":
        return
    server.sql("CREATE TABLE numbers (n numeric)")
    server.sql("INSERT INTO numbers VALUES ('NaN')")
    task = source_task(server, SourceContext(), {})
    with pytest.raises(DataException, match="Column n"):
        task.poll()
    task.stop()


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_tables_equal_each_other_after_kills_of_the_database(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random changes, kills and restarts: what the sink has made is what the source has."""
    monkeypatch.setattr("ottla.connect.jdbc.source._RETRY_S", 0.01)
    server.sql(CREATE[server.kind].format("items"))
    mode = {
        "mode": "incrementing", "incrementing.column.name": "id", "batch.max.rows": "7",
        "table.whitelist": "items", "connection.attempts": "1",
    }  # fmt: skip
    source = source_task(server, SourceContext(), mode)
    settings = {**UPSERT, "connection.attempts": "1", "max.retries": "99"}
    sink = sink_task(server, settings)
    read, failures, waiting = 0, 0, list[SinkRecord]()
    for turn in range(60):
        if turn < 20:
            fill(server, range(turn * 10 + 1, turn * 10 + 11))
        if turn % 6 == 5:
            server.kill()
        for _ in range(2):
            got = source.poll() or ()
            waiting += [record(it.value, read, topic="copy") for it in got]
            read += len(got)
            try:
                sink.put(waiting)
                waiting = []
            except RetriableException:
                failures += 1
        if turn % 6 == 5:
            server.start()
        if turn % 9 == 8:
            sink.stop()
            sink = sink_task(server, settings)
    assert (read, waiting) == (200, [])
    assert failures
    columns = "id, item"
    assert rows_of(server, columns, "copy") == rows_of(server, columns, "items")
