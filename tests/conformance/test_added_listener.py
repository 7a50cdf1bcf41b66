"""A listener added while the brokers run: responses on it by Kafka and by Ottla.

It is not advertised, so that no broker has an address on it.

Kafka: kafka.server.DynamicListenerConfig, KRaftMetadataCache.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla.controller.config_operations import ConfigOperation
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.metadata import MetadataRequest
from tests.conformance.applied import LIMIT_S
from tests.conformance.pair import Pair, Speaker, running_pair
from tests.controller.harness import incremental_change, topic
from tests.ports import free_ports
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
BROKER = 4
MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT"


def _add_listener(speaker: Speaker, listeners: str, port: int) -> Speaker:
    """Add a listener to one broker; return who speaks to it."""
    change = incremental_change(
        BROKER,
        "1",
        ("listeners", ConfigOperation.SET, f"{listeners},OTHER://127.0.0.1:{port}"),
        ("listener.security.protocol.map", ConfigOperation.SET, MAP),
    )
    answer = speaker.ask(change)
    assert [one.error_code for one in answer.responses] == [0]  # type: ignore[union-attr] # it is answered
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return Speaker(f"127.0.0.1:{port}")
    raise AssertionError("the listener was not opened")


def _wait_for_offsets_topic(pair: Pair) -> None:
    """Wait until both have the topic that the first question for a coordinator creates."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    wait_for(
        lambda: not any(answer.coordinators[0].error_code for answer in pair.ask(request)),
        LIMIT_S,
        "the offsets topic is not created",
    )


@pytest.fixture(scope="module")
def pair(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run both with a topic, asked over a listener that was added."""
    with running_pair(kafka, tmp_path_factory.mktemp("listeners")) as pair:
        pair.compare(
            CreateTopicsRequest(topics=[topic("reported", 2)]),
            FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]),
        )
        _wait_for_offsets_topic(pair)
        assert isinstance(pair.theirs, Speaker)
        assert isinstance(pair.ours, Speaker)
        theirs = pair.real.properties["listeners"]
        pair.theirs = _add_listener(pair.theirs, theirs, *free_ports(1))
        pair.ours = _add_listener(pair.ours, pair.cluster.config["listeners"], *free_ports(1))
        yield pair


def _told(answer: Any) -> Any:
    return [
        (part.error_code, part.leader_id, part.leader_epoch, *lists, answer.brokers)
        for one in answer.topics
        for part in one.partitions
        for lists in [(part.replica_nodes, part.isr_nodes, part.offline_replicas)]
    ]


@pytest.mark.parametrize("version", range(14))
def test_leaders_have_no_address_there(pair: Pair, version: int) -> None:
    """LISTENER_NOT_FOUND, or an older code for clients that do not know it."""
    topics = [MetadataRequest.MetadataRequestTopic(name="reported")]
    theirs, ours = pair.ask(MetadataRequest(topics=topics), version)
    assert _told(ours) == _told(theirs)


def test_partitions_described_there(pair: Pair) -> None:
    """DescribeTopicPartitions has no error for it."""
    asked = DescribeTopicPartitionsRequest.TopicRequest(name="reported")
    pair.compare(DescribeTopicPartitionsRequest(topics=[asked], response_partition_limit=9))


def test_no_one_is_found_there(pair: Pair) -> None:
    """Neither a coordinator nor a broker."""
    pair.compare(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    pair.compare(FindCoordinatorRequest(key_type=0, key="g"), versions=range(4))
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    theirs, ours = pair.ask(request)
    assert (ours.error_code, ours.brokers) == (theirs.error_code, theirs.brokers)
