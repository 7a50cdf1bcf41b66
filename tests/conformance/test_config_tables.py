"""The configuration tables against Kafka 4.3.0's own, and its sentences about wrong values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla.config import dynamic
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.definition import ConfigTable, Type
from ottla.config.group import GroupConfig
from ottla.config.problems import ConfigErrors
from ottla.config.topic import BROKER_SYNONYMS, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance

TABLES: dict[str, type[ConfigTable]] = {
    "broker": BrokerConfig,
    "topic": TopicConfig,
    "group": GroupConfig,
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "admin": AdminConfig,
}

# Values that some setting of each kind refuses; every setting of every table is asked for all.
PROBES = ("", "0", "-1", "-3", "7.5", "99999999999", "x", "true", "a,a", "a,", "none,x", " 5 ")

# Kafka loads classes when it reads their names; Ottla has no Java classes to load.
UNLOADED = (Type.CLASS,)

# Their entries are checked together with the rest of the node: WRONG_NODES has them.
ADDRESSES = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}

WRONG_NODES: tuple[dict[str, str], ...] = (
    {},
    {"broker.id": "2"},
    {"log.roll.ms": "0"},
    {"log.retention.ms": "0"},
    {"log.retention.hours": "0"},
    {"log.dirs": ""},
    {"log.cleaner.dedupe.buffer.size": "1048576"},
    {"replica.fetch.wait.max.ms": "40000"},
    {"replica.lag.time.max.ms": "100"},
    {"cordoned.log.dirs": "/nowhere"},
    {"cordoned.log.dirs": "*,/nowhere"},
    {"controller.quorum.voters": ""},
    {"controller.quorum.voters": "2@localhost:9093"},
    {"controller.quorum.voters": "1@localhost"},
    {"controller.quorum.voters": "x@localhost:1"},
    {"controller.quorum.voters": "localhost:1"},
    {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "localhost"},
    {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "localhost:9093"},
    {"controller.quorum.voters": "1@localhost:70000"},
    {"controller.listener.names": "OTHER"},
    {"controller.listener.names": "CONTROLLER,OTHER"},
    {"process.roles": "broker"},
    {"process.roles": "controller"},
    {"process.roles": "broker,zookeeper"},
    {"process.roles": "broker", "controller.quorum.voters": "2@localhost:9093"},
    {"listeners": "CONTROLLER://localhost:9093"},
    {"listeners": "PLAINTEXT://localhost:9093,CONTROLLER://localhost:9093"},
    {"listeners": "PLAINTEXT://localhost:9092,PLAINTEXT://localhost:1,CONTROLLER://localhost:9093"},
    {"listeners": "PLAINTEXT://127.0.0.1:9093,CONTROLLER://127.0.0.2:9093"},
    {"listeners": "PLAINTEXT://127.0.0.1:9093,CONTROLLER://[::1]:9093"},
    {"listeners": "INSIDE://localhost:9092,CONTROLLER://localhost:9093"},
    {"listeners": "localhost:9092,CONTROLLER://localhost:9093"},
    {"listeners": "PLAINTEXT://local host:9092,CONTROLLER://localhost:9093"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    {"advertised.listeners": "SSL://localhost:9092"},
    {"advertised.listeners": "CONTROLLER://localhost:9093"},
    {"advertised.listeners": "PLAINTEXT://localhost:9092,SSL://localhost:9094"},
    {"inter.broker.listener.name": "OTHER"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"inter.broker.listener.name": "SSL"},
    {"security.inter.broker.protocol": "SSL"},
    {"listener.security.protocol.map": "PLAINTEXT:NONE,CONTROLLER:PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"queued.max.request.bytes": "5"},
    {"max.connections.per.ip": "0"},
    {"connection.failed.authentication.delay.ms": "600000"},
    {"group.consumer.min.heartbeat.interval.ms": "20000"},
    {"group.consumer.heartbeat.interval.ms": "1"},
    {"group.consumer.heartbeat.interval.ms": "15001"},
    {"group.consumer.session.timeout.ms": "5"},
    {"group.consumer.max.session.timeout.ms": "44000"},
    {"group.consumer.max.assignment.interval.ms": "999"},
    {"group.share.max.session.timeout.ms": "44000"},
    {"group.share.heartbeat.interval.ms": "1"},
    {"group.share.delivery.count.limit": "2", "group.share.min.delivery.count.limit": "3"},
    {"group.share.record.lock.duration.ms": "14000"},
    {"group.share.partition.max.record.locks": "5000"},
    {"group.streams.num.standby.replicas": "3"},
    {"group.streams.session.timeout.ms": "44000"},
    {"group.streams.max.heartbeat.interval.ms": "4000"},
    {"controller.quorum.auto.join.enable": "true", "process.roles": "broker"},
)


class KafkaTables(NamedTuple):
    """What Kafka printed: table lines by kind, then one answer for each question."""

    lines: dict[str, list[list[str]]]
    answers: list[str]


def _questions() -> Iterator[str]:
    for scope, table in TABLES.items():
        for name, definition in table.keys.items():
            if definition.type not in UNLOADED and name not in ADDRESSES:
                yield from (f"value\t{scope}\t{name}\t{probe}" for probe in PROBES)
    for changes in WRONG_NODES:
        yield "broker\t" + "\t".join(f"{name}={text}" for name, text in _node(changes).items())


def _node(changes: dict[str, str]) -> dict[str, str]:
    return {**NODE, **changes}


@pytest.fixture(scope="module")
def kafka_tables(kafka: Kafka) -> KafkaTables:
    """Run the Java program once for all tests of this module."""
    classes = kafka.compile(Path(__file__).parent / "java" / "ConfigTables.java")
    questions = "\n".join(_questions()) + "\n"
    finished = kafka.run("ConfigTables", classes=classes, stdin=questions)
    lines: dict[str, list[list[str]]] = {}
    for line in finished.stdout.splitlines():
        kind, *fields = line.split("\t")
        lines.setdefault(kind, []).append(fields)
    return KafkaTables(lines, [answer for (answer,) in lines.pop("answer")])


@pytest.mark.parametrize("scope", TABLES)
def test_names_types_and_defaults_agree(scope: str, kafka_tables: KafkaTables) -> None:
    """Every name, type, default and internal mark of a table is Kafka's, and none is missing."""
    theirs = {
        name: (kind, default, internal)
        for owner, name, kind, default, internal, _ in kafka_tables.lines["key"]
        if owner == scope
    }
    ours = {}
    for name, definition in TABLES[scope].keys.items():
        default = "<required>" if definition.required else definition.text(definition.default)
        if name == "partition.assignment.strategy":  # Kafka prints class objects, we names
            default = ",".join(f"class {entry}" for entry in definition.default)
        shown = "<null>" if default is None else default
        ours[name] = (definition.type.name, shown, str(definition.internal).lower())
    for name, (kind, default, internal) in theirs.items():
        if kind == "CLASS" and default.startswith("class "):
            theirs[name] = (kind, default.removeprefix("class "), internal)
    assert ours == theirs


