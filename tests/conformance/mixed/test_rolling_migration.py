"""A running cluster moves from Kafka to Ottla and back, a node at a time, under load.

The workloads are those of `scripts/kill_cluster.py`: queues, registers and a chain of transactions
with a consumer group. In the end every acknowledged record is there once, and the replicas' logs
are equal byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from tests.conformance.clusters.load import wait_for
from tests.conformance.clusters.nodes import KAFKA, OTTLA, Cluster
from tests.conformance.clusters.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
RATE = 50


def test_nodes_are_replaced_one_at_a_time(kafka: Kafka, tmp_path: Path) -> None:
    """Brokers that are controllers, too, change their kind; features stay those of the cluster."""
    cluster = Cluster(tmp_path, (KAFKA,) * 3, kafka)
    cluster.format()
    chain = tmp_path / "chain"
    chain.mkdir()
    trial = Trial(cluster, rate=RATE, seed=1, chain_directory=chain)
    try:
        trial.start()
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            features = admin.describe_features().finalized
            for kind in (OTTLA, KAFKA):
                for node in cluster.nodes:
                    cluster.replace(node, kind)
                    trial.wait_until_ready()
                    trial.wait_for_progress(f"node {node.node_id} became one of {kind.kind}")
                    wait_for(trial.is_in_sync, "replicas do not come in sync")
                assert admin.describe_features().finalized == features
        figures = trial.check()
        assert figures["acknowledged"] == figures["sent"] == figures["found"]
        for node in cluster.nodes:
            assert not list((node.directory / "data").glob("*-stray"))
    finally:
        cluster.kill()
