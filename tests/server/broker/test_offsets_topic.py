"""Groups and the topic that keeps their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.blocking import Admin
from ottla.errors import ErrorCode
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.testing.cluster import Cluster
from ottla.testing.kafka import Kafka
from ottla.types import TopicPartition
from tests.server.requests.untrusted_clients import Peer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BROKER_WARNING = ("ottla.broker", "WARNING")
"""A busy machine adds warnings of `ottla.loop`."""


def test_a_refused_creation_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A setting that no topic may have leaves groups without coordinator, as in Kafka, which warns.

    Clients only see that the coordinator is not available.
    """
    with Cluster(config={"offsets.topic.segment.bytes": "1000"}) as cluster:
        peer = Peer(cluster.bootstrap)
        answer = peer.ask(FindCoordinatorRequest(key="group"), 3)
        peer.close()
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (warning,) = [line for line in caplog.records if (line.name, line.levelname) == BROKER_WARNING]
    assert warning.getMessage() == (
        "Auto topic creation failed for __consumer_offsets with error 'INVALID_CONFIG': Invalid "
        "value 1000 for configuration segment.bytes: Value must be at least 1048576; correct the "
        "settings of new topics, or create it with ottla topics"
    )


def test_a_replication_factor_without_brokers_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line names the setting; clients ask again every second."""
    with Cluster(config={"offsets.topic.replication.factor": "3"}) as cluster:
        peer = Peer(cluster.bootstrap)
        for _ in range(2):
            peer.ask(FindCoordinatorRequest(key="group"), 3)
        peer.close()
    (warning,) = [line for line in caplog.records if (line.name, line.levelname) == BROKER_WARNING]
    assert warning.getMessage().endswith(
        "; set offsets.topic.replication.factor to the number of brokers, then restart"
    )


def test_a_damaged_log_is_reported_with_one_next_step(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The error has the command with its arguments."""
    with Cluster(data_dir=str(tmp_path)) as cluster, Kafka(cluster) as kafka:
        topic = kafka.topic("t").produce("value")
        cluster.shutdown()
        (log,) = tmp_path.glob(f"**/{topic}-0/*.log")
        content = bytearray(log.read_bytes())
        content[70] ^= 0xFF
        log.write_bytes(content)
        (log.parents[1] / ".kafka_cleanshutdown").unlink()
        cluster.start()
    (error,) = [line for line in caplog.records if line.levelname == "ERROR"]
    command = f"ottla log-repair --log-dir {log.parents[1]} --partition {topic}-0"
    assert error.getMessage().startswith("a partition is not served: The log of ")
    assert error.getMessage().endswith(f"Stop the node and see what can be kept: {command}")


def test_groups_are_found_in_an_offsets_topic_made_with_another_setting(tmp_path: Path) -> None:
    """offsets.topic.num.partitions says how the topic is made; afterwards the topic itself says."""
    place, groups = TopicPartition("t", 0), [f"group-{n}" for n in range(4)]
    config = {"offsets.topic.num.partitions": "5"}
    with Cluster(config=config, data_dir=str(tmp_path)) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topic("t", 1)
            for name in groups:
                admin.alter_group_offsets(name, {place: 7})
        for count in ("50", "1"):
            cluster.shutdown()
            cluster.config["offsets.topic.num.partitions"] = count
            cluster.start()
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                found = [admin.list_group_offsets(name)[place] for name in groups]
                assert [one and one.offset for one in found] == [7] * len(groups)
