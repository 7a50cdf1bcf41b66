"""The settings of the mirror's connectors, and the flows of a file, against Kafka's own classes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.connect.mirror.flows import CONNECTORS, MirrorMakerConfig
from ottla.connect.mirror.settings import CHECKPOINT, HEARTBEAT, SOURCE

if TYPE_CHECKING:
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
TABLES = {"MirrorSource": SOURCE, "MirrorCheckpoint": CHECKPOINT, "MirrorHeartbeat": HEARTBEAT}
CLUSTERS = {"clusters": "a,b,c", "plugin.discovery": "service_load"} | {
    f"{alias}.bootstrap.servers": f"{alias}:9092" for alias in "abc"
}
LINES = (
    ("a->b.enabled", "true"),
    ("b->a.enabled", "true"),
    ("a->c.enabled", "false"),
    ("emit.heartbeats.enabled", "false"),
    ("emit.heartbeats.enabled", "true"),
    ("c->a.emit.heartbeats.enabled", "true"),
    ("a->b.emit.heartbeats.enabled", "false"),
    ("topics", "orders.*"),
    ("a->b.topics", "x,y"),
    ("b->a.groups.exclude", "g"),
    ("sync.group.offsets.enabled", "true"),
    ("replication.factor", "1"),
    ("replication.policy.separator", "_"),
    ("a->b.replication.policy.separator", "-"),
    ("replication.policy.internal.topic.separator.enabled", "false"),
    ("replication.policy.class", "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"),
    ("tasks.max", "3"),
    ("a->b.tasks.max", "4"),
    ("security.protocol", "SSL"),
    ("a.security.protocol", "PLAINTEXT"),
    ("ssl.truststore.location", "/t"),
    ("b.ssl.keystore.location", "/k"),
    ("b.producer.ssl.keystore.location", "/p"),
    ("sasl.mechanism", "PLAIN"),
    ("a.sasl.mechanism", "SCRAM-SHA-256"),
    ("b.producer.linger.ms", "7"),
    ("a.consumer.max.poll.records", "9"),
    ("b.admin.retries", "2"),
    ("b.replication.factor", "2"),
    ("producer.acks", "1"),
    ("offset.storage.replication.factor", "1"),
    ("a.offset.storage.topic", "own"),
    ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ("task.shutdown.graceful.timeout.ms", "9"),
    ("offset.flush.interval.ms", "5"),
    ("b.offset.flush.interval.ms", "6"),
    ("client.id", "mine"),
)
FILES = 40
CONNECTION = ("security.", "ssl.", "sasl.")
"""Without a prefix; a connector's clients have prefixes."""
UNUSED_BY_WORKERS = ("client.id", "group.id", "config.storage", "status.storage", "replication.p")


def _file(rng: random.Random) -> dict[str, str]:
    return CLUSTERS | dict(rng.sample(LINES, rng.randrange(len(LINES))))


@pytest.fixture(name="printed", scope="module")
def _printed(kafka: Kafka) -> list[list[str]]:
    rng = random.Random(3)
    files = ["\t".join(f"{k}={v}" for k, v in _file(rng).items()) for _ in range(FILES)]
    classes = kafka.compile(Path(__file__).parent / "java" / "MirrorTables.java")
    done = kafka.run(
        "org.apache.kafka.connect.mirror.MirrorTables", classes=classes, stdin="\n".join(files)
    )
    return [line.split("\t") for line in done.stdout.splitlines()]


def _maps(printed: list[list[str]]) -> list[dict[tuple[str, str], dict[str, str]]]:
    """Return the settings by connector and flow, a map for each file."""
    maps: list[dict[tuple[str, str], dict[str, str]]] = [{}]
    for kind, *fields in printed:
        if kind == "end":
            maps.append({})
        elif kind != "key":
            flow, *pairs = fields
            maps[-1][kind, flow] = dict(pair.split("=", 1) for pair in pairs)
    return maps[:-1]


def test_flows_and_settings_of_a_file(printed: list[list[str]]) -> None:
    """A file has the same flows, with the same connectors, converters and topic of offsets."""
    rng = random.Random(3)
    for theirs in _maps(printed):
        config = MirrorMakerConfig(_file(rng))
        ours = {}
        for flow in config.flows():
            ours["worker", str(flow)] = config.worker(flow)
            for name in CONNECTORS:
                ours[name, str(flow)] = config.connector(flow, name)
        assert ours.keys() == theirs.keys()
        for (kind, of), settings in theirs.items():
            unused = UNUSED_BY_WORKERS if kind == "worker" else CONNECTION
            expected = {it: text for it, text in settings.items() if not it.startswith(unused)}
            if kind == "worker":  # has defaults of its own, too
                assert ours[kind, of].items() >= expected.items()
            else:
                assert ours[kind, of] == expected


@pytest.mark.parametrize("connector", TABLES)
def test_names_types_defaults_and_importance(connector: str, printed: list[list[str]]) -> None:
    """Those of the connectors' own settings; the filters of topics have theirs in Kafka."""
    theirs = {line[2]: line[3:] for line in printed if line[:2] == ["key", connector]}
    unsupported = {"config.providers", "metric.reporters"}
    of_filters = {"topics", "topics.exclude", "use.defaults.from"}
    ours = {
        name: [
            it.type.name,
            # Kafka's default of config.properties.exclude has dots that are not escaped
            "<required>" if it.required else str(it.text(it.default)).replace(r"\.", "."),
            it.importance.name,
        ]
        for name, it in TABLES[connector].keys.items()
        if name in theirs or name not in of_filters
    }
    expected = {
        name: [type_, default.replace(r"\.", "."), importance]
        for name, (type_, default, importance) in theirs.items()
        if name not in unsupported and not name.startswith(CONNECTION)
    }
    assert {name: it for name, it in ours.items() if name not in unsupported} == expected
