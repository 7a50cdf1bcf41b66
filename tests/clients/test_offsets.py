"""Offset queries: retries, moved leaders, errors of topics, deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.offsets import OffsetQuery
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition
from tests.clients.simulated import (
    LOSE_REQUEST,
    NEVER_ANSWER,
    FakeCluster,
    Log,
    Simulation,
    consumer_settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Rig:
    """A client with a topic of two partitions on two brokers."""

    def __init__(self, **settings: object) -> None:
        self.cluster = FakeCluster(2)
        self.cluster.create("t", 2)
        self.sim = Simulation(self.cluster, consumer_settings(**settings))
        self.sim.client.metadata.add_topics(["t"])
        self.ended_ms: list[int] = []

    def ask(self, timestamps: Mapping[TopicPartition, int], timeout_ms: int = 5000) -> OffsetQuery:
        """Start a query and run it to its end."""
        query = OffsetQuery(
            self.sim.client,
            timestamps,
            committed_only=False,
            deadline_ms=self.sim.now_ms + timeout_ms,
        )
        query.result.on_done(lambda _: self.ended_ms.append(self.sim.now_ms))
        self.sim.client.register(query)
        self.sim.run(lambda: query.result.done)
        self.sim.client.unregister(query)
        return query


def test_leaders_answer_for_their_partitions() -> None:
    """Before any metadata is known; one request per leader."""
    rig = Rig()
    found = rig.ask({T0: EARLIEST_TIMESTAMP, T1: LATEST_TIMESTAMP}).result.value
    assert {part: answer.offset for part, answer in found.items()} == {T0: 0, T1: 0}
    assert len(rig.cluster.requests(ListOffsetsRequest)) == 2


def test_nothing_requested_is_answered_at_once() -> None:
    """Without a request."""
    rig = Rig()
    assert rig.ask({}).result.value == {}
    assert not rig.cluster.requests(ListOffsetsRequest)


def test_lost_requests_are_sent_again() -> None:
    """Only for the partitions without an answer."""
    rig = Rig()
    rig.cluster.faults[ListOffsetsRequest] = [LOSE_REQUEST]
    assert len(rig.ask({T0: LATEST_TIMESTAMP, T1: LATEST_TIMESTAMP}).result.value) == 2
    assert len(rig.cluster.requests(ListOffsetsRequest)) == 3


def test_the_deadline_ends_a_query_in_flight() -> None:
    """Before the request's own limit."""
    rig = Rig(request_timeout_ms=30_000)
    rig.sim.run(lambda: rig.sim.client.is_reachable)
    rig.cluster.faults[ListOffsetsRequest] = [NEVER_ANSWER]
    start_ms = rig.sim.now_ms
    error = rig.ask({T0: LATEST_TIMESTAMP}, timeout_ms=700).result.error
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.REQUEST_TIMED_OUT
    assert rig.ended_ms == [start_ms + 700]


def test_an_unreachable_cluster_is_named() -> None:
    """The deadline passes without any response."""
    rig = Rig()
    rig.cluster.faults[MetadataRequest] = [LOSE_REQUEST] * 1000
    error = rig.ask({T0: LATEST_TIMESTAMP}, timeout_ms=700).result.error
    assert isinstance(error, TimeoutError)
    assert "Timeout expired before the offsets were known: cannot reach broker:9001" in str(error)


def test_a_partition_that_does_not_exist_is_named_at_the_deadline() -> None:
    """The topic has two, and may get more until then."""
    rig = Rig()
    start_ms = rig.sim.now_ms
    error = rig.ask({TopicPartition("t", 2): LATEST_TIMESTAMP}).result.error
    assert isinstance(error, TimeoutError)
    assert "does not exist: the topic has 2 partition(s)" in str(error)
    assert rig.ended_ms == [start_ms + 5000]
    negative = rig.ask({TopicPartition("t", -1): LATEST_TIMESTAMP}).result.error
    assert "does not exist: the topic has 2 partition(s)" in str(negative)
    assert rig.ended_ms[1] < start_ms + 10_000


def test_a_partition_that_is_added_is_found() -> None:
    """The metadata is requested again while it lacks the partition."""
    rig = Rig()
    rig.sim.run(lambda: rig.sim.client.metadata.partition_count("t"))
    new = TopicPartition("t", 2)
    rig.cluster.logs[new], rig.cluster.leaders[new] = Log(), 1
    assert rig.ask({T0: LATEST_TIMESTAMP, new: LATEST_TIMESTAMP}).result.value[new].offset == 0
