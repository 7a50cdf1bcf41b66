"""Clusters of both kinds of nodes: each as the broker of the other's controller."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from ottla.cli.main import main
from ottla.testing.cluster import Cluster
from tests.conformance.kafka import RealKafka
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
BROKER = 2
LIMIT_S = 60.0
_SAFE = {"min.insync.replicas": "2"}


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Cluster]:
    """Run an Ottla node, broker and controller."""
    session = {"broker.session.timeout.ms": "600000"}
    with Cluster(data_dir=str(tmp_path / "ours"), config=session) as running:
        yield running


@pytest.fixture
def their_broker(kafka: Kafka, ours: Cluster, tmp_path: Path) -> Iterator[RealKafka]:
    """Start a real broker whose controller is ours."""
    directory = tmp_path / "kafka"
    directory.mkdir()
    controller = ours.run(lambda one: one.addresses["CONTROLLER"])
    node = RealKafka(kafka, directory, {})
    node.format_to_join(ours.run(lambda one: one.cluster_id), controller, BROKER, "broker")
    try:
        node.start()
        yield node
    finally:
        node.kill()


@pytest.fixture
def their_controller(kafka: Kafka, tmp_path: Path) -> Iterator[RealKafka]:
    """Run a real node, broker and controller."""
    directory = tmp_path / "kafka"
    directory.mkdir()
    node = RealKafka(kafka, directory, {})
    try:
        node.format()
        node.start()
        yield node
    finally:
        node.kill()


@pytest.fixture
def our_broker(their_controller: RealKafka, tmp_path: Path) -> Iterator[Cluster]:
    """Start an Ottla broker whose controller is real."""
    listeners = "PLAINTEXT://127.0.0.1:0"
    yield from _joined(their_controller, "broker", listeners, tmp_path)


@pytest.fixture
def our_standby(their_controller: RealKafka, tmp_path: Path) -> Iterator[Cluster]:
    """Start an Ottla node that is also a controller without a vote; the active one is real."""
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    arguments = ("--no-initial-controllers",)
    yield from _joined(their_controller, "broker,controller", listeners, tmp_path, *arguments)


def _joined(
    controller: RealKafka, roles: str, listeners: str, directory: Path, *arguments: str
) -> Iterator[Cluster]:
    """Format an Ottla node for the cluster of a real controller, and run it."""
    config = {
        "process.roles": roles,
        "node.id": str(BROKER),
        "listeners": listeners,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller.controller_port}",
        "controller.listener.names": "CONTROLLER",
    }
    data, file = directory / "ours", directory / "ours.properties"
    lines = [f"{name}={value}\n" for name, value in (config | {"log.dirs": str(data)}).items()]
    file.write_text("".join(lines))
    with Admin(bootstrap_servers=controller.bootstrap) as admin:
        cluster_id = str(admin.describe_cluster().cluster_id)
    main(["storage", "format", "-t", cluster_id, "-c", str(file), *arguments])
    with Cluster(config=config, data_dir=str(data)) as running:
        yield running


def _brokers(bootstrap: str) -> set[int]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return {node.node_id for node in admin.describe_cluster().brokers}


def _carries_records(bootstrap: str, topic: str, leader: int) -> None:
    """Create a topic on one broker through the other, write and read it."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        made = admin.create_topics([NewTopic(topic, assignments={0: [leader]})])
        assert not isinstance(made[topic], Exception), made
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
    with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        seen: list[bytes | None] = []
        deadline = time.monotonic() + LIMIT_S
        while len(seen) < 100 and time.monotonic() < deadline:
            seen += [one.value for one in consumer.poll(0.5)]
    assert seen == [b"%d" % number for number in range(100)]


