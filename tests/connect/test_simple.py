"""Sources and sinks of three methods, by `ottla.testing.connect` and by the plug-in table."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ottla.config.definition import ConfigDefinitions, Type
from ottla.config.problems import ConfigErrors
from ottla.connect import Record, Sink, Source
from ottla.connect.connector import SinkConnector, SourceConnector
from ottla.connect.data import INT64, Struct, struct
from ottla.connect.errors import RetriableException
from ottla.connect.file.source import FileStreamSourceConnector
from ottla.connect.plugins import Plugins
from ottla.connect.simple import connector_class
from ottla.testing.cluster import Cluster
from ottla.testing.connect import SinkRun, check_restarts, collect
from ottla.types import TopicPartition
from tests.connect.test_standalone import Rest, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ottla.connect.data import Schema
    from ottla.connect.records import SinkRecord

TOPIC = {"topic": "numbers"}


class Numbers(Source):
    """Counts, in two partitions."""

    version = "1.2"
    definitions = ConfigDefinitions().define("count", Type.INT, 4)

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """Return even and odd."""
        return [{"first": 0}, {"first": 1}]

    def read(
        self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Iterator[Record]:
        """Count on."""
        start = partition["first"] if offset is None else offset["next"]
        for number in range(start, self.settings["count"], 2):
            yield Record({"n": number}, {"next": number + 2}, key=number)

    def schema(self) -> Schema:
        """Return the schema of the numbers."""
        return struct(n=INT64)


class Doubling(Numbers):
    """Stores the offset of the record instead of the one after it."""

    def read(
        self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Iterator[Record]:
        """Give the last record again."""
        for record in super().read(partition, offset):
            yield Record(record.value, {"next": record.key}, key=record.key)


class Skipping(Numbers):
    """Stores an offset too far on."""

    def read(
        self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Iterator[Record]:
        """Lose a record at each restart."""
        for record in super().read(partition, offset):
            yield Record(record.value, {"next": record.key + 4}, key=record.key)


class Store(Sink):
    """Keeps records until `flush`."""

    stored: ClassVar[list[Any]] = []
    kept: ClassVar[list[SinkRecord]]

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Begin empty."""
        super().__init__(settings)
        self.buffer: list[Any] = []
        self.refusals = 1

    def write(self, records: Sequence[SinkRecord]) -> None:
        """Refuse once, then keep."""
        if self.refusals:
            self.refusals -= 1
            raise RetriableException("later")
        self.buffer += [it.value for it in records]

    def flush(self) -> None:
        """Store."""
        self.stored.extend(self.buffer)
        self.buffer.clear()


class ExactStore(Sink):
    """Stores each value with its offset."""

    rows: ClassVar[dict[TopicPartition, list[Any]]] = {}

    def write(self, records: Sequence[SinkRecord]) -> None:
        """Store at once."""
        for record in records:
            assert record.original is not None
            self.rows.setdefault(record.original, []).append(record.value)

    def next_offset(self, partition: TopicPartition) -> int:
        """Return the number of rows."""
        return len(self.rows.get(partition, ()))


def test_a_source_of_two_partitions_restarts_anywhere() -> None:
    """Its records carry key, schema, partition and offset."""
    records = check_restarts(Numbers, TOPIC)
    assert [it.key for it in records] == [0, 2, 1, 3]
    assert records[0].value == Struct(struct(n=INT64), n=0)
    assert (records[3].source_partition, records[3].source_offset) == ({"first": 1}, {"next": 5})
    assert [it.key for it in collect(Numbers, TOPIC, records[:3])] == [3]


def test_more_records_than_a_batch_come_from_one_generator() -> None:
    """The generator goes on at the next poll."""
    keys = [it.key for it in collect(Numbers, {**TOPIC, "count": "2400"}, limit=5000)]
    assert sorted(keys) == list(range(2400))


@pytest.mark.parametrize("wrong", [Doubling, Skipping])
def test_wrong_offsets_are_found(wrong: type[Source]) -> None:
    """The message says which record came instead."""
    with pytest.raises(AssertionError, match=r"restart after record 1, partition .* should come"):
        check_restarts(wrong, {**TOPIC, "count": "8"})


