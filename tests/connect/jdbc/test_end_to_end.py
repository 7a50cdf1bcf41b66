"""Table to topic to table by a worker on a real node, while the database is killed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla.connect.runtime.standalone import Standalone
from ottla.testing.cluster import Cluster
from tests.connect.jdbc.tables import CREATE, REAL, fill, rows_of
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connect.jdbc.databases import Server

JSON = "org.apache.kafka.connect.json.JsonConverter"
JAVA = "io.confluent.connect.jdbc.Jdbc"
KILLS = 3


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_the_copy_equals_the_table_after_kills(server: Server, tmp_path: Path) -> None:
    """Rows that come while the database is killed and started again; no task fails."""
    server.sql(CREATE[server.kind].format("items"))
    common = {**server.settings, "connection.attempts": "20"}
    source = {
        **common, "connector.class": f"{JAVA}SourceConnector", "mode": "incrementing",
        "incrementing.column.name": "id", "table.whitelist": "items", "topic.prefix": "",
        "poll.interval.ms": "50", "batch.max.rows": "7",
    }  # fmt: skip
    sink = {
        **common, "connector.class": f"{JAVA}SinkConnector", "topics": "items",
        "table.name.format": "copy", "insert.mode": "upsert", "pk.mode": "record_value",
        "pk.fields": "id", "auto.create": "true",
    }  # fmt: skip
    with Cluster() as cluster:
        worker = Standalone(
            {
                "bootstrap.servers": cluster.bootstrap,
                "key.converter": JSON,
                "value.converter": JSON,
                "offset.storage.file.filename": str(tmp_path / "offsets"),
                "offset.flush.interval.ms": "100",
            },
            "127.0.0.1:8083",
        )
        try:
            for name, config in (("a", source), ("b", sink)):
                worker.put(name, {**config, "name": name}, may_replace=False).result(WAIT_S)
            for turn in range(KILLS):
                fill(server, range(turn * 30 + 1, turn * 30 + 31))
                server.kill()
                server.start()
            end_s = time.monotonic() + 60
            while True:
                try:
                    if len(rows_of(server, "id", "copy")) == KILLS * 30:
                        break
                except Exception:
                    if time.monotonic() > end_s:
                        raise
                assert time.monotonic() < end_s
                time.sleep(0.1)
        finally:
            worker.stop()
    columns = "id, item"
    assert rows_of(server, columns, "copy") == rows_of(server, columns, "items")