def _replicates(bootstrap: str, topic: str) -> None:
    """Write with acks=all to a leader of each kind, and read all from either after a move."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        made = admin.create_topics(
            [NewTopic(topic, assignments={0: [1, BROKER], 1: [BROKER, 1]}, configs=_SAFE)]
        )
        assert not isinstance(made[topic], Exception), made
        for round_ in range(2):
            with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
                for number in range(200):
                    value = b"%d/%d" % (round_, number)
                    producer.send(topic, value, partition=number % 2)
            _swap_leaders(admin, topic, [[BROKER, 1], [1, BROKER]][round_])
    with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=topic
    ) as consumer:
        seen: dict[int, list[bytes | None]] = {0: [], 1: []}
        deadline = time.monotonic() + LIMIT_S
        while sum(map(len, seen.values())) < 400 and time.monotonic() < deadline:
            for one in consumer.poll(0.5):
                seen[one.partition].append(one.value)
    for partition, values in seen.items():
        assert values == [
            b"%d/%d" % (round_, number)
            for round_ in range(2)
            for number in range(partition, 200, 2)
        ]


def _swap_leaders(admin: Admin, topic: str, replicas: list[int]) -> None:
    """Let the other replica of each partition lead."""
    wanted = {0: replicas, 1: replicas[::-1]}
    admin.alter_partition_reassignments(
        {TopicPartition(topic, index): one for index, one in wanted.items()}
    )
    leaders = {index: one[0] for index, one in wanted.items()}

    def is_moved() -> bool:
        admin.elect_leaders(partitions=[TopicPartition(topic, index) for index in wanted])
        described = admin.describe_topics([topic])[topic]
        if isinstance(described, KafkaError):
            return False
        found = {one.partition: one.leader.node_id for one in described.partitions if one.leader}
        return found == leaders and all(len(one.isr) == 2 for one in described.partitions)

    wait_for(is_moved, problem="leaders do not move")


def test_a_real_broker_serves_under_our_controller(ours: Cluster, their_broker: RealKafka) -> None:
    """It registers, is unfenced, leads partitions, and forwards requests to us."""
    wait_for(lambda: _brokers(ours.bootstrap) == {1, BROKER}, problem="the broker is not there")
    _carries_records(ours.bootstrap, "on-theirs", BROKER)
    _carries_records(their_broker.bootstrap, "on-ours", 1)
    _replicates(ours.bootstrap, "on-both")


def _leader(bootstrap: str, topic: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        described = admin.describe_topics([topic])[topic]
    assert not isinstance(described, KafkaError)
    leader = described.partitions[0].leader
    return -1 if leader is None else leader.node_id


def test_a_real_broker_that_is_killed_is_fenced_at_once(
    ours: Cluster, their_broker: RealKafka
) -> None:
    """Its partitions have another leader long before its session of ten minutes expires."""
    wait_for(lambda: _brokers(ours.bootstrap) == {1, BROKER}, problem="the broker is not there")
    with Admin(bootstrap_servers=ours.bootstrap) as admin:
        admin.create_topics([NewTopic("led-by-theirs", assignments={0: [BROKER, 1]})])
    wait_for(lambda: _leader(ours.bootstrap, "led-by-theirs") == BROKER, problem="it does not lead")
    their_broker.kill()
    wait_for(lambda: _leader(ours.bootstrap, "led-by-theirs") == 1, problem="no other leader")
    assert _brokers(ours.bootstrap) == {1}


def test_our_broker_serves_under_a_real_controller(
    their_controller: RealKafka, our_broker: Cluster
) -> None:
    """It registers, is unfenced, leads partitions, and forwards requests to it."""
    wait_for(
        lambda: _brokers(their_controller.bootstrap) == {1, BROKER},
        problem="the broker is not there",
    )
    _carries_records(their_controller.bootstrap, "on-ours", BROKER)
    _carries_records(our_broker.bootstrap, "on-theirs", 1)
    _replicates(their_controller.bootstrap, "on-both")


def _controllers(*address: object) -> list[tuple[int, int]]:
    """Return the ids and ports of the controllers that one of them has registered."""
    bootstrap = "{}:{}".format(*address)
    with Admin(bootstrap_controllers=bootstrap) as admin:
        return [(one.node_id, one.port) for one in admin.describe_cluster().brokers]


def test_our_standby_controller_registers_with_a_real_one(
    their_controller: RealKafka, our_standby: Cluster
) -> None:
    """Both list both, with the port that ours was given."""
    ours = our_standby.run(lambda one: one.addresses["CONTROLLER"])
    theirs = "127.0.0.1", their_controller.controller_port
    both = [(1, theirs[1]), (BROKER, ours[1])]
    wait_for(lambda: _controllers(*theirs) == both, problem="ours is not registered with theirs")
    wait_for(lambda: _controllers(*ours) == both, problem="ours does not know both")


def test_a_real_standby_controller_registers_with_ours(
    kafka: Kafka, ours: Cluster, tmp_path: Path
) -> None:
    """Both list both."""
    directory = tmp_path / "kafka"
    directory.mkdir()
    address = ours.run(lambda one: one.addresses["CONTROLLER"])
    node = RealKafka(kafka, directory, {})
    cluster_id = ours.run(lambda one: one.cluster_id)
    node.format_to_join(cluster_id, address, BROKER, "controller", "--no-initial-controllers")
    both = [(1, address[1]), (BROKER, node.controller_port)]
    node.launch()
    try:
        wait_for(
            lambda: _controllers(*address) == both, problem="theirs is not registered with ours"
        )
        wait_for(
            lambda: _controllers("127.0.0.1", node.controller_port) == both, problem="not both"
        )
    finally:
        node.kill()
