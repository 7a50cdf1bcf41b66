"""Rows of Spark as records of Connect and back, without Spark."""

from __future__ import annotations

import datetime as dt
import json
import time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ottla.connect.errors import ConnectException
from ottla.connect.runtime.herder import StartTask
from ottla.connect.runtime.log_context import connector_context
from ottla.connect.runtime.state import ConnectorTaskId, TargetState
from ottla.connect.settings import STANDALONE
from ottla.connect.spark.rows import ROWS, TaskSettings, from_topics, schema_of, to_topics
from ottla.connect.spark.runtime import SparkRuntime, _Query, without_plan

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_WORKER = {
    "key.converter": _JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": _JSON,
    "value.converter.schemas.enable": "false",
}
MOMENT = dt.datetime(2026, 3, 1, 12, 0, 0, 5000, dt.UTC)
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("size", pa.struct([("width", pa.int32())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("data", pa.binary()),
    ]
)
ROW: dict[str, Any] = {
    "id": 1,
    "name": "tea",
    "price": Decimal("2.50"),
    "day": dt.date(2026, 3, 1),
    "at": MOMENT,
    "tags": ["hot", None],
    "size": {"width": 3},
    "counts": [("a", 1)],
    "data": b"\x00\xff",
}
EMPTY: dict[str, Any] = dict.fromkeys(ROW)


def _settings(**config: str) -> TaskSettings:
    return TaskSettings(
        "test", {"name": "test", "connector.class": "x", "topics": "t", **config}, _WORKER
    )


def _topic_rows(*values: bytes | None) -> pa.RecordBatch:
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "timestamp": MOMENT,
            "key": None,
            "value": value,
            "headers": None,
        }
        for offset, value in enumerate(values)
    ]
    schema = pa.schema([*ROWS, pa.field("offset", pa.int64())])
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def test_columns_survive_a_topic_with_schemas() -> None:
    """Every type that Spark has and Connect, and nulls, come back as they were."""
    settings = _settings(**{"value.converter": _JSON})  # with schemas
    batch = pa.RecordBatch.from_pylist([ROW, EMPTY], schema=COLUMNS)
    written = [row for it in to_topics(settings, "t", [batch]) for row in it.to_pylist()]
    assert {it["topic"] for it in written} == {"t"}
    rows = _topic_rows(*(it["value"] for it in written))
    found = [row for it in from_topics(settings, COLUMNS, [rows]) for row in it.to_pylist()]
    assert found == [ROW, EMPTY]


def test_transforms_are_those_of_the_worker() -> None:
    """Dropped rows are missing; the topic may change."""
    settings = _settings(
        **{
            "transforms": "drop,route",
            "transforms.drop.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
            "transforms.drop.exclude": "name",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": "(.*)",
            "transforms.route.replacement": "$1-new",
        }
    )
    batch = pa.RecordBatch.from_pylist([{"id": 1, "name": "tea"}])
    ((row,),) = [it.to_pylist() for it in to_topics(settings, "t", [batch])]
    assert (row["topic"], json.loads(row["value"])) == ("t-new", {"id": 1})


def test_values_that_are_no_rows() -> None:
    """A deletion has no row; anything else that is none fails, or is passed over if tolerated."""
    columns = pa.schema([("id", pa.int64())])
    good, wrong_type, no_row = b'{"id": 1, "other": 2}', b'{"id": "x"}', b"[1]"
    assert [it.to_pylist() for it in from_topics(_settings(), columns, [_topic_rows(good, None)])]
    for value in (wrong_type, no_row, b"{"):
        with pytest.raises(ConnectException, match="Tolerance exceeded"):
            list(from_topics(_settings(), columns, [_topic_rows(value)]))
    tolerant = _settings(**{"errors.tolerance": "all"})
    rows = _topic_rows(wrong_type, no_row, b"{", None, good)
    assert [it.to_pylist() for it in from_topics(tolerant, columns, [rows])] == [[{"id": 1}]]


def test_a_type_that_connect_does_not_have() -> None:
    """The column is named."""
    with pytest.raises(ConnectException, match=r"column wait: .*cast it"):
        schema_of(pa.duration("us"), "wait")


def test_a_failure_says_nothing_of_the_options() -> None:
    """Spark's text ends with the plan, in which all options of a sink stand."""
    text = "boom\n=== Streaming Query ===\nFileSink[x, [fs.s3a.secret.key=canary]]"
    assert without_plan(text) == "boom"
    assert "canary" not in repr(_settings(**{"spark.option.password": "canary"}))


def test_lines_of_the_log_have_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of tasks in threads and processes do."""
    seen: list[str] = []
    monkeypatch.setattr(_Query, "run", lambda *_: seen.append(connector_context()))
    values = STANDALONE.parse(
        {"bootstrap.servers": "none:1", "offset.storage.file.filename": "o", **_WORKER}
    )
    plugins: Any = SimpleNamespace(find=lambda *_: SimpleNamespace(load=lambda: None, version="1"))
    reports: Any = None
    runtime = SparkRuntime({}, values, plugins, reports, reports)
    task = ConnectorTaskId("q", 0)
    runtime.start_task(StartTask(task, {}, {}, TargetState.STARTED))
    runtime.stop_tasks([task], time.monotonic() + 60)
    assert seen == ["[q|task-0] "]


def test_no_name_of_a_connector_leads_out_of_the_checkpoints() -> None:
    """Each has a directory of its own."""
    runtime: Any = SimpleNamespace(value=lambda *_: "/checkpoints/", converters={}, modules=())
    names = {"a": "a", "..": "%2E%2E", ".": "%2E", "../b": "..%2Fb"}
    for name, expected in names.items():
        start: Any = SimpleNamespace(connector_config={}, task=SimpleNamespace(connector=name))
        query: Any = _Query(runtime, start, runtime, Path())
        assert query._checkpoint == f"/checkpoints/{expected}"
