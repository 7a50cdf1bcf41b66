"""Produce and Fetch about thousands of partitions: answered as few are, in turns of the loop."""

from __future__ import annotations

import os
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.protocol import frames
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.testing.cluster import Cluster
from tests.server.reliability.largest_requests import (
    MAX_CALLS,
    CallCounter,
    FakeConnection,
    send,
)
from tests.server.reliability.test_faults import batch
from tests.server.requests.untrusted_clients import Peer, produce
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request
    from ottla.server.node.node import Node

TOPIC: Final = "many"
COUNT: Final = 10_000 if os.environ.get("OTTLA_TEST_LARGEST") else 2_000
FETCH_VERSION, PRODUCE_VERSION = 12, 12
_Topic, _Data = FetchRequest.FetchTopic, ProduceRequest.TopicProduceData


def create(cluster: Cluster, count: int) -> None:
    """Create the topic, and wait until the node leads its last partition."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=count, replication_factor=1, assignments=[], configs=[]
    )
    peer = Peer(cluster.bootstrap)
    try:
        answer = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    finally:
        peer.close()
    assert answer.topics[0].error_code == 0
    wait_for(lambda: cluster.run(partial(_leads, count - 1)))


def _leads(index: int, node: Node) -> bool:
    partition = node.broker.replicas.find(TOPIC, index)
    return partition is not None and partition.is_leader


def ask(cluster: Cluster, connection: Any, request: Request, version: int) -> CallCounter:
    """Let the node handle a request; return its counter once it is answered."""
    parts: list[Any] = frames.encode_request(request, version, 5, "me")
    frame = memoryview(bytearray(b"".join(parts)[4:]))
    connection.is_answered = False
    counter = cluster.run(partial(send, connection, frame, "broker"))
    wait_for(partial(getattr, connection, "is_answered"))
    cluster.run(counter.end)
    return counter


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node that leads all partitions of a topic."""
    with Cluster() as made:
        create(made, COUNT)
        yield made


def fetch(*, offset: int = 0, named: bool = True, **fields: Any) -> FetchRequest:
    """Return a fetch of all partitions."""
    partitions = [
        _Topic.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000)
        for index in range(COUNT)
    ]
    topics = [_Topic(topic=TOPIC, partitions=partitions)] if named else []
    usual: dict[str, Any] = {
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "session_epoch": -1,
        "topics": topics,
    }
    return FetchRequest(**(usual | fields))


def produced(records: bytes, acks: int = -1) -> ProduceRequest:
    """Return a request with a batch for each partition."""
    partitions = [
        _Data.PartitionProduceData(index=index, records=records) for index in range(COUNT)
    ]
    data = [_Data(name=TOPIC, partition_data=partitions)]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=data)


def answered(response: Any) -> list[tuple[int, int, int]]:
    """Return partition, error and bytes of records in the order of the answer."""
    return [
        (one.partition_index, one.error_code, len(one.records or b""))
        for topic in response.responses
        for one in topic.partitions
    ]


def test_all_are_answered_in_order(cluster: Cluster) -> None:
    """With and without a session; one that waits is answered by a record of any partition."""
    records, peer = batch(), Peer(cluster.bootstrap)
    end = peer.ask(fetch(), FETCH_VERSION).responses[0].partitions[0].high_watermark
    answer = peer.ask(produced(records), PRODUCE_VERSION)
    codes = [(one.index, one.error_code) for one in answer.responses[0].partition_responses]
    assert codes == [(index, 0) for index in range(COUNT)]
    expected = [(index, 0, len(records)) for index in range(COUNT)]
    assert answered(peer.ask(fetch(offset=end), FETCH_VERSION)) == expected
    begun = peer.ask(fetch(offset=end, session_epoch=0), FETCH_VERSION)
    assert answered(begun) == expected
    session: dict[str, Any] = {"session_id": begun.session_id, "session_epoch": 1}
    at_end = fetch(offset=end + 1, max_wait_ms=60_000, **session)
    writer = Thread(
        target=produce, args=(Peer(cluster.bootstrap), TOPIC, records), kwargs={"partition": 7}
    )
    writer.start()
    assert answered(peer.ask(at_end, FETCH_VERSION)) == [(7, 0, len(records))]
    writer.join()
    again = fetch(named=False, session_id=begun.session_id, session_epoch=2)
    assert answered(peer.ask(again, FETCH_VERSION)) == [(7, 0, len(records))]


def test_no_turn_is_long(cluster: Cluster) -> None:
    """Each is a part of what all of them would take in one turn."""
    connection: Any = FakeConnection()
    most = {
        "produce": ask(cluster, connection, produced(batch()), PRODUCE_VERSION).most,
        "acks=0": ask(cluster, connection, produced(batch(), acks=0), PRODUCE_VERSION).most,
        "fetch": ask(cluster, connection, fetch(), FETCH_VERSION).most,
        "at the end": ask(cluster, connection, fetch(offset=9), FETCH_VERSION).most,
    }
    assert max(most.values()) < MAX_CALLS / 4, most
