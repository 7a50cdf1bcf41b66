"""A worker that tests kill: it counts into a topic, and writes the topic to a database, on Spark.

Run as `python -m tests.spark.connector_worker BOOTSTRAP DIRECTORY COUNT`.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ottla.config.definition import ConfigDefinitions, Type
from ottla.connect.simple import Sink
from tests.connect.test_simple import Numbers
from tests.connect.test_standalone import Rest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.connect.records import SinkRecord, SourceRecord
    from ottla.types import TopicPartition

TOPIC = "killed"
_JSON = "org.apache.kafka.connect.json.JsonConverter"


class Rows(Sink):
    """Stores each value with its offset in SQLite."""

    definitions = ConfigDefinitions().define("path", Type.STRING)

    def _database(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.settings["path"], timeout=60)
        database.execute("CREATE TABLE IF NOT EXISTS rows (part INT, place INT, n INT)")
        return database

    def write(self, records: Sequence[SinkRecord]) -> None:
        """Store in one transaction."""
        rows: list[Any] = []
        for record in records:
            assert record.original is not None
            rows.append((record.original.partition, record.offset, record.value["n"]))
        with self._database() as database:
            database.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last row."""
        with self._database() as database:
            question = "SELECT max(place) + 1 FROM rows WHERE part = ?"
            (offset,) = database.execute(question, (partition.partition,)).fetchone()
            return None if offset is None else int(offset)


def hold(record: SourceRecord) -> SourceRecord:
    """Return the record as soon as there is the file that its value names."""
    while not Path(record.value["PATH"]).exists():
        time.sleep(0.1)
    return record


def main(bootstrap: str, directory: Path, count: str) -> None:
    """Run until the process is killed."""
    points = [
        EntryPoint("numbers", f"{Numbers.__module__}:Numbers", "ottla.connectors"),
        EntryPoint("rows", "tests.spark.connector_worker:Rows", "ottla.connectors"),
    ]
    shared = {
        "ottla.runtime": "spark",
        "ottla.spark.batch.records": "500",
        "ottla.spark.trigger.ms": "500",
        "tasks.max": "2",
        "key.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": _JSON,
        "value.converter.schemas.enable": "false",
    }
    with patch("ottla.connect.plugins.entry_points", lambda group: points):
        rest = Rest(
            bootstrap,
            directory,
            {
                "ottla.spark.checkpoint.dir": str(directory / "checkpoints"),
                "offset.storage.topic": "killed-offsets",
            },
        )
        source = {"connector.class": "numbers", "topic": TOPIC, "count": count}
        path = str(directory / "rows.db")
        sink = {"connector.class": "rows", "topics": TOPIC, "path": path}
        sink["consumer.override.isolation.level"] = "read_committed"
        for name, config in (("n", source), ("r", sink)):
            rest.call("PUT", f"/connectors/{name}/config", {**shared, **config})
        print("running", flush=True)
        while not threading.Event().wait(1):
            for name in "nr":
                _, status = rest.call("GET", f"/connectors/{name}/status")
                for task in status.get("tasks", ()):
                    if "trace" in task:
                        print(task["trace"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
