"""Mistakes of users; tests/testing/test_mistakes.py runs them and checks what they see.

The docstring of each test is the last line that pytest shows of its error.
"""

# ruff: noqa: D400, D403 - the docstrings are error texts

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing import Cluster

if TYPE_CHECKING:
    from ottla.testing import Kafka, KafkaFactory


@pytest.mark.kafka(config={"num.partition": "3"})
def test_marker_setting(kafka: Kafka) -> None:
    """Unknown configuration num.partition; did you mean num.partitions?"""


@pytest.mark.kafka(confg={})
def test_marker_word(kafka: Kafka) -> None:
    """@pytest.mark.kafka takes config= and nodes=, not confg"""


@pytest.mark.kafka(nodes=0)
def test_nodes(kafka: Kafka) -> None:
    """nodes=0: a cluster has at least one node"""


@pytest.mark.kafka(nodes=3, config={"node.id": 2})
def test_node_id(kafka: Kafka) -> None:
    """node.id: a cluster of several nodes sets it itself"""


@pytest.mark.kafka(nodes=3, config={"listeners": "PLAINTEXT://:9092,CONTROLLER://:0"})
def test_node_ports(kafka: Kafka) -> None:
    """listeners: PLAINTEXT://:9092: several nodes need port 0"""


def test_cluster_setting(kafka_cluster: KafkaFactory) -> None:
    """Unknown configuration num.partition; did you mean num.partitions?"""
    kafka_cluster(config={"num.partition": "3"})


def test_cluster_value(kafka_cluster: KafkaFactory) -> None:
    """Invalid value many for configuration num.partitions: Not a number of type INT"""
    kafka_cluster(config={"num.partitions": "many"})


def test_cluster_class() -> None:
    """Unknown configuration log.retention.hour; did you mean log.retention.hours?"""
    Cluster(config={"log.retention.hour": 3}).start()


def test_cluster_directory() -> None:
    """log.dirs: use data_dir for the data directory"""
    Cluster(config={"log.dirs": "data"})


def test_topic_setting(kafka: Kafka) -> None:
    """Unknown topic config name: retention.mss; did you mean retention.ms?"""
    kafka.topic("orders", config={"retention.mss": 5})


def test_topic_value(kafka: Kafka) -> None:
    """Invalid value long for configuration retention.ms: Not a number of type LONG"""
    kafka.topic("orders", config={"retention.ms": "long"})


def test_topic_twice(kafka: Kafka) -> None:
    """Topic 'twice' already exists."""
    kafka.topic("twice", exact=True)
    kafka.topic("twice", exact=True)


def test_time_limit(kafka: Kafka) -> None:
    """within(seconds) takes a number of seconds, not '2'"""
    kafka.topic("orders").expect().within("2").exactly(0)  # type: ignore[arg-type]


def test_count(kafka: Kafka) -> None:
    """exactly(count) takes a number of records, not '1'"""
    kafka.topic("orders").expect().exactly("1")  # type: ignore[arg-type]


def test_unchecked(kafka: Kafka) -> None:
    """with key '1' checks nothing: end it with .exactly(n) or .at_least(n)"""
    kafka.topic("orders").expect(key="1").within(2)


def test_mapping(kafka: Kafka) -> None:
    """produce() takes bytes, str or None, not a mapping; use produce_json()"""
    kafka.topic("orders").produce({"id": 1})


def test_consumer_setting(kafka: Kafka) -> None:
    """unknown setting 'max_poll_record'; did you mean 'max_poll_records'?"""
    settings: Any = {"max_poll_record": 5}
    kafka.consumer("orders", **settings)


def test_node(kafka_cluster: KafkaFactory) -> None:
    """there is no node 2: the cluster has node 1"""
    kafka_cluster().kill(2)


def test_dead_broker(kafka_cluster: KafkaFactory) -> None:
    """the cluster is not running; call start() or use it in `with`"""
    kafka = kafka_cluster()
    kafka.kill()
    print(kafka.bootstrap)


def test_lag(kafka: Kafka) -> None:
    """group absent did not reach lag 0"""
    kafka.wait_lag(0, group="absent", timeout=0.1)


def test_members(kafka: Kafka) -> None:
    """group absent has not become stable with 2 member(s)"""
    kafka.wait_assigned("absent", members=2, timeout=0.1)