def test_a_full_connector_is_run_too(tmp_path: Path) -> None:
    """Kafka's file source passes the same check."""
    (tmp_path / "in").write_text("tea\nmilk\n")
    records = check_restarts(FileStreamSourceConnector, {"file": str(tmp_path / "in"), **TOPIC})
    assert [it.value for it in records] == ["tea", "milk"]


def test_settings_are_checked() -> None:
    """`topic` is required, `count` a number."""
    with pytest.raises(ConfigErrors, match="topic"):
        collect(Numbers, {})
    with pytest.raises(ConfigErrors, match="count"):
        collect(Numbers, {**TOPIC, "count": "many"})


def test_partitions_are_shared_by_tasks() -> None:
    """No more tasks than partitions."""
    connector = connector_class(Numbers)()
    connector.start(TOPIC)
    assert [len(connector.task_configs(count)) for count in (1, 2, 9)] == [1, 2, 2]


def test_a_sink_gets_refused_and_uncommitted_records_again() -> None:
    """At least once: what was flushed before the commit is not given again."""
    Store.stored.clear()
    run = SinkRun(Store, {})
    run.write(["a", "b"])
    run.commit()
    run.write(["c"])
    run.restart()
    run.close()
    assert Store.stored == ["a", "b", "c"]
    assert run.committed == {TopicPartition("test", 0): 3}


def test_a_sink_with_offsets_of_its_own_is_exactly_once() -> None:
    """A restart without any commit repeats nothing."""
    ExactStore.rows.clear()
    run = SinkRun(ExactStore, {})
    run.write(["a", "b"])
    run.restart()
    run.write(["c"])
    run.close()
    assert ExactStore.rows == {TopicPartition("test", 0): ["a", "b", "c"]}


def test_entry_points_name_sources_and_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of plug-ins gives their connectors, with the type of each."""
    points = [
        EntryPoint("numbers", f"{__name__}:Numbers", "ottla.connectors"),
        EntryPoint("store", f"{__name__}:Store", "ottla.connectors"),
    ]
    monkeypatch.setattr("ottla.connect.plugins.entry_points", lambda group: points)
    source, sink = (Plugins().find(name, "source", "sink") for name in ("numbers", "store"))
    assert (source.type, sink.type) == ("source", "sink")
    assert issubclass(source.load(), SourceConnector)
    assert isinstance(sink.create(), SinkConnector)
    assert source.load().version == "1.2"


def test_a_worker_runs_both_and_a_restart_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink's own offset counts from its first record on; the source goes on where it was."""
    points = [
        EntryPoint("numbers", f"{__name__}:Numbers", "ottla.connectors"),
        EntryPoint("exact", f"{__name__}:ExactStore", "ottla.connectors"),
    ]
    monkeypatch.setattr("ottla.connect.plugins.entry_points", lambda group: points)
    ExactStore.rows.clear()
    converter = "org.apache.kafka.connect.json.JsonConverter"
    shared = {
        "key.converter": converter,
        "key.converter.schemas.enable": "false",
        "value.converter": converter,
        "value.converter.schemas.enable": "false",
        "tasks.max": "2",
        "ottla.runtime": "thread",  # as the rows are in a variable of this process
    }

    def rows() -> list[int]:
        return sorted(it["n"] for part in ExactStore.rows.values() for it in part)

    with Cluster() as cluster:
        for count in (10, 20):
            rest = Rest(cluster.bootstrap, tmp_path)
            source = {"connector.class": "numbers", **TOPIC, "count": str(count), **shared}
            sink = {"connector.class": "exact", "topics": TOPIC["topic"], **shared}
            for name, config in (("n", source), ("e", sink)):
                assert rest.call("PUT", f"/connectors/{name}/config", config)[0] == 201
            until(lambda: len(rows()) >= count)  # noqa: B023 - called in this round only
            rest.close()
            assert rows() == list(range(count))
