"""Streams groups on a whole node: internal topics are created, the group is described."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, KafkaError
from ottla.errors import ErrorCode
from ottla.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.testing import Cluster
from tests.coordinator.test_streams_groups import word_count

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
JOIN: dict[str, Any] = {
    "member_id": "m",
    "member_epoch": 0,
    "endpoint_information_epoch": 0,
    "rebalance_timeout_ms": 1000,
    "topology": word_count(),
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
    "process_id": "p",
}


@pytest.fixture(name="admin")
def _admin() -> Iterator[Admin]:
    with (
        Cluster(config=SETTINGS) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        yield admin


def _send(admin: Admin, **fields: Any) -> Any:
    return admin.request(StreamsGroupHeartbeatRequest(group_id="g", **fields))


def _joined(admin: Admin) -> Any:
    """Join as soon as the node coordinates groups."""
    admin.alter_group_offsets("other", {})
    end = time.monotonic() + 60
    while True:
        answer = _send(admin, **JOIN)
        if answer.error_code not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ):
            return answer
        assert time.monotonic() < end
        list(admin.describe_streams_groups(["g"]))


def test_internal_topics_are_created_with_the_counts_of_the_source(admin: Admin) -> None:
    """The repartition topic and the changelog have the source's partitions; then tasks follow."""
    admin.create_topic("t", 3)
    answer = _joined(admin)
    assert answer.error_code == 0
    end = time.monotonic() + 60
    while not answer.active_tasks:
        assert time.monotonic() < end
        fields = {"endpoint_information_epoch": 0, "member_id": "m"}
        answer = _send(admin, member_epoch=answer.member_epoch, **fields)
    assert {one.subtopology_id: one.partitions for one in answer.active_tasks} == {
        "0": [0, 1, 2],
        "1": [0, 1, 2],
    }
    described = admin.describe_streams_groups(["g", "none"])
    group, unknown = described["g"], described["none"]
    assert not isinstance(group, KafkaError)
    assert (group.state, group.topology_epoch) == ("Stable", 0)
    assert group.subtopologies[1].state_changelog_topics["c"].partitions == 3
    assert group.members[0].assignment.active == {"0": (0, 1, 2), "1": (0, 1, 2)}
    assert isinstance(unknown, KafkaError)
    assert unknown.code is ErrorCode.GROUP_ID_NOT_FOUND
    (listed,) = admin.list_groups(types=["streams"])
    assert (listed.group_id, listed.state) == ("g", "Stable")


def test_internal_names_are_refused(admin: Admin) -> None:
    """A topology may not read Kafka's own topics."""
    topology = word_count()
    topology.subtopologies[0].source_topics = ["__consumer_offsets"]
    answer = _send(admin, **{**JOIN, "topology": topology})
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "internal topics __consumer_offsets" in answer.error_message
