"""A real Kafka broker follows the metadata log of our controller, as an observer of its quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.testing.cluster import Cluster
from tests.conformance.kafka import RealKafka
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
METADATA = "__cluster_metadata-0"
FOLLOWER = 2
LIMIT_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Run an Ottla node."""
    with Cluster(data_dir=str(tmp_path / "ottla")) as running:
        yield running


@pytest.fixture
def broker(kafka: Kafka, cluster: Cluster, tmp_path: Path) -> Iterator[RealKafka]:
    """Start a real broker whose controller is ours."""
    directory = tmp_path / "kafka"
    directory.mkdir()
    controller = cluster.run(lambda one: one.addresses["CONTROLLER"])
    node = RealKafka(kafka, directory, {})
    node.format_to_join(cluster.run(lambda one: one.cluster_id), controller, FOLLOWER, "broker")
    try:
        node.launch()
        yield node
    finally:
        node.kill()


def test_a_real_broker_follows_our_metadata_log(
    cluster: Cluster, broker: RealKafka, tmp_path: Path
) -> None:
    """It is described as an observer that has everything; its log is ours, byte by byte."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics(["before"])
        _await_follower(admin)
        admin.create_topics(["after"])
        _await_follower(admin)
    theirs = _log(broker.log_dir)
    assert len(theirs) > 1000
    assert _log(tmp_path / "ottla").startswith(theirs)


def _await_follower(admin: Admin) -> None:
    """Wait until the follower has what is committed now."""
    committed = admin.describe_metadata_quorum().high_watermark
    wait_for(
        lambda: any(
            one.replica_id == FOLLOWER and one.log_end_offset >= committed
            for one in admin.describe_metadata_quorum().observers
        ),
        LIMIT_S,
        f"the follower is below {committed}",
    )


def _log(log_dir: Path) -> bytes:
    """Return the batches of a node's metadata log, less the space that Kafka allocates ahead."""
    paths = sorted((log_dir / METADATA).glob("*.log"))
    return b"".join(path.read_bytes() for path in paths).rstrip(b"\0")
