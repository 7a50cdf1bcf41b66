"""Where state is, and how far it is behind, of a checkpoint as Spark writes it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.producer.partitioner import key_hash
from ottla.spark.checkpoint import Checkpoint
from ottla.streams import Materialized, Serdes, StreamsBuilder, StreamsConfig, StreamsException
from ottla.streams.plan.plan import layout, plan_for
from ottla.streams.query.instances import Instance, KeyQueryMetadata, LagInfo
from ottla.streams.run.checkpoints import check_tasks, check_topology
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

TEXT = Serdes.string()
Offsets = dict[str, dict[int, int]]


def application(directory: Path, build: Callable[[StreamsBuilder], Any], done: Offsets) -> Instance:
    """Return an application that has processed its topics up to some offsets."""
    builder = StreamsBuilder(StreamsConfig("app", TEXT, TEXT))
    build(builder)
    plan = plan_for(builder.build(), {topic: len(offsets) for topic, offsets in done.items()})
    checkpoint = Checkpoint(str(directory))
    check_topology(checkpoint, plan.topology)
    check_tasks(checkpoint, plan)
    assert Instance(plan.topology, checkpoint).metadata() == []
    assert Instance(plan.topology, checkpoint).lags(ends({})) == {}
    document = {topic: {"id": "x", **offsets} for topic, offsets in done.items()}
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(document)}"), ("commits", "v1\n{}")):
        (directory / name).mkdir()
        (directory / name / "0").write_text(text)
    return Instance(plan.topology, checkpoint)


def ends(found: Offsets) -> Callable[[Collection[TopicPartition]], dict[TopicPartition, int]]:
    """Return what finds the ends of topics."""
    return lambda places: {one: found[one.topic][one.partition] for one in places}


def numbers(lags: dict[str, dict[int, LagInfo]]) -> dict[str, list[tuple[int, int, int]]]:
    """Return positions, ends and lags by store."""
    return {
        store: [(*one, one.offset_lag) for one in found.values()] for store, found in lags.items()
    }


def counted(builder: StreamsBuilder) -> None:
    """Count by key, by value, and hold a global table."""
    stream = builder.stream("in")
    stream.group_by_key().count(materialized=Materialized("by-key"))
    stream.group_by(lambda _, value: value).count(materialized=Materialized("by-value"))
    builder.global_table("facts", materialized=Materialized("facts"))
    builder.stream("other").to("out")


def test_lags_are_those_of_the_topics_before_a_store(tmp_path: Path) -> None:
    """A partition is behind by its own; after a repartition topic by all of them."""
    done = {"in": {0: 3, 1: 5}, "other": {0: 1}, "facts": {0: 2}}
    app = application(tmp_path, counted, done)
    lags = app.lags(ends({"in": {0: 4, 1: 9}, "other": {0: 100}, "facts": {0: 200}}))
    assert numbers(lags) == {
        "by-key": [(3, 4, 1), (5, 9, 4)],
        "by-value": [(8, 13, 5), (8, 13, 5)],
    }


def test_lags_of_patterns_and_of_an_internal_topic_in_the_cluster(tmp_path: Path) -> None:
    """The sides of a foreign-key join depend on each other; a truncated log is no lag."""

    def build(builder: StreamsBuilder) -> None:
        builder.stream(re.compile("logs-.*")).group_by_key().count(
            materialized=Materialized("logs")
        )
        left, right = builder.table("left", materialized=Materialized("l")), builder.table("right")
        left.join(right, lambda a, b: a + b, foreign_key=lambda _, value: value).to_stream().to("o")

    builder = StreamsBuilder(StreamsConfig("app", TEXT, TEXT))
    build(builder)
    (real,) = layout(builder.build()).real_topics.values()
    done = {"logs-a": {0: 7, 1: 0}, "logs-b": {0: 2}, "left": {0: 5}, "right": {0: 1}, real: {0: 4}}
    app = application(tmp_path, build, done)
    more: Offsets = {**done, "logs-b": {0: 1}, "right": {0: 11}, real: {0: 5}}
    found = numbers(app.lags(ends(more)))
    assert found.pop("logs") == [(9, 8, 0), (0, 0, 0)]
    assert set(map(tuple, found.values())) == {((10, 21, 11),)}


def test_a_key_is_in_the_partition_that_its_writer_chose(tmp_path: Path) -> None:
    """By the store's serde, another one, or a partitioner; a global store has no partitions."""
    app = application(tmp_path, counted, {"in": {0: 3, 1: 5, 2: 0}, "facts": {0: 2}, "other": {}})
    calls = []

    def last(*given: Any) -> int:
        calls.append(given)
        return 2

    def where(store: str, key: Any, **given: Any) -> KeyQueryMetadata | None:
        return app.key_metadata(store, key, given.get("serde"), given.get("partitioner"))

    for key in ("a", "b", "c", "d"):
        assert where("by-key", key) == KeyQueryMetadata(key_hash(key.encode()) % 3)
    assert where("by-value", 7, serde=Serdes.long()) == (key_hash(bytes(7) + b"\x07") % 3,)
    assert where("by-key", "a", partitioner=last) == KeyQueryMetadata(2)
    assert where("by-key", "a", partitioner=lambda *_: {1}) == KeyQueryMetadata(1)
    assert where("by-key", "a", partitioner=lambda *_: None) == where("by-key", "a")
    assert calls == [("in", "a", None, 3)]
    assert where("facts", "a") == KeyQueryMetadata(-1)
    assert where("nothing", "a") is None
    with pytest.raises(StreamsException, match=r"must choose one partition, not \[0, 1\]"):
        where("by-key", "a", partitioner=lambda *_: [0, 1])


def test_there_is_one_instance(tmp_path: Path) -> None:
    """With all stores, and all partitions that are read."""
    app = application(tmp_path, counted, {"in": {0: 3, 1: 5}, "facts": {0: 2}, "other": {}})
    ((stores, places),) = app.metadata()
    assert stores == {"by-key", "by-value", "facts"}
    assert places == {TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("facts", 0)}
    assert app.metadata_for_store("by-key") == app.metadata()
    assert app.metadata_for_store("nothing") == []
