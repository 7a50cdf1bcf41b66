"""`ottla cluster health`: a healthy node, and each thing that may be wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ottla.cli.commands.cluster import health_lines
from ottla.clients.admin.cluster import ClusterDescription, LogDirDescription
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.admin.quorum import QuorumInfo, ReplicaState
from ottla.clients.admin.topics import PartitionDescription, TopicDescription
from ottla.errors import ErrorCode, KafkaError
from ottla.types import Node, Uuid
from ottla.views.health import ClusterHealth, controllers_behind, examine
from tests.cli.running import run

if TYPE_CHECKING:
    import pytest

    from ottla.testing.kafka import Kafka

NODES = tuple(Node(n, "h", 9090 + n, None) for n in (1, 2, 3))


def test_a_healthy_node(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    """One screen, exit status 0; --json has the same."""
    kafka.topic("healthy", partitions=3)
    place = ("cluster", "health", "--bootstrap-server", kafka.bootstrap)
    status, shown, _ = run(capsys, *place)
    assert status == 0
    lines = shown.splitlines()
    assert len(lines) < 20
    assert lines[0].split() == ["Healthy:", "yes"]
    assert "Leaderless partitions (0):          -" in lines
    status, shown, _ = run(capsys, *place, "--json")
    document = json.loads(shown)
    assert (status, document["healthy"], document["brokers"]) == (0, True, [1])
    assert document["partitions"] >= 3


class BrokenCluster:
    """Broker 3 is down, broker 2 has lost a disk, controller 3 is behind."""

    def describe_cluster(self, **_: object) -> ClusterDescription:
        """Return three brokers."""
        return ClusterDescription("id", NODES[0], NODES, frozenset({3}), 0)

    def describe_metadata_quorum(self) -> QuorumInfo:
        """Return three voters."""
        voters = tuple(
            ReplicaState(n, Uuid(), 100, caught_up_ms, caught_up_ms)
            for n, caught_up_ms in ((1, 60_000), (2, 59_500), (3, None))
        )
        return QuorumInfo(1, 4, 99, voters, (), {})

    def describe_topics(self) -> dict[str, Any]:
        """Return a partition of each kind, and a topic that was deleted meanwhile."""
        replicas = (1, 2, 3)
        partitions = tuple(
            PartitionDescription(number, leader, 0, replicas, isr, ())
            for number, leader, isr in (
                (0, NODES[0], (1, 2, 3)),
                (1, NODES[0], (1, 2)),
                (2, NODES[0], (1,)),
                (3, None, ()),
            )
        )
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {"t": TopicDescription("t", Uuid(), False, partitions, 0), "gone": gone}

    def describe_log_dirs(self, brokers: list[int]) -> dict[int, list[LogDirDescription]]:
        """Ask only those that are there."""
        assert brokers == [1, 2]
        failed = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return {
            1: [
                LogDirDescription("/a", None, {}, 1, 1, False),
                LogDirDescription("/c", None, {}, 1, 0, False),
                LogDirDescription("/old", None, {}, -1, -1, False),
            ],
            2: [LogDirDescription("/b", failed, {}, 1, 1, False)],
        }

    def describe_configs(self, asked: dict[ConfigResource, list[str]]) -> dict[Any, Any]:
        """Return min.insync.replicas of the one topic."""
        assert asked == {ConfigResource(ResourceType.TOPIC, "t"): ["min.insync.replicas"]}

        class Entry:
            value = "2"

        return {one: {"min.insync.replicas": Entry()} for one in asked}


def test_everything_that_is_wrong_is_named() -> None:
    """Each in its line, with the number of partitions."""
    health = examine(BrokenCluster())  # type: ignore[arg-type] # the methods that are used
    assert not health.is_healthy
    shown = dict(line.split(":", 1) for line in health_lines(health))
    assert {name: value.strip() for name, value in shown.items()} == {
        "Healthy": "no",
        "Cluster id": "id",
        "Active controller": "1 (epoch 4)",
        "Controllers": "1, 2, 3",
        "Controllers behind the active one": "3",
        "Brokers": "1, 2",
        "Brokers down (fenced)": "3",
        "Offline log directories": "/b of broker 2",
        "Log directories without space": "/c of broker 1",
        "Topics, partitions": "1, 4",
        "Leaderless partitions (1)": "t-3",
        "Below min.insync.replicas (2)": "t-2, t-3",
        "Under-replicated partitions (3)": "t-1, t-2, t-3",
    }


def test_long_lists_are_shortened_and_a_quorum_without_leader_is_no_health() -> None:
    """The document has all."""
    names = [f"t-{number}" for number in range(20)]
    health = ClusterHealth("id", -1, 0, [1], [], [1], [], [], [], 1, 20, names, [], [])
    assert not health.is_healthy
    assert "Active controller:                  none" in health_lines(health)
    assert any(line.endswith("t-7, and 12 more") for line in health_lines(health))
    assert health.document()["leaderless_partitions"] == names
    assert controllers_behind(QuorumInfo(-1, 0, 0, (), (), {})) == []
