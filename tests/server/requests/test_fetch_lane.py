"""Plain fetches answered the short way: the same bytes as the long way's."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol import frames
from ottla.protocol.apis.fetch import FetchRequest
from ottla.records.builder import encode_batch
from ottla.records.validator import AppendOrigin
from ottla.server.metrics.requests import RequestCounts, TimedDispatcher
from ottla.server.requests.dispatch import Dispatcher
from ottla.testing.cluster import Cluster
from ottla.types import FileSlice, Uuid
from tests.server.requests.untrusted_clients import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.server.node.node import Node
    from ottla.types import SendItem

Topic = FetchRequest.FetchTopic
NOW_MS = 1_700_000_000_000
KEPT = {"log.retention.ms": "-1"}
"""Records of the tests are old."""
BATCHES, RECORDS_A_BATCH = 60, 5
FULL, ANEW = -1, 0


class Ear:
    """Stands in for a connection and keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.environment = 0
        self.peer_host = "127.0.0.1"
        self.listener_name = "PLAINTEXT"
        self.connection_id = "1"
        self.is_closed = False

    def respond(self, items: Sequence[SendItem]) -> None:
        self.heard.append(
            b"".join(one.read() if isinstance(one, FileSlice) else bytes(one) for one in items)
        )

    def respond_around(self, head: bytes, part: FileSlice, behind: bytes) -> None:
        self.environment += 1
        self.respond((head, part, behind))

    def finish(self) -> None:
        self.heard.append(b"closed")


def fill(node: Node) -> None:
    """Append batches of several sizes to every topic of the tests."""
    for partition in node.broker.replicas:
        rng = Random(1)
        for _ in range(BATCHES):
            value = rng.randbytes(rng.choice((10, 400, 20_000)))
            batch = memoryview(encode_batch([(NOW_MS, b"k", value, ())] * RECORDS_A_BATCH))
            node.broker.replicas.append(
                partition, batch, required_acks=1, now_ms=NOW_MS, origin=AppendOrigin.CLIENT
            )


def asked(rng: Random, topic_id: Uuid) -> Topic:
    """Return what a consumer asks of one partition, most often something it can have."""
    end = BATCHES * RECORDS_A_BATCH
    one = Topic.FetchPartition(
        partition=rng.choice((0,) * 12 + (3,)),
        current_leader_epoch=rng.choice((-1, -1, 0, 0, 0, 4)),
        fetch_offset=rng.choice((rng.randrange(end), rng.randrange(end), 0, end, end + 1, -1)),
        last_fetched_epoch=rng.choice((-1,) * 9 + (0,)),
        partition_max_bytes=rng.choice((1, 500, 1 << 20, 1 << 20, 1 << 20, 0)),
    )
    return Topic(topic_id=topic_id, partitions=[one])


def requests(rng: Random, ids: list[Uuid]) -> Iterator[FetchRequest]:
    """Yield fetches; whoever sends them puts in the session that it was given."""
    for _ in range(700):
        topics = [asked(rng, rng.choice(ids)) for _ in range(rng.choice((0, 0, *(1,) * 20, 2)))]
        yield FetchRequest(
            max_wait_ms=0,
            min_bytes=rng.choice((0, 1, 1, 1, 5000)),
            max_bytes=rng.choice((1, 1 << 20, 1 << 20, 1 << 20)),
            isolation_level=rng.choice((0, 1)),
            session_epoch=rng.choice((FULL, FULL, FULL, ANEW, ANEW, 1, 1, 1, 1, 1, 1)),
            topics=topics,
        )


class Consumer:
    """Asks one node and continues its session."""

    def __init__(self, node: Node, dispatcher: Any) -> None:
        self.ear = Ear()
        self._dispatcher = dispatcher
        self._sessions = node.broker.fetch_sessions
        self.told: list[tuple[object, ...]] = []

    def ask(self, request: FetchRequest, version: int) -> None:
        """Continue the session when the request is not a full one; note what was answered."""
        session = next(reversed(self._sessions._sessions.values()), None)
        if request.session_epoch == 1 and session is not None:
            request.session_id, request.session_epoch = session.session_id, session.epoch
        parts: list[Any] = frames.encode_request(request, version, 5, "me")
        self._dispatcher.handle_frame(self.ear, memoryview(bytearray(b"".join(parts)[4:])))
        heard = self.ear.heard.pop()
        assert not self.ear.heard
        # behind the size, the header, throttling and the error stands a session's random id
        self.told.append((heard[:15], any(heard[15:19]), heard[19:], self._known()))

    def _known(self) -> list[tuple[object, ...]]:
        return [
            (session.epoch, *(getattr(one, name) for name in one.__slots__ if name != "replica"))
            for session in self._sessions._sessions.values()
            for one in session.partitions.values()
        ]


