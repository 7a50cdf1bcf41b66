"""The nearest known name for a typing error."""

from __future__ import annotations

import time

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.problems import ConfigErrors, ConfigProblem, invalid, nearest, unknown
from ottla.config.topic import public_names

SLIPS = [
    ("log.retention.hour", "log.retention.hours"),
    ("log.retenton.hours", "log.retention.hours"),
    ("log.dir.s", "log.dirs"),
    ("listner", "listeners"),
    ("listener", "listeners"),
    ("advertised.listener", "advertised.listeners"),
    ("advertized.listeners", "advertised.listeners"),
    ("num.partition", "num.partitions"),
    ("num.network.thread", "num.network.threads"),
    ("nodeid", "node.id"),
    ("node_id", "node.id"),
    ("process.role", "process.roles"),
    ("controller.listeners.names", "controller.listener.names"),
    ("controller.quorum.voter", "controller.quorum.voters"),
    ("auto.create.topic.enable", "auto.create.topics.enable"),
    ("default.replication.factors", "default.replication.factor"),
    ("offsets.topic.replication.facto", "offsets.topic.replication.factor"),
    ("transaction.state.log.replication.factr", "transaction.state.log.replication.factor"),
    ("min.insync.replica", "min.insync.replicas"),
    ("mesage.max.bytes", "message.max.bytes"),
    ("group.initial.rebalance.delay", "group.initial.rebalance.delay.ms"),
    ("log.segment.byte", "log.segment.bytes"),
    ("LOG.SEGMENT.BYTES", "log.segment.bytes"),
    ("socket.request.max.byte", "socket.request.max.bytes"),
    ("delete.topics.enable", "delete.topic.enable"),
    ("inter.broker.listener.names", "inter.broker.listener.name"),
    ("log.cleaner.thread", "log.cleaner.threads"),
    ("broker.rak", "broker.rack"),
    ("unclean.leader.election.enabled", "unclean.leader.election.enable"),
    ("replica.lag.time.ms", "replica.lag.time.max.ms"),
    ("log-dirs", "log.dirs"),
]

TOPIC_SLIPS = [
    ("retention.m", "retention.ms"),
    ("retention", "retention.ms"),
    ("cleanup.polcy", "cleanup.policy"),
    ("segment.byte", "segment.bytes"),
    ("min.insync.replica", "min.insync.replicas"),
    ("max.messages.bytes", "max.message.bytes"),
    ("compresion.type", "compression.type"),
]


@pytest.mark.parametrize(("slip", "meant"), SLIPS)
def test_a_broker_slip_is_found(slip: str, meant: str) -> None:
    """The nearest name of a misspelt broker setting is the right one."""
    assert nearest(slip, BrokerConfig.keys) == meant


@pytest.mark.parametrize(("slip", "meant"), TOPIC_SLIPS)
def test_a_topic_slip_is_found(slip: str, meant: str) -> None:
    """The nearest name of a misspelt topic setting is the right one."""
    assert nearest(slip, public_names()) == meant


@pytest.mark.parametrize("strange", ["", "zookeeper.connect", "x", "my.plugin.endpoint"])
def test_nothing_near_gives_no_proposal(strange: str) -> None:
    """A name similar to no known one gets no proposal."""
    assert nearest(strange, BrokerConfig.keys) is None


def test_the_sentences() -> None:
    """Refused values read as in Kafka; several problems make one text with a line each."""
    assert str(invalid("a.b", 5)) == "Invalid value 5 for configuration a.b"
    assert invalid("a.b", None, "why").message == "Invalid value null for configuration a.b: why"
    assert unknown("log.dir", "1", ["log.dirs"]).message.endswith("; did you mean log.dirs?")
    errors = ConfigErrors([ConfigProblem("a", "1", "first"), ConfigProblem("b", None, "second")])
    assert str(errors) == "first\nsecond"
    assert [problem.name for problem in errors.problems] == ["a", "b"]


def test_a_long_name_is_near_to_none() -> None:
    """It is not compared letter by letter: clients choose the names of topic settings."""
    start_s = time.process_time()
    assert nearest("retention.ms" * 20_000, BrokerConfig.keys) is None
    assert time.process_time() - start_s < 5
