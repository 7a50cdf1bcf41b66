"""Where a new application starts to read, by source (KIP-1106)."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.clients.offsets import OffsetAndMetadata, OffsetAndTimestamp
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.checkpoint import Checkpoint
from ottla.streams import (
    AutoOffsetReset,
    Consumed,
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    TopologyException,
)
from ottla.streams.plan.plan import Plan, plan_for
from ottla.streams.run import application
from ottla.streams.run.checkpoints import (
    STARTS_FILE,
    Start,
    check_options,
    check_topology,
    starting_offsets,
)
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self

    from ottla.clients.admin.blocking import Admin
    from ottla.streams.plan.plan import Plan

NOW_MS = 100_000
LATEST, NONE = AutoOffsetReset.latest(), AutoOffsetReset.none()


class Offsets:
    """The offsets of a cluster: 10 is the end, 7 the first one of a time, which is not too late."""

    def __init__(self, committed: dict[TopicPartition, int] | None = None, end: int = 10) -> None:
        self.end, self.committed = end, committed or {}

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        """Return offsets by time."""
        assert read_committed
        known = {-1: self.end, NOW_MS - 5_000: 7, NOW_MS: -1}
        return {
            place: OffsetAndTimestamp(known[time], time)
            if place.topic != "gone"
            else KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for place, time in timestamps.items()
        }

    def list_group_offsets(
        self, group: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return committed offsets."""
        assert group == "app"
        found = self.committed
        return {one: OffsetAndMetadata(found[one]) if one in found else None for one in places}


class Deleting(Offsets):
    """A cluster whose topic `in-gone` is deleted once it is listed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_cluster(self) -> Any:
        """Return the cluster."""
        return SimpleNamespace(cluster_id="cluster")

    def list_topics(self, *, include_internal: bool) -> list[Any]:
        """Return the topics."""
        assert not include_internal
        return [SimpleNamespace(name=name) for name in ("in-a", "in-gone", "out")]

    def describe_topics(self, names: Iterable[str]) -> dict[str, Any]:
        """Return two partitions of each."""
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found = SimpleNamespace(partitions=[0, 1])
        return {name: gone if name == "in-gone" else found for name in names}


def plan(**policies: AutoOffsetReset | None) -> Plan:
    """Return a plan of streams of two partitions each, and a global table."""
    builder = StreamsBuilder(StreamsConfig("app", Serdes.string(), Serdes.string()))
    for topic, policy in policies.items():
        builder.stream(topic, consumed=Consumed(offset_reset_policy=policy)).to("out")
    builder.global_table("global", consumed=Consumed(offset_reset_policy=LATEST))
    return plan_for(builder.build(), {**dict.fromkeys(policies, 2), "global": 1})


def option(
    made: Plan, checkpoint: Path, offsets: Offsets | None = None, **given: str
) -> dict[str, Any] | str:
    """Return the option for Spark's source."""
    start = Start(given, Checkpoint(str(checkpoint)), "app", NOW_MS)
    found = starting_offsets(made, cast("Admin", offsets or Offsets()), start)
    return cast("dict[str, Any]", json.loads(found)) if "{" in found else found


def test_each_topic_has_its_start(tmp_path: Path) -> None:
    """A global table is read from its beginning; a time after the last record is the end."""
    kept, late = AutoOffsetReset.by_duration(5_000), AutoOffsetReset.by_duration(0)
    made = plan(a=None, b=LATEST, c=kept, d=late, e=NONE, f=AutoOffsetReset.earliest())
    committed = {TopicPartition("e", 0): 3, TopicPartition("e", 1): 4}
    assert option(made, tmp_path, Offsets(committed)) == {
        "a": {"0": -2, "1": -2},
        "b": {"0": 10, "1": 10},
        "c": {"0": 7, "1": 7},
        "d": {"0": 10, "1": 10},
        "e": {"0": 3, "1": 4},
        "f": {"0": -2, "1": -2},
        "global": {"0": -2},
    }


def test_the_option_for_all_topics_is_the_default(tmp_path: Path) -> None:
    """As Kafka's auto.offset.reset: a source's own policy comes first."""
    assert option(plan(a=None), tmp_path) == "earliest"
    made = plan(a=None, b=AutoOffsetReset.earliest())
    found = option(made, tmp_path, StartingOffsets="latest")
    assert found == {"a": {"0": 10, "1": 10}, "b": {"0": -2, "1": -2}, "global": {"0": -2}}
    exact = '{"a": {"0": 1, "1": 2}, "global": {"0": 0}}'
    assert option(plan(a=None), tmp_path, startingOffsets=exact) == json.loads(exact)
    assert option(plan(a=None), tmp_path, startingOffsets="group") == "group"
    with pytest.raises(StreamsException, match="startingOffsets is for all topics, but a have"):
        option(plan(a=LATEST), tmp_path, startingOffsets=exact)
    with pytest.raises(StreamsException, match="startingTimestamp is for all topics, but a have"):
        check_options(plan(a=LATEST).topology, {"startingtimestamp": "1"})
    check_options(plan(a=None).topology, {"startingTimestamp": "1"})