@pytest.mark.parametrize("scope", ["broker", "topic", "group"])
def test_importance_agrees(scope: str, kafka_tables: KafkaTables) -> None:
    """The importance is Kafka's where brokers show it; clients share one table of security."""
    theirs = {
        name: importance
        for owner, name, *_, importance in kafka_tables.lines["key"]
        if owner == scope
    }
    ours = {name: one.importance.name for name, one in TABLES[scope].keys.items()}
    assert ours == theirs


def test_update_modes_agree(kafka_tables: KafkaTables) -> None:
    """The same settings are dynamic, for the same reach."""
    theirs = dict(kafka_tables.lines["mode"])
    ours = {name: dynamic.update_mode(name).value for name in dynamic.ALL_DYNAMIC}
    assert ours == theirs


def test_topic_synonyms_agree(kafka_tables: KafkaTables) -> None:
    """Each topic setting takes its default from the same settings of the broker."""
    theirs = {name: tuple(given.split(",")) for name, given in kafka_tables.lines["synonym"]}
    assert dict(BROKER_SYNONYMS) == theirs


def _our_answer(question: str) -> list[str]:
    kind, *fields = question.split("\t")
    if kind == "value":
        scope, name, text = fields
        reading = TABLES[scope].definitions.read({name: text})
        return [one.message for one in reading.problems if one.name == name] or ["ok"]
    try:
        parse_broker_config(dict(field.split("=", 1) for field in fields))
    except ConfigErrors as error:
        return [problem.message for problem in error.problems]
    return ["ok"]


def test_wrong_values_get_kafkas_sentence(kafka_tables: KafkaTables) -> None:
    """Each probe is accepted or refused as in Kafka, with the same sentence."""
    differences = []
    for question, theirs in zip(_questions(), kafka_tables.answers, strict=True):
        if question.startswith("value") and theirs not in _our_answer(question):
            differences.append((question, theirs, _our_answer(question)))
    assert not differences, "\n".join(map(str, differences[:20]))


def test_wrong_nodes_get_kafkas_sentence(kafka_tables: KafkaTables) -> None:
    """Kafka's one complaint about a node's settings is among ours, and we refuse no more."""
    differences = []
    for question, theirs in zip(_questions(), kafka_tables.answers, strict=True):
        if not question.startswith("broker"):
            continue
        sentence = theirs.removeprefix("requirement failed: ")
        ours = _our_answer(question)
        if sentence not in ours:
            differences.append((question, sentence, ours))
    assert not differences, "\n".join(map(str, differences))
