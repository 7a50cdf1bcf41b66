"""The mirror's names, records, offset syncs and settings, without clusters."""

from __future__ import annotations

import random

import pytest

from ottla.config.problems import ConfigErrors
from ottla.connect.errors import ConnectException, DataException
from ottla.connect.mirror.flows import Flow, MirrorMaker, MirrorMakerConfig
from ottla.connect.mirror.offset_syncs import SLOTS, TOO_OLD, OffsetSyncStore, SyncDecision
from ottla.connect.mirror.offsets import check_offsets
from ottla.connect.mirror.policy import DefaultReplicationPolicy, IdentityReplicationPolicy
from ottla.connect.mirror.records import (
    MirrorCheckpoint,
    MirrorHeartbeat,
    OffsetSync,
    parse_partitions,
)
from ottla.connect.mirror.settings import SOURCE, MirrorSettings, NameFilter
from ottla.types import TopicPartition

T = TopicPartition("t", 0)


def test_names_of_the_default_policy() -> None:
    """Names show the way of a topic; names of the mirror's own topics are Kafka's."""
    policy = DefaultReplicationPolicy()
    assert policy.format_remote_topic("a", "t") == "a.t"
    assert [policy.topic_source(it) for it in ("t", "a.t", "b.a.t", "a.")] == [None, "a", "b", None]
    assert policy.original_topic("b.a.t") == "t"
    assert policy.offset_syncs_topic("b") == "mm2-offset-syncs.b.internal"
    assert policy.checkpoints_topic("a") == "a.checkpoints.internal"
    internal = ("__x", ".x", "mm2-offsets.a.internal", "a.checkpoints.internal")
    assert all(map(policy.is_internal_topic, internal))
    assert not policy.is_internal_topic("u.internal")
    assert policy.is_heartbeats_topic("c.a.heartbeats")
    assert policy.is_cycle("c.b.t", "b")
    assert not policy.is_cycle("c.b.t", "a")


def test_names_with_other_separators() -> None:
    """The separator is of all names, unless internal ones keep the dot."""
    policy = DefaultReplicationPolicy("--")
    assert policy.upstream_topic("a--b--t") == "b--t"
    assert policy.offset_syncs_topic("b") == "mm2-offset-syncs--b--internal"
    dotted = DefaultReplicationPolicy("--", internal_separator_enabled=False)
    assert dotted.checkpoints_topic("a") == "a.checkpoints.internal"


def test_names_of_the_identity_policy() -> None:
    """Names stay but for heartbeats, and cycles cannot be seen."""
    policy = IdentityReplicationPolicy("a")
    assert policy.format_remote_topic("a", "t") == "t"
    assert policy.format_remote_topic("a", "heartbeats") == "a.heartbeats"
    assert (policy.topic_source("t"), policy.upstream_topic("t")) == ("a", "t")
    assert policy.original_topic("t") == "t"
    assert not policy.is_cycle("t", "b")
    assert policy.is_cycle("b.heartbeats", "b")


def test_bytes_of_records() -> None:
    """The bytes are those that real MirrorMaker wrote."""
    sync = OffsetSync(T, 101, 102)
    assert sync.key().hex() == "00017400000000"
    assert sync.value().hex() == "00000000000000650000000000000066"
    checkpoint = MirrorCheckpoint("g1", TopicPartition("a.t", 0), 250, 203, "meta")
    assert checkpoint.key().hex() == "00026731" + "0003612e74" + "00000000"
    assert checkpoint.value().hex() == (
        "0000" + "00000000000000fa" + "00000000000000cb" + "00046d657461"
    )
    heartbeat = MirrorHeartbeat("a", "b", 7)
    assert heartbeat.key().hex() == "000161" + "000162"
    assert heartbeat.value().hex() == "0000" + "0000000000000007"
    for record in (sync, checkpoint, heartbeat):
        assert type(record).decode(record.key(), record.value()) == record


def test_records_that_are_not_valid() -> None:
    """Garbage is a DataException."""
    good = MirrorCheckpoint("g", T, 1, 2, "m")
    bad_values = (None, b"", good.value()[:-1], b"\0\1" + good.value()[2:])
    for value in bad_values:
        with pytest.raises(DataException):
            MirrorCheckpoint.decode(good.key(), value)
    for key in (None, b"\0\5ab", b"\xff\xff", b"\0\1\xff\0\0\0\0"):
        with pytest.raises(DataException):
            OffsetSync.decode(key, bytes(16))


