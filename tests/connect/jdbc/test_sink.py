"""The sink: against SQLite, and in conformance runs against real servers."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect import data
from ottla.connect.data import Struct, struct
from ottla.connect.errors import ConnectException, RetriableException
from ottla.connect.records import SinkRecord
from ottla.types import TopicPartition
from tests.connect.jdbc.databases import Server
from tests.connect.jdbc.tables import (
    KINDS,
    REAL,
    UPSERT,
    SinkContext,
    SourceContext,
    drain,
    order,
    record,
    rows_of,
    sink_task,
    source_task,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_records_are_inserted_into_a_table_that_is_created(server: Server) -> None:
    """Plain inserts; a field that comes later is a new column if evolution is allowed."""
    task = sink_task(server, {"auto.evolve": "true"})
    task.put([record(order(1)), record(order(2, None))])
    more = struct("order", id=data.INT64, note=data.STRING.as_optional())
    task.put([record(Struct(more, id=3, note='it\'s "50%"')), record(order(4))])
    task.stop()
    rows = [(1, "tea", None), (2, None, None), (3, None, 'it\'s "50%"'), (4, "tea", None)]
    assert rows_of(server, "id, item, note") == rows


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_upserts_update_and_tombstones_delete(server: Server) -> None:
    """The last change of a key counts, within a batch too; columns that a record lacks stay."""
    settings = {
        "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "k",
        "delete.enabled": "true", "batch.size": "2", "auto.evolve": "true",
    }  # fmt: skip
    task = sink_task(server, settings)
    task.put([record(order(it), key=it) for it in (1, 2, 3, 1)])
    short = struct("order", id=data.INT64)
    task.put(
        [
            record(order(10, "milk"), key=1),
            record(None, key=2),
            record(Struct(short, id=11), key=1),
            record(None, key=3),
            record(order(12, "ice"), key=3),
            record(None, key=99),
        ]
    )
    assert rows_of(server, "k, id, item") == [(1, 11, "milk"), (3, 12, "ice")]
    task.put([record(order(1), key=5), record(None, key=5), record(Struct(short, id=5), key=5)])
    assert rows_of(server, "k, id, item")[-1] == (5, 5, None)
    task.stop()


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_keys_that_are_equal_for_the_database_keep_their_order(server: Server) -> None:
    """A collation may ignore case: a delete that came later does not go before an insert."""
    if server.kind == "postgresql":
        server.sql(
            "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', "
            "deterministic = false)"
        )
    key_type = {
        "sqlite": "TEXT COLLATE NOCASE",
        "postgresql": "TEXT COLLATE nocase",
        "mariadb": "VARCHAR(9) COLLATE utf8mb4_general_ci",
    }[server.kind]
    server.sql(f"CREATE TABLE orders (k {key_type} PRIMARY KEY, item TEXT)")
    settings = {
        "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "k",
        "delete.enabled": "true",
    }  # fmt: skip
    task = sink_task(server, settings)
    item = struct("order", item=data.STRING)
    changes = [("A", "one"), ("a", None), ("b", "two"), ("B", "three"), ("b", "four")]
    task.put(
        [
            SinkRecord(
                "orders", 3, data.STRING, key,
                None if text is None else item, None if text is None else Struct(item, item=text),
                offset=offset, original=TopicPartition("orders", 3),
            )
            for offset, (key, text) in enumerate(changes)
        ]
    )  # fmt: skip
    assert [(key.lower(), text) for key, text in rows_of(server, "k, item")] == [("b", "four")]
    task.stop()


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_update_changes_only_rows_that_exist(server: Server) -> None:
    """No row is made."""
    sink_task(server, UPSERT).put([record(order(1))])
    task = sink_task(server, {**UPSERT, "insert.mode": "update"})
    task.put([record(order(1, "ice")), record(order(2))])
    assert rows_of(server) == [(1, "ice")]


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_keys_of_topics_make_inserts_repeatable(server: Server) -> None:
    """With pk.mode=kafka and upsert, records that come again change nothing."""
    task = sink_task(server, {"insert.mode": "upsert", "pk.mode": "kafka"})
    for _ in range(2):
        task.put([record(order(it), it) for it in range(3)])
    columns = "__connect_offset, __connect_topic, __connect_partition, id"
    assert rows_of(server, columns) == [(it, "orders", 3, it) for it in range(3)]


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_keys_of_several_fields(server: Server) -> None:
    """Struct keys; a whitelist of fields; deletes by both columns."""
    key = struct("key", a=data.INT64, b=data.STRING)
    settings = {
        "insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true",
        "fields.whitelist": "item",
    }  # fmt: skip
    task = sink_task(server, settings)
    keys = [Struct(key, a=a, b=b) for a in (1, 2) for b in ("x", "y")]
    task.put([record(order(1), key=it) for it in keys])
    task.put([record(None, key=keys[0]), record(None, key=keys[3])])
    assert rows_of(server, "a, b, item") == [(1, "y", "tea"), (2, "x", "tea")]


@pytest.mark.parametrize("server", KINDS, indirect=True)
@pytest.mark.parametrize(
    ("settings", "bad", "text"),
    [
        ({"auto.create": "false"}, record(order(1)), "is missing and auto-creation is disabled"),
        ({}, record(None), "deletes only with delete.enabled=true"),
        ({}, SinkRecord("orders", 0, value={"id": 1}), "structs with a schema"),
        ({"pk.mode": "record_key"}, record(order(1)), "needs keys with a schema"),
        ({"pk.mode": "record_value", "pk.fields": "x"}, record(order(1)), "No field x"),
        ({"pk.mode": "record_value", "pk.fields": "item"}, record(order(1, None)), "is null"),
        ({"table.name.format": "a.b.c"}, record(order(1)), "more parts|missing|Not a|no such"),
        ({"table.name.format": "x" * 2000}, record(order(1)), "Not a name"),
    ],
)
def test_records_that_do_not_fit_fail_with_a_reason(
    server: Server, settings: Any, bad: SinkRecord, text: str
) -> None:
    """One line; with errors.tolerance=all the record is a dead letter and others are written."""
    if server.kind == "sqlite" and settings.get("table.name.format") == "a.b.c":
        return  # a name with dots is a name there
    task = sink_task(server, settings)
    with pytest.raises(ConnectException, match=text):
        task.put([bad])
    context = SinkContext(tolerates=True)
    task = sink_task(server, {**settings, "errors.tolerance": "all"}, context)
    task.put([bad])
    assert [it for it, _ in context.refused] == [bad]


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_rows_that_the_database_refuses_are_dead_letters(server: Server) -> None:
    """A key twice: nothing of the batch is written, or all but the refused record."""
    settings = {"pk.mode": "record_value", "pk.fields": "id"}
    sink_task(server, settings).put([record(order(1))])
    batch = [record(order(it), it) for it in (0, 1, 2)]
    with pytest.raises(ConnectException, match="refused rows"):
        sink_task(server, settings).put(batch)
    assert rows_of(server, "id") == [(1,)]
    context = SinkContext(tolerates=True)
    sink_task(server, {**settings, "errors.tolerance": "all"}, context).put(batch)
    assert [it.offset for it, _ in context.refused] == [1]
    assert rows_of(server, "id") == [(0,), (1,), (2,)]


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_an_outage_among_refused_rows_writes_no_row_twice(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inserts without a key: a put with a refused row is a transaction, too."""
    server.sql("CREATE TABLE orders (id BIGINT, item VARCHAR(9) NOT NULL, price DECIMAL(9,2))")
    context = SinkContext(tolerates=True)
    task = sink_task(server, {"errors.tolerance": "all", "connection.attempts": "1"}, context)
    batch = [record(order(it, None if it == 1 else "tea"), it) for it in range(4)]
    insert, calls = task._database.insert, 0

    def lose(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:  # all rows at once, the first one, the refused one, and then
            server.kill()
            server.start()
            if server.kind == "sqlite":
                raise RetriableException("lost")
        insert(*arguments)

    monkeypatch.setattr(task._database, "insert", lose)
    with pytest.raises(RetriableException):
        task.put(batch)
    assert context.refused == []
    task.put(batch)
    assert [(it.offset, str(error)[:24]) for it, error in context.refused] == [
        (1, "The database refused row")
    ]
    assert rows_of(server, "id") == [(0,), (2,), (3,)]
    task.stop()


@pytest.mark.parametrize("server", REAL[:1], indirect=True)
def test_a_deferred_constraint_refuses_its_row_alone(server: Server) -> None:
    """What PostgreSQL checks at the commit by itself is a dead letter like any other row."""
    server.sql("CREATE TABLE items (item TEXT PRIMARY KEY);\nINSERT INTO items VALUES ('tea')")
    server.sql(
        "CREATE TABLE orders (id BIGINT, price DECIMAL, "
        "item TEXT REFERENCES items DEFERRABLE INITIALLY DEFERRED)"
    )
    context = SinkContext(tolerates=True)
    task = sink_task(server, {"errors.tolerance": "all"}, context)
    task.put([record(order(it, "ice" if it == 1 else "tea"), it) for it in range(3)])
    assert [it.offset for it, _ in context.refused] == [1]
    assert rows_of(server, "id") == [(0,), (2,)]
    task.stop()


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_names_from_records_are_quoted(server: Server) -> None:
    """Fields and topics that look like SQL, or have quotes and percent signs, are names."""
    evil = 'x"); DROP TABLE orders; --`%s%'
    schema = data.struct_of([("id", data.INT64), (evil, data.STRING)])
    value = Struct(schema)
    value["id"], value[evil] = 1, "'); DROP TABLE orders; --"
    topic = "or ders; --%s"
    task = sink_task(
        server, {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
    )
    for _ in range(2):
        task.put([record(value, topic=topic)])
    source = source_task(server, SourceContext(), {})
    (read,) = drain(source, 1)
    source.stop()
    assert (read.topic, read.value["id"]) == (f"t-{topic}", 1)
    assert read.value[evil] == "'); DROP TABLE orders; --"
    task = sink_task(server, {"quote.sql.identifiers": "never"})
    with pytest.raises(ConnectException, match="Needs quote"):
        task.put([record(value)])


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_a_table_that_changes_meanwhile_is_looked_at_again(server: Server) -> None:
    """A dropped table is made again; a column that another session drops comes back."""
    task = sink_task(server, {**UPSERT, "auto.evolve": "true"})
    task.put([record(order(1))])
    server.tables("orders")
    task.put([record(order(2))])
    server.sql("ALTER TABLE orders DROP COLUMN item")
    task.put([record(order(3, "ice"))])
    assert rows_of(server) == [(2, None), (3, "ice")]


def test_writes_to_a_database_that_is_away_are_retried() -> None:
    """RetriableException with the time to wait, until no retry is left."""
    settings = {
        "connection.url": "jdbc:postgresql://127.0.0.1:1/x", "connection.attempts": "1",
        "max.retries": "1", "retry.backoff.ms": "70",
    }  # fmt: skip
    context = SinkContext()
    task = sink_task(Server("postgresql", "x"), settings, context)
    with pytest.raises(RetriableException):
        task.put([record(order(1))])
    assert context.timeout_ms == 70
    with pytest.raises(ConnectException, match="without retries left"):
        task.put([record(order(1))])


def test_an_outage_makes_no_dead_letters(tmp_path: Path) -> None:
    """Without retries left the task fails, although errors of records are tolerated."""
    server = Server("sqlite", f"jdbc:sqlite:{tmp_path / 'file.db'}")
    sink_task(server, UPSERT).put([record(order(0))])
    context = SinkContext(tolerates=True)
    settings = {**UPSERT, "errors.tolerance": "all", "max.retries": "0"}
    task = sink_task(server, settings, context)
    other = sqlite3.connect(tmp_path / "file.db")
    other.execute("BEGIN IMMEDIATE")
    task._database.connection().execute("PRAGMA busy_timeout = 1")
    with pytest.raises(ConnectException, match="without retries left"):
        task.put([record(order(1)), record(order(2))])
    assert context.refused == []
    other.close()


def test_a_record_is_one_dead_letter_however_often_it_is_given_again(tmp_path: Path) -> None:
    """While the database is away nothing is reported; afterwards each record once."""
    server = Server("sqlite", f"jdbc:sqlite:{tmp_path / 'file.db'}")
    sink_task(server, UPSERT).put([record(order(0))])
    context = SinkContext(tolerates=True)
    task = sink_task(server, {**UPSERT, "errors.tolerance": "all"}, context)
    other = sqlite3.connect(tmp_path / "file.db")
    other.execute("BEGIN IMMEDIATE")
    task._database.connection().execute("PRAGMA busy_timeout = 1")
    records = [record(order(1)), record(None, 1)]
    for _ in range(2):
        with pytest.raises(RetriableException):
            task.put(records)
        task._database.connection().execute("PRAGMA busy_timeout = 1")
    other.close()
    task.put(records)
    assert [it.offset for it, _ in context.refused] == [1]
    assert rows_of(server, "id") == [(0,), (1,)]
    task.stop()


def test_writes_to_a_locked_file_are_retried(tmp_path: Path) -> None:
    """SQLite's lock of another connection passes."""
    import sqlite3

    server = Server("sqlite", f"jdbc:sqlite:{tmp_path / 'file.db'}")
    task = sink_task(server, {})
    task.put([record(order(1))])
    task._database.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(tmp_path / "file.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RetriableException, match="locked"):
        task.put([record(order(2))])
    other.execute("COMMIT")
    other.close()
    task.put([record(order(2))])
    task.stop()
    assert rows_of(server, "id") == [(1,), (2,)]
