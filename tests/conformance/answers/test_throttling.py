"""Answers over a quota, on real Kafka 4.3.0 and on a node: the same pauses to the millisecond.

The first answer over a quota has a pause that depends on sizes and the limit alone, so it shows
what is counted: the whole of a request, the whole of an answer.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from tests.conformance.answers.test_quota_answers import ask, clear_quotas, one_quota
from tests.conformance.applied import wait_until_applied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request
    from ottla.types import Uuid
    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance
NUMBERS = itertools.count()
TOPIC = "throttled"
BYTES, READ, SHARE = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run one node of ours."""
    with Cluster() as running:
        yield running


@pytest.fixture
def ports(real_kafka: RealKafka, cluster: Cluster) -> Iterator[list[int]]:
    """Return the ports of real Kafka and of ours, both with the topic and without quotas."""
    both = [real_kafka.port, int(cluster.bootstrap.rpartition(":")[2])]
    for port in both:
        clear_quotas(port)
        struct = CreateTopicsRequest.CreatableTopic
        forever = struct.CreatableTopicConfig(name="retention.ms", value="-1")
        topic = struct(
            name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[forever]
        )
        ask(port, CreateTopicsRequest(topics=[topic]), 7)
        wait_until_applied(partial(ask, port))
    yield both
    for port in both:
        clear_quotas(port)


def _topic_on(port: int) -> Any:
    requested = MetadataRequest.MetadataRequestTopic(name=TOPIC)
    return ask(port, MetadataRequest(topics=[requested]), 12).topics[0]


def _limited_client(port: int, key: str, limit: float) -> str:
    """Return a client id that has a quota, which the node applies."""
    client_id = f"limited-{next(NUMBERS)}"
    _limit(port, client_id, key, limit)
    return client_id


def _limit(port: int, client_id: str, key: str, limit: float) -> None:
    ask(port, one_quota(key, limit, client_id=client_id), 1)
    wait_until_applied(partial(ask, port))


def _produce(topic_id: Uuid, value_bytes: int, acks: int = 1) -> Request:
    batch = encode_batch([(1, b"key", bytes(value_bytes), ())])
    struct = ProduceRequest.TopicProduceData
    data = struct(
        name=TOPIC,
        topic_id=topic_id,
        partition_data=[struct.PartitionProduceData(index=0, records=batch)],
    )
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data])


def _fetch(topic_id: Uuid, *, epoch: int, session_id: int = 0) -> Request:
    struct = FetchRequest.FetchTopic
    partition = struct.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1_000_000,
        session_id=session_id,
        session_epoch=epoch,
        topics=[struct(topic=TOPIC, topic_id=topic_id, partitions=[partition])],
    )


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_produce_over_the_quota(ports: list[int], version: int) -> None:
    """It is executed, and throttled by its size, header included."""
    answered = []
    for port in ports:
        client_id = _limited_client(port, BYTES, 100)
        topic_id = _topic_on(port).topic_id
        request = _produce(topic_id, 5000)
        answer = ask(port, request, version, client_id)
        answered.append(
            (answer.responses[0].partition_responses[0].error_code, answer.throttle_time_ms)
        )
    assert answered[0] == answered[1]
    assert answered[1][1] > 40_000


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 17, 18])
@pytest.mark.parametrize("epoch", [0, -1])
def test_a_fetch_over_the_quota(ports: list[int], version: int, epoch: int) -> None:
    """It gets an empty answer and no session, and is throttled by the size of the full answer."""
    answered = []
    for port in ports:
        topic_id = _topic_on(port).topic_id
        ask(port, _produce(topic_id, 5000), 13)
        client_id = _limited_client(port, READ, 20)
        answer = ask(port, _fetch(topic_id, epoch=epoch), version, client_id)
        answered.append((answer.session_id, answer.responses, answer.throttle_time_ms))
    assert answered[0] == answered[1]
    assert answered[1][2] > 200_000


def test_an_incremental_fetch_over_the_quota(ports: list[int]) -> None:
    """The session goes on, and what was not sent comes when the quota is gone."""
    answered = []
    for port in ports:
        topic_id = _topic_on(port).topic_id
        ask(port, _produce(topic_id, 5000), 13)
        client_id = _limited_client(port, READ, 1e9)
        first = ask(port, _fetch(topic_id, epoch=0), 13, client_id)
        assert first.session_id
        _limit(port, client_id, READ, 20)
        refused = ask(port, _fetch(topic_id, epoch=1, session_id=first.session_id), 13, client_id)
        assert refused.session_id == first.session_id
        _limit(port, client_id, READ, 1e9)
        again = ask(port, _fetch(topic_id, epoch=2, session_id=first.session_id), 13, client_id)
        answered.append((refused.responses, refused.throttle_time_ms > 0, len(again.responses)))
    assert answered == [([], True, 1)] * 2


def test_a_request_over_its_share_of_time(ports: list[int]) -> None:
    """It is answered and waits a second at most, whatever its share."""
    for port in ports:
        client_id = _limited_client(port, SHARE, 1e-9)
        answer = ask(port, MetadataRequest(topics=None), 12, client_id)
        assert answer.throttle_time_ms == 1000
