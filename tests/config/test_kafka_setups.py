"""Settings as Kafka's users write them: they start unchanged, or are refused by name.

The shapes are those of compose files for the images of Apache, Confluent and Bitnami, and of the
files that Kafka is delivered with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.config.environment import NOTHING
from ottla.config.problems import ConfigErrors
from ottla.server.node.settings import ConfigFile, node_environment, node_settings

if TYPE_CHECKING:
    from ottla.server.node.settings import StartSettings

APACHE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_NUM_PARTITIONS": "3",
}
TWO_NETWORKS = {
    **APACHE,
    "KAFKA_LISTENERS": "CONTROLLER://localhost:9091,HOST://0.0.0.0:9092,DOCKER://0.0.0.0:9093",
    "KAFKA_ADVERTISED_LISTENERS": "HOST://localhost:9092,DOCKER://kafka:9093",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,DOCKER:PLAINTEXT,HOST:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9091",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "DOCKER",
}
CONFLUENT = {
    "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
    "PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_JMX_PORT": "9101",
    "KAFKA_JMX_HOSTNAME": "localhost",
    "KAFKA_LOG4J_LOGGERS": "kafka.controller=INFO",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
    "KAFKA_HEAP_OPTS": "-Xmx512m",
    "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
    "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_LISTENERS": "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,"
    "PLAINTEXT_HOST://0.0.0.0:9092",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "true",
}
BITNAMI = {
    "KAFKA_ENABLE_KRAFT": "yes",
    "KAFKA_KRAFT_CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "ALLOW_PLAINTEXT_LISTENER": "yes",
    "KAFKA_CFG_NODE_ID": "0",
    "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
    "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@kafka:9093",
    "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094",
    "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094",
    "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,"
    "PLAINTEXT:PLAINTEXT",
    "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}
COMBINED_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
ZOOKEEPER_FILE = "broker.id=0\nzookeeper.connect=localhost:2181\nlog.dirs=/tmp/kafka-logs\n"


def of_variables(variables: dict[str, str]) -> StartSettings:
    """Return the settings of a container with these variables."""
    return node_settings(None, {}, environment=node_environment(variables, str))


def of_file(text: str) -> StartSettings:
    """Return the settings of a node with this file."""
    return node_settings(ConfigFile("server.properties", text), {}, environment=NOTHING)


@pytest.mark.parametrize(
    ("variables", "advertised"),
    [
        (APACHE, ["PLAINTEXT://localhost:9092"]),
        (TWO_NETWORKS, ["HOST://localhost:9092", "DOCKER://kafka:9093"]),
        (CONFLUENT, ["PLAINTEXT://broker:29092", "PLAINTEXT_HOST://localhost:9092"]),
        (BITNAMI, ["PLAINTEXT://kafka:9092", "EXTERNAL://localhost:9094"]),
    ],
    ids=["apache", "two networks", "confluent", "bitnami"],
)
def test_containers_of_one_node_start_unchanged(
    variables: dict[str, str], advertised: list[str]
) -> None:
    """Clients are told the addresses of the compose file."""
    config = of_variables(variables).config
    told = [str(one) for one in config.advertised_endpoints]
    assert told == advertised
    assert [one.node_id for one in config.voters] == [config.node_id]


def test_what_has_no_meaning_here_is_a_warning() -> None:
    """Options of the JVM and settings of Confluent's plug-ins are named, and the node starts."""
    warnings = "\n".join(of_variables(CONFLUENT).warnings)
    assert "KAFKA_JMX_PORT" in warnings
    assert "confluent.license.topic.replication.factor" in warnings
    assert of_variables(APACHE).warnings == ()
    assert of_variables(BITNAMI).warnings == ()


def test_the_file_that_kafka_is_delivered_with_starts_unchanged() -> None:
    """config/server.properties of Kafka 4; its older form has a static quorum."""
    assert of_file(COMBINED_FILE).warnings == ()
    newer = COMBINED_FILE.replace(
        "quorum.voters=1@localhost:9093", "quorum.bootstrap.servers=localhost:9093"
    )
    assert of_file(newer).warnings == ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL"},
            "a TLS listener needs ssl.keystore.location",
        ),
        (
            {"KAFKA_AUTHORIZER_CLASS_NAME": "a.StandardAuthorizer"},
            "authorizer.class.name: class a.StandardAuthorizer cannot be loaded",
        ),
        (
            {"KAFKA_METRIC_REPORTERS": "io.confluent.metrics.reporter.ConfluentMetricsReporter"},
            "metric.reporters",
        ),
    ],
)
def test_what_is_not_there_is_refused_by_name(changes: dict[str, str], text: str) -> None:
    """The setting, what it asks for, and the variable that gives it."""
    with pytest.raises(ConfigErrors) as refused:
        of_variables({**APACHE, **changes})
    assert text in str(refused.value)


def test_zookeeper_is_refused_with_the_way_out() -> None:
    """As file and as variables; a rest of it next to process.roles is a warning, as in Kafka."""
    with pytest.raises(ConfigErrors) as refused:
        of_file(ZOOKEEPER_FILE)
    text = (
        "zookeeper.connect=localhost:2181 requires ZooKeeper, which Kafka 4 does not support any "
        "more: remove it and set process.roles=broker,controller"
    )
    assert text in str(refused.value)
    variables = {"KAFKA_BROKER_ID": "1", "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"}
    with pytest.raises(ConfigErrors, match="KAFKA_ZOOKEEPER_CONNECT"):
        of_variables(variables)
    left = of_file(COMBINED_FILE + "zookeeper.connect=localhost:2181\n")
    assert any("zookeeper.connect" in one for one in left.warnings)
