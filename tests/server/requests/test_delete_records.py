"""DeleteRecords waits until all live replicas have deleted (KIP-107)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.replication.leader_state import AcknowledgementQueue
from ottla.server.handlers.topics import DeletionWaits, PartitionResult, _Awaited
from ottla.testing.cluster import Cluster
from ottla.testing.kafka import Kafka
from tests.controller.harness import assigned_topic
from tests.server.requests.untrusted_clients import Peer, produce
from tests.server.system.test_disk_faults import batch
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from ottla.replication.leader_state import LeaderState
    from ottla.server.node.node import Node


def _waits() -> tuple[DeletionWaits, PartitionResult, Any]:
    """Return a request that waits for offset 5 of one partition; its low watermark is 2."""
    leading = SimpleNamespace(low_watermark=2, deletions=AcknowledgementQueue())
    result = PartitionResult(partition_index=0, low_watermark=2)
    awaited = [_Awaited(result, cast("LeaderState", leading), 5)]
    waits = DeletionWaits(DeleteRecordsResponse(topics=[]), awaited, 0)
    leading.deletions.add(5, waits, 0)
    return waits, result, leading


@pytest.mark.parametrize(
    ("low_watermark", "code", "shown"),
    [(7, ErrorCode.NONE, 7), (7, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)],
)
def test_the_answer_has_the_low_watermark_of_its_time(
    low_watermark: int, code: ErrorCode, shown: int
) -> None:
    """None where the partition is led by another broker meanwhile."""
    waits, result, leading = _waits()
    leading.low_watermark = low_watermark
    waits.acknowledged(0, code)
    assert waits.is_over
    assert waits.answer.done
    assert (result.error_code, result.low_watermark) == (code, shown)


def test_what_is_late_is_answered_with_how_far_it_was() -> None:
    """REQUEST_TIMED_OUT; what comes after it changes nothing."""
    waits, result, leading = _waits()
    waits.expire()
    assert not leading.deletions
    waits.acknowledged(0, ErrorCode.NONE)
    assert waits.answer.done
    assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 2)


def test_followers_have_deleted_when_it_is_answered() -> None:
    """Three nodes: the log of each starts where the client asked."""
    with Cluster(nodes=3) as cluster, Kafka(cluster) as kafka:
        kafka.wait(lambda: cluster.controller_id is not None, WAIT_S, lambda: "no controller")
        peer = Peer(cluster.node(1).address)
        created = peer.ask(CreateTopicsRequest(topics=[assigned_topic("t", [1, 2, 3])]), 7)
        assert created.topics[0].error_code == 0
        kafka.wait(lambda: produce(peer, "t", batch()) == 0, WAIT_S, lambda: "not led")
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        first = topic.DeleteRecordsPartition(partition_index=0, offset=2)
        topics = [topic(name="t", partitions=[first])]
        answer = peer.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2)
        (result,) = answer.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (0, 2)
        for number in (1, 2, 3):
            start = cluster.node(number).run(_log_start_offset)
            assert start == 2, number
        peer.close()


def _log_start_offset(node: Node) -> int:
    return node.broker.replicas.get("t", 0).log.log_start_offset
