"""Groups and the topic that keeps their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.blocking import Admin
from ottla.errors import ErrorCode
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.server.requests.untrusted_clients import Peer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_refused_creation_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A setting that no topic may have leaves groups without coordinator, as in Kafka, which warns.

    Clients only see that the coordinator is not available.
    """
    with Cluster(config={"offsets.topic.segment.bytes": "1000"}) as cluster:
        peer = Peer(cluster.bootstrap)
        answer = peer.ask(FindCoordinatorRequest(key="group"), 3)
        peer.close()
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (warning,) = [line for line in caplog.records if line.levelname == "WARNING"]
    assert warning.getMessage() == (
        "Auto topic creation failed for __consumer_offsets with error 'INVALID_CONFIG': Invalid "
        "value 1000 for configuration segment.bytes: Value must be at least 1048576; correct the "
        "settings of new topics, or create it with ottla topics"
    )


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
