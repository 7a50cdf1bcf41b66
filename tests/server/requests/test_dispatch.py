"""The one path of requests: faults, times and listeners, seen from the dispatcher."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from ottla.protocol import codec, frames
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.records.builder import encode_batch
from ottla.server.metrics.requests import RequestMetrics
from ottla.server.requests.api import served_apis
from ottla.server.requests.dispatch import Dispatcher
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import create_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from ottla.server.node.node import Node
    from ottla.types import SendItem

Topic = ProduceRequest.TopicProduceData
KEPT = {"log.retention.ms": "-1"}
"""Records of the tests are old."""
BATCH = bytes(encode_batch([(1_700_000_000_000, b"k", b"v", ())]))
CORRELATION_ID = 5


class FakeConnection:
    """Stands in for a connection and keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.peer_host = "127.0.0.1"
        self.listener_name = "PLAINTEXT"
        self.connection_id = "1"
        self.is_closed = False

    def respond(self, items: Sequence[SendItem]) -> None:
        self.sent.append(b"".join(bytes(one) for one in items))  # type: ignore[arg-type] # no slices here

    def respond_bytes(self, data: bytes) -> None:
        self.sent.append(data)

    def request_done(self) -> None:
        self.sent.append(b"no response")

    def finish(self) -> None:
        self.sent.append(b"closed")


def frame_of(request: Any, version: int) -> memoryview:
    """Return a request's frame without its size."""
    parts: list[Any] = frames.encode_request(request, version, CORRELATION_ID, "me")
    return memoryview(bytearray(b"".join(parts)[4:]))


def produce(acks: int = 1, partitions: int = 1, name: str = "plain") -> ProduceRequest:
    """Return a request for partition 0, repeated where several are requested."""
    data = [Topic.PartitionProduceData(index=0, records=BATCH)] * partitions
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[Topic(name=name, partition_data=data)]
    )


def send(node: Node, request: Any, version: int) -> list[bytes]:
    """Let a dispatcher handle a request; return what the connection was given."""
    connection: Any = FakeConnection()
    Dispatcher(node.broker, "broker", perf_counter, None).handle_frame(
        connection, frame_of(request, version)
    )
    sent: list[bytes] = connection.sent
    return sent


def test_a_fault_is_answered_for_every_partition(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours is UNKNOWN_SERVER_ERROR; without acknowledgement the connection ends."""

    def fault(*_: object) -> None:
        raise ValueError("a bug")

    def run(node: Node) -> tuple[list[bytes], list[bytes]]:
        replicas: Any = node.broker.replicas
        replicas.append = fault
        return send(node, produce(), 9), send(node, produce(acks=0), 9)

    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain") == [0]
        answered, closed = cluster.run(run)
    assert closed == [b"closed"]
    response: Any = codec.decode_at(ProduceResponse, 9, memoryview(answered[0]), 9)[0]
    (partition,) = response.responses[0].partition_responses
    assert (partition.index, partition.error_code) == (0, -1)
    assert "request failed" in caplog.text


def test_requests_are_timed_by_version() -> None:
    """Each request adds one sample, whatever it is answered."""

    def run(node: Node) -> tuple[dict[tuple[int, int], int], int]:
        metrics = RequestMetrics()
        dispatcher = Dispatcher(node.broker, "broker", perf_counter, metrics.times)
        for partitions in (1, 2):
            connection: Any = FakeConnection()
            dispatcher.handle_frame(connection, frame_of(produce(partitions=partitions), 9))
            assert len(connection.sent) == 1
        connection = FakeConnection()
        wrong = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=77, session_epoch=3, topics=[])
        dispatcher.handle_frame(connection, frame_of(wrong, 13))
        metrics.drain()
        return dict(metrics.requests), metrics.times.errors[1, 70]

    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain") == [0]
        assert cluster.run(run) == ({(0, 9): 2, (1, 13): 1}, 1)


def test_a_controller_listener_serves_no_produce() -> None:
    """Clients' APIs are served on the listeners that their schemas name."""
    assert 0 in served_apis("broker")
    assert 0 not in served_apis("controller")


def test_a_topic_without_partitions_is_left_out_of_the_response() -> None:
    """As in Kafka, whose responses are made from partitions."""

    def run(node: Node) -> list[bytes]:
        return send(node, produce(partitions=0), 9)

    with Cluster(config=KEPT) as cluster:
        (sent,) = cluster.run(run)
    assert sent[4:] == CORRELATION_ID.to_bytes(4, "big") + b"\0" + b"\1" + bytes(4) + b"\0"
