"""Plain produce requests answered the short way: the same bytes as the long way's."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol import frames
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.builder import encode_batch
from ottla.server.metrics.requests import RequestCounts, TimedDispatcher
from ottla.server.requests.dispatch import Dispatcher
from ottla.testing.cluster import Cluster
from ottla.types import Uuid
from tests.server.requests.untrusted_clients import Peer, create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.network.connection import Connection
    from ottla.server.node.node import Node
    from ottla.types import SendItem

Topic = ProduceRequest.TopicProduceData
KEPT = {"log.retention.ms": "-1"}
"""Records of the tests are old."""
TOPICS = ("plain", "__consumer_offsets", "gone", "grün")


class Ear:
    """Stands in for a connection and keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.peer_host = "127.0.0.1"
        self.listener_name = "PLAINTEXT"
        self.connection_id = "1"

    def respond(self, items: Sequence[SendItem]) -> None:
        self.heard.append(b"".join(bytes(one) for one in items))  # type: ignore[arg-type] # no slices in its answers

    def respond_bytes(self, data: bytes) -> None:
        self.heard.append(data)

    def request_done(self) -> None:
        self.heard.append(b"no answer")

    def finish(self) -> None:
        self.heard.append(b"closed")


def requests(rng: Random, now_ms: int) -> list[tuple[ProduceRequest, int]]:
    """Return many requests, most of them plain."""
    made = []
    sequence = 0
    for _ in range(300):
        version = rng.choice((3, 8, 9, 9, 11, 12, 12))
        is_producers = rng.random() < 0.3
        batch = encode_batch(
            [(now_ms, b"k", rng.randbytes(rng.randrange(300)), ())] * rng.choice((1, 1, 3)),
            producer_id=7 if is_producers else -1,
            producer_epoch=0 if is_producers else -1,
            base_sequence=sequence if is_producers else -1,
        )
        if is_producers and rng.random() < 0.9:
            sequence += int.from_bytes(batch[57:61], "big")
        if rng.random() < 0.1:
            batch[rng.randrange(len(batch))] ^= 4
        made.append((_request(rng, bytes(batch)), version))
    return made


def _request(rng: Random, records: bytes) -> ProduceRequest:
    partition = Topic.PartitionProduceData(index=rng.choice((0,) * 9 + (1,)), records=records)
    return ProduceRequest(
        acks=rng.choice((-1, -1, 1, 1, 1, 0, 3)),
        timeout_ms=1000,
        topic_data=[
            Topic(
                name=rng.choice(TOPICS + TOPICS[:1] * 5),
                partition_data=[partition] * rng.choice((1, 1, 1, 1, 2)),
            )
        ],
    )


def answers(node: Node, made: list[tuple[ProduceRequest, int]], *, is_short: bool) -> list[bytes]:
    """Let a dispatcher answer all requests."""
    dispatcher: Any = Dispatcher(node.broker)
    taken = 0
    take, fetched = dispatcher._short_ways

    def counted(connection: Connection, frame: memoryview) -> bool:
        nonlocal taken
        is_taken = bool(take(connection, frame))
        taken += is_taken
        return is_taken

    dispatcher._short_ways = (counted if is_short else lambda *_: False, fetched)
    ear = Ear()
    for request, version in made:
        parts: list[Any] = frames.encode_request(request, version, 5, "me")
        dispatcher.handle_frame(ear, memoryview(bytearray(b"".join(parts)[4:])))
    assert (taken > 30) is is_short
    return ear.heard


def contents(node: Node) -> dict[str, tuple[int, int, bytes]]:
    """Return end, watermark and bytes of each log."""
    found = {}
    for one in node.broker.replicas:
        log = one.log
        active = log.segments.active
        found[log.name] = (
            log.log_end_offset,
            log.high_watermark,
            active.file.read(0, active.size),
        )
    return found


def _run(seed: int, *, is_short: bool) -> tuple[list[bytes], dict[str, tuple[int, int, bytes]]]:
    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain") == [0]
        now_ms = 1_700_000_000_000
        heard = cluster.run(
            lambda node: answers(node, requests(Random(seed), now_ms), is_short=is_short)
        )
        return heard, cluster.run(contents)


