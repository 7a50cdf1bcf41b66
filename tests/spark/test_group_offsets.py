"""A query's group over time: renewed while idle, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from ottla import Admin, TopicPartition
from ottla.errors import KafkaError
from ottla.spark import group_offsets
from ottla.spark.cluster import open_cluster
from ottla.spark.coordination import Committed, Coordination
from ottla.spark.decision import BatchDecision, Participant, encode
from ottla.spark.exactly_once import DRIVER_TIMEOUT_MS, driver_id
from ottla.spark.group_offsets import MARK, GroupOffsets
from ottla.spark.offsets import SourceOffsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.cluster_reader import ClusterReader
    from ottla.testing.cluster import Cluster


@pytest.fixture
def cluster(node: Cluster) -> Iterator[ClusterReader]:
    """Return connections to the node."""
    with open_cluster({"bootstrap.servers": node.bootstrap}) as found:
        yield found


def topic_of(node: Cluster, name: str) -> TopicPartition:
    """Create a topic and return its partition."""
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topic(name)
    return TopicPartition(name, 0)


def test_an_idle_query_commits_again(
    node: Cluster, cluster: ClusterReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of a group without members expire."""
    part = topic_of(node, "idle")
    group, ends = GroupOffsets("idle", cluster), SourceOffsets({part: 0}, {})
    group.finished(ends)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.delete_groups(["idle"])
    group.finished(ends)
    assert Coordination(cluster).committed("idle") == {}
    monkeypatch.setattr(group_offsets, "RENEWAL_S", 0.0)
    group.finished(ends)
    assert Coordination(cluster).committed("idle") == {part: Committed(0, MARK)}


def test_a_decision_is_renewed_by_its_driver(
    node: Cluster, cluster: ClusterReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision stays what it is; a driver before the renewal can decide nothing more."""
    part = topic_of(node, "decided")
    coordination, name = Coordination(cluster), driver_id("decided")
    driver = coordination.init_producer(name, DRIVER_TIMEOUT_MS)
    text = encode(BatchDecision("query", 3, (Participant("task", 1, 0),)), [part])[part]
    decided = {part: Committed(5, text)}
    coordination.add_offsets(name, driver, "decided", decided)
    coordination.end(Participant(name, *driver[:3]), committed=True)
    monkeypatch.setattr(group_offsets, "RENEWAL_S", 0.0)
    GroupOffsets("decided", cluster).finished(SourceOffsets({part: 9}, {}))
    assert coordination.committed("decided") == decided
    with pytest.raises(KafkaError):
        coordination.add_offsets(name, driver, "decided", decided)


def test_the_decision_of_a_former_sink_does_not_hold_the_offsets(
    node: Cluster, cluster: ClusterReader
) -> None:
    """A query that writes to a table from now on: its group's lag must not grow."""
    part = topic_of(node, "former")
    coordination = Coordination(cluster)

    def decide(batch: int, offset: int) -> None:
        text = encode(BatchDecision("query", batch, ()), [part])[part]
        coordination.commit("former", {part: Committed(offset, text)})

    decide(3, 5)
    group = GroupOffsets("former", cluster)
    assert group.resets({part: 5}) == {}
    group.finished(SourceOffsets({part: 5}, {}))
    decide(4, 7)
    group.finished(SourceOffsets({part: 7}, {}))  # the sink is at work
    assert coordination.committed("former")[part].metadata != MARK
    group.finished(SourceOffsets({part: 9}, {}))
    assert coordination.committed("former") == {part: Committed(9, MARK)}


def test_only_offsets_without_the_mark_are_resets(node: Cluster, cluster: ClusterReader) -> None:
    """What the query committed before it died is older than its checkpoint."""
    part = topic_of(node, "marked")
    group = GroupOffsets("marked", cluster)
    group.begin({part: 2})
    assert group.resets({part: 4}) == {}
    Coordination(cluster).commit("marked", {part: Committed(1, "")})
    assert group.resets({part: 4}) == {part: 1}
    assert group.resets({part: 1}) == {}
