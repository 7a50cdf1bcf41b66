"""The same requests to real Kafka 4.3.0 and to our controller: the same answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from ottla.controller.config_operations import ConfigOperation
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from ottla.protocol.frames import encode_request
from ottla.types import ZERO_UUID, Uuid
from tests.conformance.kafka import exchange, join
from tests.controller.harness import Harness, assigned_topic, incremental_change, topic

if TYPE_CHECKING:
    from ottla.protocol.schema import Request, Response
    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance
TOPIC, BROKER, GROUP, METRICS = 2, 4, 32, 16
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
OTHER_ID = Uuid(b"x" * 16)


def _create(*topics: CreateTopicsRequest.CreatableTopic) -> Request:
    return CreateTopicsRequest(topics=list(topics))


def _grow(name: str, count: int, assignments: list[Any] | None = None) -> Request:
    struct = CreatePartitionsRequest.CreatePartitionsTopic
    requested = struct(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[requested], timeout_ms=5000, validate_only=False)


def _feature(name: str, level: int, kind: int) -> Request:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=name, max_version_level=level, upgrade_type=kind
    )
    return UpdateFeaturesRequest(feature_updates=[update])


def _quota(key: str, value: float, **entity: str) -> Request:
    struct = AlterClientQuotasRequest.EntryData
    entry = struct(
        entity=[
            struct.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[struct.OpData(key=key, value=value, remove=False)],
    )
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


def _delete(*topics: tuple[str | None, Uuid]) -> Request:
    struct = DeleteTopicsRequest.DeleteTopicState
    states = [struct(name=name, topic_id=topic_id) for name, topic_id in topics]
    return DeleteTopicsRequest(topics=states, timeout_ms=5000)


def _elect(kind: int, name: str, *partitions: int) -> Request:
    struct = ElectLeadersRequest.TopicPartitions
    requested = struct(topic=name, partitions=list(partitions))
    return ElectLeadersRequest(election_type=kind, topic_partitions=[requested])


def _move(name: str, replicas: list[int] | None) -> Request:
    struct = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = struct.ReassignablePartition(partition_index=0, replicas=replicas)
    return AlterPartitionReassignmentsRequest(topics=[struct(name=name, partitions=[partition])])


REQUESTS: list[Request] = [
    _create(topic("cmp.a", 2, 1, retention_ms="5000", min_insync_replicas="1")),
    _create(topic("cmp-default", -1, -1)),
    _create(topic("cmp_a")),
    _create(topic("cmp.a")),
    _create(topic("p0", 0)),
    _create(topic("rf0", 1, 0)),
    _create(topic("rf3", 1, 3)),
    _create(topic("nul", retention_ms=None)),
    _create(topic("two"), topic("two")),
    _create(topic("__cluster_metadata")),
    _create(assigned_topic("e", [])),
    _create(assigned_topic("e", [1], [7])),
    _create(topic("bad*", nope="1")),
    _create(topic("", 1)),
    _create(topic("v", retention_ms="z")),
    _create(topic("big", 10_001)),
    _grow("cmp.a", 2),
    _grow("cmp.a", 1),
    _grow("nosuch", 3),
    _grow("cmp.a", 3, []),
    _feature("share.version", 9, 1),
    _feature("nosuch", 1, 1),
    _feature("share.version", 0, 1),
    _feature("share.version", -1, 1),
    _feature("metadata.version", 29, 2),
    _feature("metadata.version", 29, 3),
    _feature("metadata.version", 99, 1),
    _quota("producer_byte_rate", 1.0),
    _quota("producer_byte_rate", 1.0, ip="10.0.0.1"),
    _quota("producer_byte_rate", 1.0, planet="mars"),
    _quota("producer_byte_rate", 1.0, user=""),
    _quota("nosuch", 1.0, user="cmp"),
    _quota("producer_byte_rate", -1.0, user="cmp"),
    _quota("producer_byte_rate", 1.5, user="cmp"),
    _quota("producer_byte_rate", 10.0, user="cmp"),
    _quota("connection_creation_rate", 1.0, ip="not an ip!"),
    incremental_change(TOPIC, "cmp.a", ("retention.ms", SET, None)),
    incremental_change(TOPIC, "cmp.a", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
    incremental_change(TOPIC, "cmp.a", ("retention.ms", APPEND, "1")),
    incremental_change(TOPIC, "cmp.a", ("cleanup.policy", APPEND, "compact")),
    incremental_change(TOPIC, "cmp.a", ("cleanup.policy", SUBTRACT, "delete")),
    incremental_change(
        TOPIC, "cmp.a", ("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "1")
    ),
    incremental_change(TOPIC, "cmp.a", ("remote.storage.enable", SET, "true")),
    incremental_change(TOPIC, "", ("retention.ms", SET, "5")),
    incremental_change(TOPIC, "nosuch", ("retention.ms", SET, "5")),
    incremental_change(BROKER, "x", ("log.cleaner.threads", SET, "2")),
    incremental_change(BROKER, "7", ("log.cleaner.threads", SET, "2")),
    incremental_change(BROKER, "1", ("log.dirs", SET, "2")),
    incremental_change(BROKER, "1", ("min.insync.replicas", SET, "1")),
    incremental_change(BROKER, "", ("min.insync.replicas", DELETE, None)),
    incremental_change(BROKER, "", ("listeners", SET, "x")),
    incremental_change(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    incremental_change(GROUP, "cmp", ("consumer.session.timeout.ms", SET, "1")),
    incremental_change(METRICS, "cmp", ("nope", SET, "1")),
    incremental_change(METRICS, "cmp", ("interval.ms", SET, "5")),
    incremental_change(99, "cmp", ("interval.ms", SET, "5")),
    _elect(0, "cmp.a", 0, 9),
    _elect(1, "cmp.a", 0),
    _elect(0, "nosuch", 0),
    _elect(7, "cmp.a", 0),
    _move("cmp.a", [1]),
    _move("cmp.a", None),
    _move("cmp.a", [5]),
    _move("nosuch", [1]),
    _delete(("nosuch", ZERO_UUID)),
    _delete((None, OTHER_ID)),
    _delete(("cmp.a", OTHER_ID)),
    _delete((None, ZERO_UUID)),
    _delete(("cmp.a", ZERO_UUID), ("cmp.a", ZERO_UUID)),
    _delete(("cmp.a", ZERO_UUID)),
    _delete(("cmp-default", ZERO_UUID)),
]


def test_the_same_requests_get_the_same_answers(real_kafka: RealKafka) -> None:
    """In order, to both; ids that are drawn at random aside."""
    harness = Harness().bring_up()
    different = []
    for number, request in enumerate(REQUESTS):
        theirs = _shown(_ask(real_kafka, request))
        ours = _shown(_ask_us(harness, request))
        if theirs != ours:
            different.append(f"{number} {request!r}\n  Kafka {theirs}\n  Ottla {ours}")
    assert not different, "\n".join(different)


def _ask(node: RealKafka, request: Request) -> Response:
    version = type(request).versions.highest
    frame = exchange(node.port, join(encode_request(request, version, 1, "test")))
    answer: type[Response] = response_class(ApiKey(request.message_key))
    decoded = codec.decode(answer, version, memoryview(frame)[5:])
    assert isinstance(decoded, answer)
    return decoded


def _ask_us(harness: Harness, request: Request) -> Response:
    """Ask through the wire's form, which leaves out what the version does not carry."""
    response = harness.ask(request)
    version = type(request).versions.highest
    return codec.decode(type(response), version, codec.to_bytes(response, version))  # type: ignore[no-any-return]  # found by name


def _shown(response: Response) -> str:
    return re.sub(r"topic_id=Uuid\('[^']*'\)", "topic_id", repr(response))