@pytest.mark.parametrize("seed", range(2))
def test_both_ways_answer_the_same(seed: int) -> None:
    """All acks, producers in and out of order, damaged batches, missing and internal topics."""
    assert _run(seed, is_short=True) == _run(seed, is_short=False)


def test_ids_and_quotas() -> None:
    """Version 13 names topics by id; a client with a quota goes the long way."""
    batch = bytes(encode_batch([(1_700_000_000_000, b"k", b"v", ())]))

    def ask(lane: Any, topic_id: Uuid) -> bool:
        topic = Topic(
            topic_id=topic_id,
            partition_data=[Topic.PartitionProduceData(index=0, records=batch)],
        )
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
        parts: list[Any] = frames.encode_request(request, 13, 5, "me")
        return bool(lane(Ear(), memoryview(bytearray(b"".join(parts)[4:]))))

    def asked(node: Node) -> list[bool]:
        topic_id = node.broker.topic_id("plain")
        assert topic_id is not None
        lane: Any = Dispatcher(node.broker)._short_ways[0]
        found = [ask(lane, topic_id), ask(lane, Uuid(b"0123456789abcdef"))]
        for limited in ("me", "another", "me", "others"):
            entity = (("client-id", limited),)
            node.broker.quotas.update({entity: {"producer_byte_rate": 1e9}}, [entity])
            found += [ask(lane, topic_id), ask(lane, topic_id)]
            node.broker.quotas.update({}, [entity])
        return found

    def append_first(cluster: Cluster) -> None:
        peer = Peer(cluster.bootstrap)
        assert produce(peer, "plain", batch) == 0
        peer.close()

    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain") == [0]
        append_first(cluster)  # which prepares the log's files
        assert cluster.run(asked) == [True, *[False] * 3, *[True] * 2, *[False] * 2, *[True] * 2]


def test_a_fault_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is appended twice after a fault of ours; the client asks again."""

    def fault(*_: object) -> None:
        raise ValueError("a bug")

    def asked(node: Node) -> list[bytes]:
        replicas: Any = node.broker.replicas
        replicas.append_plain = fault
        ear: Any = Ear()
        batch = bytes(encode_batch([(1_700_000_000_000, b"k", b"v", ())]))
        topic = Topic(
            name="plain", partition_data=[Topic.PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
        parts: list[Any] = frames.encode_request(request, 9, 5, "me")
        Dispatcher(node.broker).handle_frame(ear, memoryview(bytearray(b"".join(parts)[4:])))
        return ear.heard  # type: ignore[no-any-return] # an Ear

    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain") == [0]
        assert cluster.run(asked) == [b"closed"]
    assert "request failed" in caplog.text


def test_a_controller_takes_no_records() -> None:
    """Its listener serves no Produce and no consumer, by whichever way."""
    with Cluster(config=KEPT) as cluster:
        lanes = cluster.run(lambda node: Dispatcher(node.broker, "controller")._short_ways)
        frame = memoryview(bytearray(100))
        assert [lane(Ear(), frame) for lane in lanes] == [False, False]  # type: ignore[arg-type] # stands in for a connection


def test_both_ways_are_counted_and_timed() -> None:
    """Metrics of requests do not tell the ways apart: one answer each is counted by version."""
    batch = bytes(encode_batch([(1_700_000_000_000, b"k", b"v", ())]))

    def counted(node: Node) -> dict[tuple[int, int], int]:
        counts = RequestCounts()
        dispatcher = TimedDispatcher(node.broker, "broker", counts)
        for partitions in (1, 1, 2, 1):
            data = [Topic.PartitionProduceData(index=0, records=batch)] * partitions
            topic = Topic(name="plain", partition_data=data)
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
            parts: list[Any] = frames.encode_request(request, 9, 5, "me")
            ear: Any = Ear()
            dispatcher.handle_frame(ear, memoryview(bytearray(b"".join(parts)[4:])))
            assert len(ear.heard) == 1
        dispatcher.drain()
        assert counts.times[0].total.count == sum(counts.requests.values())
        return dict(counts.requests)

    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain") == [0]
        assert cluster.run(counted) == {(0, 9): 4}