def test_translation_by_the_syncs_that_kafka_wrote() -> None:
    """Committed 250 of syncs 0, 101, 202, 303 is one past the sync before."""
    store = OffsetSyncStore()
    for offset in (0, 101, 202, 303):
        store.add(OffsetSync(T, offset, offset))
    assert store.translate(T, 250) is None  # until all were read
    store.read_to_end()
    assert store.translate(T, 250) == 203
    assert store.translate(T, 303) == 303
    assert store.translate(T, 900) == 304
    assert store.translate(TopicPartition("t", 1), 5) is None


@pytest.mark.parametrize(
    ("syncs", "committed", "expected"),
    [
        ((5, 13, 24), 13, 13),
        ((1, 6, 14, 18, 26, 29), 14, 14),
        ((7, 18, 21, 27, 32), 18, 8),
    ],
)
def test_syncs_that_kafka_keeps(syncs: tuple[int, ...], committed: int, expected: int) -> None:
    """A sync that is too old for the next slot may fit a later one."""
    store = OffsetSyncStore()
    store.read_to_end()
    for offset in syncs:
        store.add(OffsetSync(T, offset, offset))
    assert store.translate(T, committed) == expected


def test_only_last_syncs_translate_without_checkpoints() -> None:
    """A sync that the former task did not use must not take a group back."""
    store = OffsetSyncStore(only_last=True)
    store.add(OffsetSync(T, 0, 0))
    store.add(OffsetSync(T, 100, 100))
    store.read_to_end()
    assert store.translate(T, 50) == TOO_OLD
    store.add(OffsetSync(T, 200, 200))
    assert store.translate(T, 150) == 101


@pytest.mark.parametrize("seed", range(20))
def test_syncs_keep_their_invariants_and_translation_never_goes_back(seed: int) -> None:
    """Over random syncs, B and C hold, no translation passes the truth, and none goes back."""
    rng = random.Random(seed)
    store, upstream = OffsetSyncStore(), 0
    truth: dict[int, int] = {}
    downstream = 0
    store.read_to_end()
    translated: dict[int, int] = {}
    for _ in range(300):
        upstream += rng.choice((1, 1, 2, 7, 100, 10_000, 1 << 40))
        downstream += rng.randint(1, 3)
        truth[upstream] = downstream
        store.add(OffsetSync(T, upstream, downstream))
        slots = [it.upstream for it in store._slots[T]]
        assert len(slots) == SLOTS
        assert slots == sorted(slots, reverse=True)
        for i in range(SLOTS - 1):
            assert slots[i] <= slots[i + 1] + (1 << (i + 1)) - (1 << i)
            distinct = slots[i] != slots[i + 1]
            assert not distinct or slots[i] >= slots[i + 1] + (1 << max(i - 2, 0))
        for committed in (upstream, upstream - 1, *rng.sample(sorted(truth), min(5, len(truth)))):
            result = store.translate(T, committed)
            assert result is not None
            if result != TOO_OLD:
                before = max(it for it in truth if it <= committed)
                assert result <= truth[before] + 1
                # The same commit translates to no more later on: earlier syncs are dropped only.
                assert result <= translated.get(committed, result)
                translated[committed] = result
    store.add(OffsetSync(T, 1, 1))  # the topic was created again
    assert store.translate(T, upstream) == 2
    assert store.translate(T, 0) == TOO_OLD


def test_syncs_are_written_when_kafka_writes_them() -> None:
    """The first, each hundred, after gaps and after the target went back; else at commits."""
    decision = SyncDecision(100)
    assert [it for it in range(500) if decision.is_due(it, it)] == [0, 101, 202, 303, 404]
    assert decision.is_due(501, 500)
    assert not decision.is_due(502, 501)
    assert decision.is_due(503, 10)


def test_settings_have_kafkas_defaults_and_checks() -> None:
    """Defaults, patterns, and classes that are not there."""
    texts = {"source.cluster.alias": "a", "target.cluster.alias": "b"}
    settings = MirrorSettings(SOURCE, texts)
    topics = settings.topics
    names = ("t", "u.internal", "__consumer_offsets", "mm2-x.internal", "t.replica")
    assert [it for it in names if topics.accepts(it)] == ["t", "u.internal"]
    assert settings.offset_syncs_topic == "mm2-offset-syncs.b.internal"
    configs = NameFilter((".*",), settings.values["config.properties.exclude"])
    assert [it for it in ("retention.ms", "min.insync.replicas") if configs.accepts(it)] == [
        "retention.ms"
    ]
    with pytest.raises(ConfigErrors, match="Invalid pattern"):
        MirrorSettings(SOURCE, {**texts, "topics": "("})
    with pytest.raises(ConnectException, match="IdentityReplicationPolicy"):
        MirrorSettings(SOURCE, {**texts, "replication.policy.class": "com.example.Mine"})
    with pytest.raises(ConnectException, match="DefaultTopicFilter"):
        MirrorSettings(SOURCE, {**texts, "topic.filter.class": "com.example.Mine"})
    assert not NameFilter((), ()).accepts("")
    assert list(parse_partitions("a-b-0,c-12")) == [("a-b", 0), ("c", 12)]


