"""The metrics of groups and share partitions, on a node; a downgrade ends share sessions."""

from __future__ import annotations

import urllib.request
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla import (
    Admin,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    ResourceType,
    TopicPartition,
)
from ottla import ShareConsumer as Member
from ottla.metrics.families import label_text
from ottla.metrics.samples import Recent
from ottla.replication.share.partition import ShareMeasures
from ottla.replication.share.session import ShareSessionCache
from ottla.server.metrics import partitions as metrics
from ottla.testing import Cluster
from ottla.types import ZERO_UUID
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {
    "metrics.listener": "127.0.0.1:0",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
}
GROUP = "kafka_server_group_coordinator_metrics_"


@pytest.fixture(name="cluster")
def _cluster() -> Iterator[Cluster]:
    """Run a node with a topic and a share group that reads from its beginning."""
    with Cluster(config=SETTINGS) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 1)])
            group = ConfigResource(ResourceType.GROUP, "shared")
            admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
        with Producer(bootstrap_servers=running.bootstrap) as producer:
            for value in (b"a", b"b", b"c"):
                producer.send("t", value)
        yield running


def scraped(cluster: Cluster) -> dict[str, float]:
    """Return all samples by name and labels."""
    with urllib.request.urlopen(cluster.metrics_url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_groups_and_share_partitions_are_measured(cluster: Cluster) -> None:
    """Under Kafka's names; share groups are no classic groups."""
    with Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="read") as consumer:
        wait_for(lambda: bool(consumer.poll(0.1) or consumer.assignment))
        consumer.commit({TopicPartition("t", 0): 1})
    with Member("t", bootstrap_servers=cluster.bootstrap, group_id="shared") as member:
        wait_for(lambda: bool(member.poll(0.1)))
        held = scraped(cluster)
        member.commit()
        after = scraped(cluster)
    place = '{group="shared",topic="t",partition="0"}'
    assert held[f"kafka_server_sharepartitionmetrics_inflightmessagecount{place}"] == 3
    assert after[f"kafka_server_sharepartitionmetrics_inflightmessagecount{place}"] == 0
    of_partition = 'kafka_server_sharepartitionmetrics_{}{{group="shared",topic="t",partition="0"}}'
    assert held[of_partition.format("inflightbatchmessagecount_sum")] == 3
    for name in ("fetchlocktimems_count", "fetchlockratio_count"):
        assert held[of_partition.format(name)] >= 1
    assert held["kafka_server_sharesessioncache_sharesessionscount"] == 1
    assert held["kafka_server_sharesessioncache_sharepartitionscount"] == 1
    accepted = 'kafka_server_sharegroupmetrics_recordacknowledgements_total{ackType="Accept"}'
    assert (held[accepted], after[accepted]) == (0, 1)
    assert held["kafka_server_sharegroupmetrics_partitionloadtimems_count"] == 1
    for name in ("requesttopicpartitionsfetchratio", "topicpartitionsacquiretimems"):
        assert held[f'kafka_server_sharegroupmetrics_{name}_count{{group="shared"}}'] >= 1
    share = "kafka_server_sharecoordinatormetrics_"
    assert after[f"{share}write_total"] > held[f"{share}write_total"]
    assert after[f"{share}write_latency_max"] >= after[f"{share}write_latency_avg"] >= 0
    assert held[f'{share}num_partitions{{state="active"}}'] >= 1
    of_groups = 'kafka_server_groupcoordinatormetrics_num_partitions{state="active"}'
    assert held[of_groups] >= 1
    assert held[f'{GROUP}group_count{{protocol="share"}}'] == 1
    assert held[f'{GROUP}group_count{{protocol="classic"}}'] == 1
    assert held[f'{GROUP}share_group_count{{state="stable"}}'] == 1
    assert held[f"{GROUP}share_group_rebalance_count"] >= 1
    assert held[f"{GROUP}share_group_rebalance_rate"] > 0
    assert held[f"{GROUP}group_completed_rebalance_count"] >= 1
    assert held[f"{GROUP}offset_commit_count"] >= 1
    assert held[f"{GROUP}streams_group_rebalance_rate"] == 0


def test_many_share_partitions_are_measured_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their labels too: the loop takes a turn after so many."""
    calls: list[int] = [0]

    def counted(**labels: object) -> str:
        calls[-1] += 1
        return label_text(**labels)

    monkeypatch.setattr(metrics, "label_text", counted)
    partition = SimpleNamespace(
        key=SimpleNamespace(group_id="g", topic_id=ZERO_UUID, partition=0),
        lock_timeout_count=0,
        in_flight_count=0,
        batches=[],
        measures=ShareMeasures(),
    )
    partitions: Any = _Partitions([partition] * 1700)
    calls.extend(0 for one in metrics.share_series(partitions) if one is None)
    assert (max(calls), sum(calls)) == (500, 1700)


class _Partitions(list[Any]):
    """Share partitions of a broker without sessions."""

    def __init__(self, partitions: list[Any]) -> None:
        super().__init__(partitions)
        self.sessions = ShareSessionCache(10)
        self.load_times_ms = Recent()
        self.acknowledged: Counter[Any] = Counter()
        self.fetch_ratios: dict[str, Recent] = {}
        self.acquire_times_ms: dict[str, Recent] = {}

    def topic_name(self, _topic_id: object) -> str:
        """Return the topic's name."""
        return "t"


def test_a_downgrade_of_share_groups_ends_their_sessions(cluster: Cluster) -> None:
    """share.version=0: requests are refused, and nothing of a session is left."""
    with (
        Member("t", bootstrap_servers=cluster.bootstrap, group_id="shared") as member,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        wait_for(lambda: bool(member.poll(0.1)))
        assert scraped(cluster)["kafka_server_sharesessioncache_sharesessionscount"] == 1
        admin.update_features({"share.version": 0}, upgrade_type=2)
        wait_for(lambda: scraped(cluster)["kafka_server_sharesessioncache_sharesessionscount"] == 0)
        outcome = member.commit()
        assert all(isinstance(error, KafkaError) for error in outcome.values())
