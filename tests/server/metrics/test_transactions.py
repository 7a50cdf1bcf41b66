"""The metrics of transactions and of loading coordinators, on a node."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

import pytest

from ottla import KafkaError, Producer
from ottla.coordinator.runtime.loader import _WINDOW_MS, LoadTimes
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

MANAGER = "kafka_server_addpartitionstotxnmanager"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return a node with an endpoint for metrics."""
    with Cluster(config={"metrics.listener": "127.0.0.1:0"}) as cluster:
        yield cluster


def scrape(cluster: Cluster) -> dict[str, float]:
    """Return the values by name and labels."""
    with urllib.request.urlopen(cluster.metrics_url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def test_verification_is_timed_and_refusals_are_counted(cluster: Cluster) -> None:
    """Once for the first batch of a transaction in a partition."""
    before = scrape(cluster)
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="timed") as first:
        with first.transaction():
            first.send("verified", b"a")
        first.begin_transaction()
        with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="timed") as second:
            second.init_transactions()
        with pytest.raises(KafkaError):
            first.send("verified", b"b").result(60)
    after = scrape(cluster)
    counted = f"{MANAGER}_verificationtimems_count"
    assert after[counted] - before[counted] >= 2
    assert after[f"{MANAGER}_verificationfailurerate_total"] >= 1
    assert after["kafka_server_replicamanager_partitionswithlatetransactionscount"] == 0


def test_queues_and_loads_have_kafkas_names(cluster: Cluster) -> None:
    """Nothing waits on a healthy node; partitions were loaded when their topic was made."""
    with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="loads") as producer:
        producer.init_transactions()
    shown = scrape(cluster)
    manager = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    assert shown[f"{manager}_unknowndestinationqueuesize"] == 0
    assert shown[f"{manager}_logappendretryqueuesize"] == 0
    for kind in ("group", "transaction", "share"):
        place = f"kafka_server_{kind}coordinatormetrics_partition_load_time"
        assert shown[f"{place}_max"] >= shown[f"{place}_avg"] >= 0


def test_load_times_are_of_the_last_thirty_seconds() -> None:
    """Zeros before and after."""
    times = LoadTimes()
    assert times.figures(0) == (0.0, 0)
    times.add(10, 1000)
    times.add(30, 2000)
    assert times.figures(2000) == (20.0, 30)
    assert times.figures(1000 + _WINDOW_MS) == (30.0, 30)
    assert times.figures(2000 + _WINDOW_MS) == (0.0, 0)
