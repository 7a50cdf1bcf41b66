"""Three nodes: what brokers and controllers answer that do not lead what they are asked about."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from ottla.controller.config_operations import ConfigOperation
from ottla.errors import ErrorCode
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.alter_configs import AlterConfigsRequest
from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.describe_quorum import DescribeQuorumRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from ottla.testing.cluster_files import CONTROLLER
from ottla.testing.kafka import Kafka
from ottla.types import METADATA_TOPIC
from tests.controller.harness import assigned_topic, topic
from tests.server.requests.untrusted_clients import Peer
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request

TOPIC, BROKER, LOGGER = 2, 4, 8
NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run three nodes, all of which have applied two topics, one of three replicas."""
    with Cluster(nodes=3) as running, Kafka(running) as kafka:
        kafka.wait(lambda: running.controller_id is not None, WAIT_S, lambda: "no controller")
        peer = Peer(running.node(1).address)
        request = CreateTopicsRequest(
            topics=[assigned_topic("single", [2]), topic("there", factor=3)]
        )
        assert [one.error_code for one in peer.ask(request, 7).topics] == [0, 0]
        kafka.wait(
            lambda: all(_has_replica(running, one) for one in NODES), WAIT_S, lambda: "no replica"
        )
        yield running


def _has_replica(cluster: Cluster, node_id: int) -> bool:
    return bool(_producers(cluster, node_id).error_code == 0)


def _producers(cluster: Cluster, node_id: int) -> Any:
    struct = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[struct(name="there", partition_indexes=[0])])
    answer = Peer(cluster.node(node_id).address).ask(request, 0)
    return answer.topics[0].partitions[0]


def _active(cluster: Cluster) -> int:
    found = cluster.controller_id
    assert found is not None
    return found


def _standby(cluster: Cluster) -> int:
    return next(one for one in NODES if one != _active(cluster))


def _ask_standby(cluster: Cluster, request: Request, version: int) -> Any:
    host, port = cluster.node(_standby(cluster)).run(lambda node: node.addresses[CONTROLLER])
    return Peer(f"{host}:{port}").ask(request, version)


def _set(*changes: tuple[int, str, str, str]) -> IncrementalAlterConfigsRequest:
    struct = IncrementalAlterConfigsRequest.AlterConfigsResource
    operation = ConfigOperation.SET
    return IncrementalAlterConfigsRequest(
        resources=[
            struct(
                resource_type=kind,
                resource_name=name,
                configs=[struct.AlterableConfig(name=key, config_operation=operation, value=value)],
            )
            for kind, name, key, value in changes
        ],
        validate_only=False,
    )


def _alter(cluster: Cluster, node_id: int, request: Request, version: int) -> list[Any]:
    answer = Peer(cluster.node(node_id).address).ask(request, version)
    return [
        (ErrorCode(one.error_code), one.error_message, one.resource_name)
        for one in answer.responses
    ]


@pytest.mark.parametrize("node_id", NODES)
def test_every_broker_checks_its_own_settings(cluster: Cluster, node_id: int) -> None:
    """Also one that is not the active controller, which does not know what the broker can run."""
    request = _set((BROKER, str(node_id), "log.cleaner.threads", "0"))
    ((code, text, _),) = _alter(cluster, node_id, request, 1)
    assert code is ErrorCode.INVALID_REQUEST
    assert text is not None
    assert "log.cleaner.threads" in text