def test_settings_of_clients_go_by_prefix() -> None:
    """The nearer prefix wins; offsets are never committed."""
    settings = MirrorSettings(
        SOURCE,
        {
            "source.cluster.alias": "a",
            "source.cluster.bootstrap.servers": "one:1",
            "source.cluster.max.poll.records": "5",
            "consumer.max.poll.records": "6",
            "source.consumer.max.poll.records": "7",
            "target.cluster.bootstrap.servers": "two:2",
        },
    )
    made = settings.client("source", "consumer", "role")
    assert made["bootstrap.servers"] == "one:1"
    assert made["max.poll.records"] == "7"
    assert made["client.id"] == "a->target|role"
    assert settings.client("target", "admin", "x")["bootstrap.servers"] == "two:2"


def test_a_file_has_flows_and_their_settings() -> None:
    """Flows that are off still have heartbeats; a flow's settings stand above the file's."""
    texts = {
        "clusters": "a, b",
        "a.bootstrap.servers": "one:1",
        "b.bootstrap.servers": "two:2",
        "b.security.protocol": "PLAINTEXT",
        "a->b.enabled": "true",
        "a->b.topics": "orders",
        "topics": "other",
        "b.producer.linger.ms": "7",
        "replication.factor": "1",
    }
    config = MirrorMakerConfig(texts)
    assert config.flows() == [Flow("a", "b"), Flow("b", "a")]
    without = MirrorMakerConfig({**texts, "emit.heartbeats.enabled": "false"})
    assert without.flows() == [Flow("a", "b")]
    made = config.connector(Flow("a", "b"), "MirrorSource")
    assert made["connector.class"] == "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    assert (made["topics"], made["enabled"], made["replication.factor"]) == ("orders", "true", "1")
    assert made["source.cluster.bootstrap.servers"] == "one:1"
    assert made["target.cluster.bootstrap.servers"] == "two:2"
    assert made["target.producer.linger.ms"] == "7"
    back = config.connector(Flow("b", "a"), "MirrorSource")
    assert (back["enabled"], back["topics"]) == ("false", "other")
    worker = config.worker(Flow("a", "b"))
    assert worker["bootstrap.servers"] == "two:2"
    assert worker["offset.storage.topic"] == "mm2-offsets.a.internal"
    separated = MirrorMakerConfig({**texts, "replication.policy.separator": "_"})
    assert separated.worker(Flow("a", "b"))["offset.storage.topic"] == "mm2-offsets.a.internal"
    assert worker["producer.security.protocol"] == "PLAINTEXT"


@pytest.mark.parametrize(
    ("texts", "clusters", "text"),
    [
        ({}, (), "clusters"),
        ({"clusters": "a,b", "a.bootstrap.servers": "x:1"}, (), "b.bootstrap.servers"),
        ({"clusters": "a", "a.bootstrap.servers": "x:1"}, (), "No source->target"),
        ({"clusters": "a", "a.bootstrap.servers": "x:1"}, ("c",), "unknown cluster c"),
        (
            {
                "clusters": "a",
                "a.bootstrap.servers": "x:1",
                "a.exactly.once.source.support": "enabled",
            },
            (),
            "exactly-once",
        ),
    ],
)
def test_files_that_cannot_run(texts: dict[str, str], clusters: tuple[str, ...], text: str) -> None:
    """One line says what is missing."""
    with pytest.raises(ConnectException, match=text):
        MirrorMaker(MirrorMakerConfig(texts), clusters)


def test_offsets_that_operators_set() -> None:
    """They have all keys of their partition; those of checkpoints are 0."""
    keys = ("cluster", "topic", "partition")
    good = frozenset({"cluster": "a", "topic": "t", "partition": 0}.items())
    check_offsets({good: {"offset": 5}, frozenset(): None}, keys, only_zero=False)
    for names, offset, only_zero in (
        (frozenset({("cluster", "a")}), {"offset": 5}, False),
        (frozenset({("cluster", "a"), ("topic", "t"), ("partition", "0")}), {"offset": 5}, False),
        (good, {"offset": -1}, False),
        (good, {}, False),
        (good, {"offset": 5}, True),
    ):
        with pytest.raises(ConnectException):
            check_offsets({names: offset}, keys, only_zero=only_zero)