def _run(seed: int, *, is_short: bool) -> tuple[list[tuple[object, ...]], list[tuple[int, ...]]]:
    def consume(node: Node) -> tuple[list[tuple[object, ...]], list[tuple[int, ...]]]:
        fill(node)
        rng = Random(seed)
        # ids are random: the tests ask by the topics' order, and hear of them in that order
        ids = [Uuid(bytes(15) + bytes((number,))) for number in (1, 2, 9)]
        for name, new in zip(("plain", "other"), ids, strict=False):
            rename(node, name, new)
        dispatcher: Any = Dispatcher(node.broker)
        if not is_short:
            dispatcher._short_ways = (lambda *_: False,) * 2
        consumer = Consumer(node, dispatcher)
        for request in requests(rng, ids):
            consumer.ask(request, rng.choice((13, 14, 15, 17, 18)))
        assert (consumer.ear.environment > 25) is is_short
        return consumer.told, [(one.read_count, one.bytes_out) for one in node.broker.replicas]

    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain", "other") == [0, 0]
        return cluster.run(consume)


def rename(node: Node, name: str, new: Uuid) -> None:
    """Give a topic another id, so that two nodes have the same."""
    replicas = node.broker.replicas
    partition = replicas.get(name, 0)
    replicas.by_topic_id[new] = replicas.by_topic_id.pop(partition.topic_id)
    partition.topic_id = new
    broker: Any = node.broker
    broker.topic_name = lambda topic_id: {1: "plain", 2: "other"}.get(topic_id[-1])


@pytest.mark.parametrize("seed", range(2))
def test_both_ways_answer_the_same(seed: int) -> None:
    """Answers, sessions and counters: offsets, limits, epochs and topics good and bad."""
    assert _run(seed, is_short=True) == _run(seed, is_short=False)


def test_both_ways_are_counted_and_timed() -> None:
    """Metrics of requests do not tell the ways apart; a client with a quota goes the long one."""

    def counted(node: Node) -> tuple[dict[tuple[int, int], int], int]:
        fill(node)
        counts, ear = RequestCounts(), Ear()
        dispatcher = TimedDispatcher(node.broker, "broker", counts)
        topic_id = node.broker.replicas.get("plain", 0).topic_id
        somebody, me = (("client-id", "somebody"),), (("client-id", "me"),)
        for limited in (None, somebody, me):
            if limited:
                node.broker.quotas.update({limited: {"consumer_byte_rate": 1e9}}, [limited])
            for partitions in (1, 2):
                one = Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
                request = FetchRequest(
                    max_wait_ms=0,
                    min_bytes=1,
                    topics=[Topic(topic_id=topic_id, partitions=[one] * partitions)],
                )
                parts: list[Any] = frames.encode_request(request, 15, 5, "me")
                connection: Any = ear
                dispatcher.handle_frame(connection, memoryview(bytearray(b"".join(parts)[4:])))
        dispatcher.drain()
        assert len(ear.heard) == 6
        assert counts.times[1].total.count == sum(counts.requests.values())
        return dict(counts.requests), ear.environment

    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain") == [0]
        assert cluster.run(counted) == ({(1, 15): 6}, 2)


def test_the_disk_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page cache does not hold goes the long way, which lets a worker read it first."""

    def asked_cold(node: Node) -> tuple[bool, bool]:
        fill(node)
        partition = node.broker.replicas.get("plain", 0)
        take: Any = Dispatcher(node.broker)._short_ways[1]
        one = Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[Topic(topic_id=partition.topic_id, partitions=[one])],
        )
        parts: list[Any] = frames.encode_request(request, 15, 5, "me")
        frame = memoryview(bytearray(b"".join(parts)[4:]))
        warm = take(Ear(), frame)
        monkeypatch.setattr("ottla.server.requests.fetch_lane.is_cold", lambda _: True)
        return warm, take(Ear(), frame)

    with Cluster(config=KEPT) as cluster:
        assert create_topic(cluster, "plain") == [0]
        assert cluster.run(asked_cold) == (True, False)