@pytest.mark.parametrize("node_id", NODES)
def test_a_broker_refuses_settings_of_another(cluster: Cluster, node_id: int) -> None:
    """It names itself; what else the request changes is changed, in the order of the request."""
    other = node_id % 3 + 1
    request = _set(
        (TOPIC, "there", "retention.ms", "5000"),
        (BROKER, str(other), "log.cleaner.threads", "1"),
        (TOPIC, "absent", "retention.ms", "5000"),
    )
    refused = (
        ErrorCode.INVALID_REQUEST,
        f"Unexpected broker id, expected {node_id}, but received {other}",
        str(other),
    )
    changed, second, unknown = _alter(cluster, node_id, request, 1)
    assert changed == (ErrorCode.NONE, None, "there")
    assert second == refused
    assert unknown[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _alter(cluster, node_id, _replacing(str(other)), 2) == [refused]
    assert _alter(cluster, node_id, _replacing(str(other), "there"), 2) == [
        refused,
        (ErrorCode.NONE, None, "there"),
    ]


def _replacing(broker: str, *topics: str) -> AlterConfigsRequest:
    struct = AlterConfigsRequest.AlterConfigsResource
    setting = struct.AlterableConfig(name="log.cleaner.threads", value="1")
    return AlterConfigsRequest(
        resources=[
            struct(resource_type=BROKER, resource_name=broker, configs=[setting]),
            *(struct(resource_type=TOPIC, resource_name=one, configs=[]) for one in topics),
        ],
        validate_only=False,
    )


@pytest.mark.parametrize("node_id", NODES)
def test_every_replica_describes_its_producers(cluster: Cluster, node_id: int) -> None:
    """A follower has them, too."""
    described = _producers(cluster, node_id)
    assert (described.error_code, described.active_producers) == (0, [])


def test_a_standby_controller_names_the_active_one(cluster: Cluster) -> None:
    """In the error of each item, where the response has one."""
    text = f"The active controller appears to be node {_active(cluster)}."
    chosen = ElectLeadersRequest.TopicPartitions(topic="there", partitions=[0])
    elected = _ask_standby(cluster, ElectLeadersRequest(topic_partitions=[chosen]), 2)
    assert elected.error_code == ErrorCode.NOT_CONTROLLER
    (one,) = elected.replica_election_results[0].partition_result
    assert (one.error_code, one.error_message) == (ErrorCode.NOT_CONTROLLER, text)
    oldest = _ask_standby(cluster, ElectLeadersRequest(topic_partitions=[chosen]), 0)
    assert oldest.replica_election_results[0].partition_result == [one]
    struct = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = struct.ReassignablePartition(partition_index=0, replicas=[1])
    request = AlterPartitionReassignmentsRequest(
        topics=[struct(name="there", partitions=[partition])]
    )
    moved = _ask_standby(cluster, request, 0)
    assert (moved.error_code, moved.error_message) == (ErrorCode.NOT_CONTROLLER, text)
    assert moved.responses[0].partitions[0].error_message == text


def test_a_standby_controller_refuses_each_quota(cluster: Cluster) -> None:
    """The response has no other place for the error."""
    struct = AlterClientQuotasRequest.EntryData
    entity = struct.EntityData(entity_type="user", entity_name="eve")
    request = AlterClientQuotasRequest(
        entries=[struct(entity=[entity], ops=[])], validate_only=False
    )
    (entry,) = _ask_standby(cluster, request, 1).entries
    assert entry.error_code == ErrorCode.NOT_CONTROLLER
    assert entry.entity[0].entity_name == "eve"


def test_a_standby_controller_does_not_describe_the_quorum(cluster: Cluster) -> None:
    """The partition has the error, the response has none."""
    struct = DescribeQuorumRequest.TopicData
    requested = struct.PartitionData(partition_index=0)
    request = DescribeQuorumRequest(
        topics=[struct(topic_name=METADATA_TOPIC, partitions=[requested])]
    )
    answer = _ask_standby(cluster, request, 2)
    assert answer.error_code == 0
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _header_of(size: int) -> bytes:
    """Return a batch that ends in its header; its producer id ends after 51 bytes."""
    batch = encode_batch([(1, None, b"a", ())])
    return struct.pack(">qi", 0, size - 12) + batch[12:size]


@pytest.mark.parametrize(
    ("acks", "records", "code"),
    [
        (1, encode_batch([(1, None, b"a", ())]), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (5, encode_batch([(1, None, b"a", ())]), ErrorCode.INVALID_REQUIRED_ACKS),
        (1, None, ErrorCode.INVALID_RECORD),
        (1, _header_of(50), ErrorCode.CORRUPT_MESSAGE),
        (1, _header_of(51), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_bad_records_are_refused_before_the_leader_is_named(
    cluster: Cluster, acks: int, records: bytes | None, code: ErrorCode
) -> None:
    """As in Kafka a broker without a replica looks at the request first."""
    struct = ProduceRequest.TopicProduceData
    part = struct.PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=[struct(name="single", partition_data=[part])]
    )
    answer = Peer(cluster.node(1).address).ask(request, 9)
    assert answer.responses[0].partition_responses[0].error_code == code


def test_a_standby_controller_answers_for_loggers_as_for_topics(cluster: Cluster) -> None:
    """Of a request that it cannot decide; it checks loggers by itself where they are alone."""
    changes = (LOGGER, "0", "kafka", "INFO"), (TOPIC, "there", "retention.ms", "1")
    responses = _ask_standby(cluster, _set(*changes), 1).responses
    assert [one.resource_type for one in responses] == [LOGGER, TOPIC]
    assert {ErrorCode(one.error_code) for one in responses} == {ErrorCode.NOT_CONTROLLER}
    (alone,) = _ask_standby(cluster, _set(changes[0]), 1).responses
    assert ErrorCode(alone.error_code) is ErrorCode.INVALID_REQUEST
