"""A topic that is deleted while its logs are still there: no client hears of another leader.

Kafka: KafkaApis, ReplicaManager.getPartitionOrException. Deleting logs takes turns of its own.
"""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.delete_records import DeleteRecordsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.server.broker.publisher import MetadataPublisher
from ottla.testing.cluster import Cluster
from tests.server.requests.test_fetch_waits import create, records
from tests.server.requests.test_fetch_waits import request as fetch_by_id
from tests.server.requests.untrusted_clients import Peer
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.types import Uuid

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NAME = "orders"


@pytest.fixture(name="cluster")
def _cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Run a node that never comes to delete a log."""
    monkeypatch.setattr(MetadataPublisher, "_drop_all", lambda _: iter(()))
    with Cluster() as running:
        yield running


def _delete(cluster: Cluster) -> None:
    peer = Peer(cluster.bootstrap)
    answer = peer.ask(DeleteTopicsRequest(topic_names=[NAME], timeout_ms=10_000), 5)
    peer.close()
    assert not answer.responses[0].error_code
    assert cluster.run(lambda node: len(node.broker.replicas.logs)) == 1


def _produce(topic: Uuid | None) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=records())
    named = {"name": NAME} if topic is None else {"topic_id": topic}
    return ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=[data(**named, partition_data=[part])],
    )


def _requests() -> dict[str, tuple[Any, int]]:
    """Return requests about partition 0 by the topic's name, with versions."""
    fetched = FetchRequest.FetchTopic
    listed = ListOffsetsRequest.ListOffsetsTopic
    cut = DeleteRecordsRequest.DeleteRecordsTopic
    ended = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    described = DescribeProducersRequest.TopicRequest
    return {
        "Produce": (_produce(None), 12),
        "Fetch": (
            FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1000,
                session_epoch=-1,
                topics=[
                    fetched(
                        topic=NAME,
                        partitions=[
                            fetched.FetchPartition(
                                partition=0, fetch_offset=0, partition_max_bytes=1000
                            )
                        ],
                    )
                ],
            ),
            12,
        ),
        "ListOffsets": (
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[
                    listed(
                        name=NAME,
                        partitions=[listed.ListOffsetsPartition(partition_index=0, timestamp=-1)],
                    )
                ],
            ),
            7,
        ),
        "DeleteRecords": (
            DeleteRecordsRequest(
                timeout_ms=1000,
                topics=[
                    cut(
                        name=NAME,
                        partitions=[cut.DeleteRecordsPartition(partition_index=0, offset=0)],
                    )
                ],
            ),
            2,
        ),
        "OffsetForLeaderEpoch": (
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    ended(
                        topic=NAME,
                        partitions=[
                            ended.OffsetForLeaderPartition(
                                partition=0, current_leader_epoch=-1, leader_epoch=0
                            )
                        ],
                    )
                ],
            ),
            4,
        ),
        "DescribeProducers": (
            DescribeProducersRequest(topics=[described(name=NAME, partition_indexes=[0])]),
            0,
        ),
    }


def _code(answer: Any) -> ErrorCode:
    topic = (getattr(answer, "responses", None) or answer.topics)[0]
    partitions = getattr(topic, "partition_responses", None) or topic.partitions
    return ErrorCode(partitions[0].error_code)


def test_every_request_about_its_partition_says_that_it_is_unknown(cluster: Cluster) -> None:
    """A client takes NOT_LEADER_OR_FOLLOWER for a reason to look for another leader, at once."""
    create(cluster, NAME)
    peer = Peer(cluster.bootstrap)
    before = {name: _code(peer.ask(*asked)) for name, asked in _requests().items()}
    _delete(cluster)
    after = {name: _code(peer.ask(*asked)) for name, asked in _requests().items()}
    peer.close()
    assert before == dict.fromkeys(before, ErrorCode.NONE)
    assert after == dict.fromkeys(after, UNKNOWN)


def test_its_id_is_unknown_too(cluster: Cluster) -> None:
    """Versions that name topics by id."""
    topic_id = create(cluster, NAME)
    _delete(cluster)
    peer = Peer(cluster.bootstrap)
    produced = peer.ask(_produce(topic_id), 13)
    fetched = peer.ask(fetch_by_id((topic_id, 0, 0), session_epoch=-1), 13)
    peer.close()
    assert _code(produced) is ErrorCode.UNKNOWN_TOPIC_ID
    assert _code(fetched) is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [12, 13])
def test_a_fetch_that_waits_for_records_ends(cluster: Cluster, version: int) -> None:
    """Whether it names the topic or its id."""
    topic_id = create(cluster, NAME)
    asked = fetch_by_id((topic_id, 0, 0), session_epoch=-1)
    if version < 13:
        asked.topics[0].topic = NAME
    peer = Peer(cluster.bootstrap)
    answers: list[Any] = []
    reader = Thread(target=lambda: answers.append(peer.ask(asked, version)))
    reader.start()
    wait_for(lambda: cluster.run(lambda node: node.broker.delayed_fetches.delayed_count) > 0)
    _delete(cluster)
    reader.join()
    peer.close()
    assert _code(answers[0]) is UNKNOWN
