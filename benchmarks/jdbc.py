"""Sink of databases: rows a second, and rows per second of CPU of this process.

Run: python benchmarks/jdbc.py [sqlite | postgresql | mariadb] (the last two start a server). Rows
have eight columns, in puts of 500 (a consumer's poll) and 5,000. The control writes the same rows
by the driver's own `executemany`, without records.
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # the servers of the tests

from ottla.connect import data
from ottla.connect.data import Struct, struct
from ottla.connect.jdbc.sink import JdbcSinkTask
from ottla.connect.records import SinkRecord
from ottla.types import TopicPartition
from tests.connect.jdbc.databases import MariaDbServer, PostgreSqlServer, Server

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = struct(
    "row", id=data.INT64, a=data.INT32, b=data.STRING, c=data.STRING.as_optional(),
    d=data.FLOAT64, e=data.BOOLEAN, f=data.TIMESTAMP, g=data.DATE,
)  # fmt: skip
MOMENT = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
ROWS = 20_000


def records(count: int) -> list[SinkRecord]:
    """Return records of rows."""
    made = []
    for number in range(count):
        value = Struct(SCHEMA)
        value.values = [number, 7, f"customer {number}", None, 1.5, True, MOMENT, MOMENT.date()]
        made.append(
            SinkRecord(
                "rows", 0, None, None, SCHEMA, value,
                offset=number, original=TopicPartition("rows", 0),
            )
        )  # fmt: skip
    return made


def measure(name: str, run: Callable[[], None]) -> None:
    """Run once, and print both rates."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name:28} {ROWS / wall:9,.0f} rows/s {ROWS / cpu:9,.0f} rows per CPU second")


def main(kind: str = "sqlite") -> None:
    """Measure one kind of database."""
    with tempfile.TemporaryDirectory() as directory:
        if kind == "sqlite":
            server = Server(kind, f"jdbc:sqlite:{directory}/file.db")
        else:
            server = PostgreSqlServer() if kind == "postgresql" else MariaDbServer()
        try:
            _measure(server)
        finally:
            server.close()


def _measure(server: Server) -> None:
    made = records(ROWS)
    keys = {"pk.mode": "record_value", "pk.fields": "id", "auto.create": "true"}
    for mode in ("insert", "upsert", "upsert again"):
        for size in (500, 5_000):
            task = JdbcSinkTask()
            config = {**server.settings, **keys, "insert.mode": mode.split(maxsplit=1)[0]}
            task.start({**config, "table.name.format": f"{mode[:6]}_{size}"})

            def run(task: JdbcSinkTask = task, size: int = size) -> None:
                for start in range(0, ROWS, size):
                    task.put(made[start : start + size])

            measure(f"{mode}, puts of {size}", run)
            task.stop()
    task = JdbcSinkTask()
    task.start({**server.settings, **keys, "table.name.format": "control"})
    task.put(made[:1])
    connection = task._database  # noqa: SLF001
    connection.execute("DELETE FROM control")
    rows: list[list[Any]] = [it.value.values for it in made]
    if server.kind != "postgresql":
        rows = [[*it[:6], it[6].replace(tzinfo=None).isoformat(" "), str(it[7])] for it in rows]
    marks = ", ".join([connection.mark] * 8)

    def control() -> None:
        for start in range(0, ROWS, 500):
            cursor = connection.connection().cursor()
            cursor.executemany(f"INSERT INTO control VALUES ({marks})", rows[start : start + 500])
            connection.commit()

    measure("control: executemany of 500", control)
    task.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