def test_without_a_committed_offset_and_a_policy_the_start_is_refused(tmp_path: Path) -> None:
    """The message is Kafka's, with the topics."""
    one = {TopicPartition("a", 0): 3}
    with pytest.raises(
        StreamsException, match=r"No valid committed offset found for input \['a'\]"
    ):
        option(plan(a=NONE, b=None), tmp_path, Offsets(one))
    with pytest.raises(KafkaError, match="does not host this topic-partition"):
        option(plan(gone=LATEST), tmp_path)


def test_a_repeated_first_micro_batch_starts_as_before(tmp_path: Path) -> None:
    """The end of the topic has moved meanwhile: what lies between was lost."""
    first = option(plan(a=LATEST), tmp_path)
    assert option(plan(a=LATEST), tmp_path, Offsets(end=20)) == first  # nothing was read yet
    changed = option(plan(a=AutoOffsetReset.by_duration(5_000)), tmp_path)
    assert changed == {"a": {"0": 7, "1": 7}, "global": {"0": -2}}
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    assert option(plan(a=LATEST), tmp_path, Offsets(end=20)) == changed
    (tmp_path / STARTS_FILE).unlink()
    assert option(plan(a=LATEST), tmp_path) == "earliest"  # an old checkpoint: Spark has its own


def test_a_changed_policy_does_not_refuse_a_checkpoint(tmp_path: Path) -> None:
    """It means nothing for what has started."""
    check_topology(Checkpoint(str(tmp_path)), plan(a=LATEST).topology)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    check_topology(Checkpoint(str(tmp_path)), plan(a=NONE).topology)


def test_streams_of_one_topic_are_read_once() -> None:
    """As in Kafka Streams, where both have one source; it must be read in one way."""
    builder = StreamsBuilder()
    for suffix in ("1", "2"):
        builder.stream("in").map_values(lambda value, suffix=suffix: value + suffix).to("out")
    sources = [one for one in builder.build().describe().splitlines() if "Source: " in one]
    assert sources == ["    Source: KSTREAM-SOURCE-0000000000 (topics: [in])"]
    with pytest.raises(TopologyException, match="different offset reset policies"):
        builder.stream("in", consumed=Consumed(offset_reset_policy=LATEST))
    with pytest.raises(TopologyException, match="serdes json and string"):
        builder.stream("in", consumed=Consumed(value=Serdes.string()))
    with pytest.raises(TopologyException, match="other timestamp extractors"):
        builder.stream("in", consumed=Consumed(timestamp_extractor=lambda _record, _time: 1))
    with pytest.raises(ValueError, match="-1 ms is negative"):
        AutoOffsetReset.by_duration(-1)


def test_the_topics_of_a_pattern_have_its_start(tmp_path: Path) -> None:
    """Those that are there at the first start; later ones are read from their beginning."""

    def of_pattern(*topics: str) -> Plan:
        builder = StreamsBuilder(StreamsConfig("app", Serdes.string(), Serdes.string()))
        consumed = Consumed(offset_reset_policy=LATEST)
        builder.stream(re.compile("in-.*"), consumed=consumed).to("out")
        return plan_for(builder.build(), dict.fromkeys(topics, 2))

    unmatched = of_pattern()
    with pytest.raises(StreamsException, match=r"Timestamp is for all topics, but in-\.\* have"):
        check_options(unmatched.topology, {"startingTimestamp": "1"})
    first = {"in-a": {"0": 10, "1": 10}}
    assert option(of_pattern("in-a"), tmp_path) == first
    both = {"in-a": {"0": 20, "1": 20}, "in-b": {"0": 20, "1": 20}}
    assert option(of_pattern("in-a", "in-b"), tmp_path, Offsets(end=20)) == both
    assert option(of_pattern("in-a"), tmp_path) == first
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    found = option(of_pattern("in-a", "in-b"), tmp_path, Offsets(end=20))
    assert found == {**first, "in-b": {"0": -2, "1": -2}}
    with pytest.raises(StreamsException, match="startingOffsets is for all topics, but in-a have"):
        option(of_pattern("in-a"), tmp_path, startingOffsets='{"in-a": {"0": 1, "1": 2}}')


def test_a_topic_of_a_pattern_may_be_deleted_while_the_application_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is as if it had not been listed."""
    builder = StreamsBuilder(StreamsConfig("app", Serdes.string(), Serdes.string()))
    consumed = Consumed(offset_reset_policy=LATEST)
    builder.stream(re.compile("in-.*"), consumed=consumed).to("out")
    topology = builder.build()
    monkeypatch.setattr(application, "Admin", lambda **_: Deleting())
    streams = Streams(topology, bootstrap_servers="", checkpoint=tmp_path)
    _, found = streams._prepare_topics(Checkpoint(str(tmp_path)))
    assert json.loads(found) == {"in-a": {"0": 10, "1": 10}}
