"""Produce and Fetch about thousands of partitions: answered as few are, in turns of the loop."""

from __future__ import annotations

import os
import time
import weakref
from functools import partial
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import frames
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.purgatory.pending import Pending
from ottla.records.builder import encode_batch
from ottla.replication.replica_set import ReplicaSet
from ottla.server.requests.context import QuotaUse
from ottla.server.requests.dispatch import Dispatcher
from ottla.server.requests.parts import PARTITIONS_IN_A_TURN
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
    from collections.abc import Callable, Iterator

    from ottla.protocol.schema import Request
    from ottla.server.node.node import Node

pytestmark = pytest.mark.soak
TOPIC: Final = "many"
COUNT: Final = 10_000 if os.environ.get("OTTLA_TEST_LARGEST") else 2_000
FETCH_VERSION, PRODUCE_VERSION = 12, 12
LIMIT_S: Final = 300.0
"""Of the creation of all partitions, and of a request about them, on a machine that is busy."""
ALWAYS_ALIVE: Final = {"broker.session.timeout.ms": 600_000}
"""A busy machine stalls a node for seconds: fenced, it would elect new leaders meanwhile."""
_Topic, _Data = FetchRequest.FetchTopic, ProduceRequest.TopicProduceData


def create(cluster: Cluster, count: int) -> None:
    """Create the topic, and wait until the node leads its last partition."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=count, replication_factor=1, assignments=[], configs=[]
    )
    peer = Peer(cluster.bootstrap)
    try:
        peer.sock.settimeout(LIMIT_S)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(LIMIT_S * 1000))
        answer = peer.ask(request, 7)
    finally:
        peer.close()
    assert answer.topics[0].error_code == 0
    wait_for(lambda: cluster.run(partial(_leads, count - 1)), LIMIT_S)


def _leads(index: int, node: Node) -> bool:
    partition = node.broker.replicas.find(TOPIC, index)
    return partition is not None and partition.is_leader


def ask(cluster: Cluster, connection: Any, request: Request, version: int) -> CallCounter:
    """Let the node handle a request; return its counter once it is answered."""
    parts: list[Any] = frames.encode_request(request, version, 5, "me")
    frame = memoryview(bytearray(b"".join(parts)[4:]))
    connection.is_answered = False
    counter = cluster.run(partial(send, connection, frame, "broker"))
    wait_for(partial(getattr, connection, "is_answered"), LIMIT_S)
    cluster.run(counter.end)
    return counter


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node that leads all partitions of a topic."""
    with Cluster(config=ALWAYS_ALIVE) as made:
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


@pytest.fixture
def level(cluster: Cluster) -> Iterator[tuple[Peer, int]]:
    """Return a peer, and the offset at which all partitions end."""
    peer = Peer(cluster.bootstrap)
    answer = peer.ask(fetch(), FETCH_VERSION)
    ends = [one.high_watermark for one in answer.responses[0].partitions]
    for index, end in enumerate(ends):
        for _ in range(max(ends) - end):
            assert produce(peer, TOPIC, batch(), partition=index) == 0
    yield peer, max(ends)
    peer.close()


def test_all_are_answered_in_order(cluster: Cluster, level: tuple[Peer, int]) -> None:
    """With and without a session; one that waits is answered by a record of any partition."""
    records, (peer, end) = batch(), level
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
    counters = {
        "produce": ask(cluster, connection, produced(batch()), PRODUCE_VERSION),
        "acks=0": ask(cluster, connection, produced(batch(), acks=0), PRODUCE_VERSION),
        "fetch": ask(cluster, connection, fetch(), FETCH_VERSION),
        "at the end": ask(cluster, connection, fetch(offset=9), FETCH_VERSION),
    }
    most = {name: (counter.most, counter.where) for name, counter in counters.items()}
    assert max(most.values())[0] < MAX_CALLS / 4, most


class Ear(FakeConnection):
    """Keeps what it was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[bytes] = []

    def respond(self, *answer: object) -> None:
        """Keep the bytes of the answer, without those of files."""
        parts: Any = answer[0]
        parts = [parts] if isinstance(parts, bytes) else parts
        self.answers.append(b"".join(part for part in parts if isinstance(part, bytes)))
        super().respond()

    respond_bytes = respond

    def error_code(self) -> int:
        """Return the error of the last fetch: behind size, header and throttle time."""
        return int.from_bytes(self.answers[-1][13:15], "big")


def frame_of(
    request: Request, version: int, kind: Callable[[bytes], Any] = bytearray
) -> memoryview:
    """Return the bytes of a request."""
    parts: list[Any] = frames.encode_request(request, version, 5, "me")
    return memoryview(kind(b"".join(parts)[4:]))


def begin_idle_session(peer: Peer, end: int) -> int:
    """Return the id of a session whose partitions are all idle, at epoch 3."""
    begun = peer.ask(fetch(offset=end, session_epoch=0, max_wait_ms=0), FETCH_VERSION)
    for epoch in (1, 2):
        request = fetch(
            named=False, session_id=begun.session_id, session_epoch=epoch, max_wait_ms=0
        )
        assert peer.ask(request, FETCH_VERSION).error_code == 0
    session_id: int = begun.session_id
    return session_id


def test_a_produce_that_waits_keeps_no_frame(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients choose for how long: its records are in the logs."""

    class Frame(bytearray):
        """May be referred to weakly."""

    made: list[weakref.ref[Frame]] = []

    def frame(data: bytes) -> Frame:
        content = Frame(data)
        made.append(weakref.ref(content))
        return content

    safe: Pending[Any] = Pending()
    append = ReplicaSet.append

    def held_up(*arguments: Any, **settings: Any) -> Any:
        return append(*arguments, **settings)[0], object()

    monkeypatch.setattr("ottla.server.handlers.produce.when_safe", lambda *_arguments: safe)
    ear: Any = Ear()
    monkeypatch.setattr(ReplicaSet, "append", held_up)

    def handle(node: Node) -> None:
        dispatcher = Dispatcher(node.broker, "broker", lambda: 0.0, None)
        dispatcher.handle_frame(ear, frame_of(produced(batch()), PRODUCE_VERSION, frame))

    def is_waiting(node: Node) -> bool:
        return bool(safe._callbacks)

    cluster.run(handle)
    wait_for(lambda: cluster.run(is_waiting))
    assert not ear.is_answered
    assert made[0]() is None


def test_a_fetch_that_has_not_begun_is_overtaken(cluster: Cluster, level: tuple[Peer, int]) -> None:
    """Its session has gone on in the same turn, in which other works took all time."""
    peer, end = level
    session_id = begin_idle_session(peer, end)
    ears: list[Any] = [Ear(), Ear()]

    def handle(node: Node) -> None:
        worker, dispatcher = node.broker.worker, Dispatcher(node.broker, "broker", float, None)
        most, worker.max_steps = worker.max_steps, 0
        for ear, epoch in zip(ears, (3, 4), strict=True):
            request = fetch(session_id=session_id, session_epoch=epoch, max_wait_ms=0)
            dispatcher.handle_frame(ear, frame_of(request, FETCH_VERSION))
        worker.max_steps = most

    cluster.run(handle)
    wait_for(lambda: all(ear.is_answered for ear in ears))
    assert [ear.error_code() for ear in ears] == [ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0]


def test_a_negative_limit_of_an_idle_session_is_read_in_turns(
    cluster: Cluster, level: tuple[Peer, int]
) -> None:
    """It reads all partitions, although none has changed."""
    peer, end = level
    session: dict[str, Any] = {"session_id": begin_idle_session(peer, end), "session_epoch": 3}
    request = fetch(named=False, max_bytes=-1, max_wait_ms=0, **session)
    connection: Any = FakeConnection()
    assert ask(cluster, connection, request, FETCH_VERSION).most < MAX_CALLS / 3


def test_the_time_of_all_turns_is_measured(cluster: Cluster) -> None:
    """As far as a quota concerns the client: a clock that ticks at each question counts them."""
    ear: Any = Ear()
    used: list[QuotaUse] = []

    def handle(node: Node) -> None:
        ticks = count()
        dispatcher = Dispatcher(node.broker, "broker", lambda: float(next(ticks)), None)
        entity = (("client-id", "me"),)
        node.broker.quotas.update({entity: {"request_percentage": 1e9}}, [entity])
        dispatcher.handle_frame(ear, frame_of(fetch(max_wait_ms=0), FETCH_VERSION))
        node.broker.quotas.update({entity: {}}, [entity])

    with pytest.MonkeyPatch.context() as patch:
        answer = QuotaUse.answer

        def note(use: QuotaUse, *arguments: Any) -> None:
            used.append(use)
            answer(use, *arguments)

        patch.setattr(QuotaUse, "answer", note)
        cluster.run(handle)
        wait_for(lambda: ear.is_answered)
    assert used[0]._handled_s >= COUNT / PARTITIONS_IN_A_TURN


def test_what_comes_between_turns_counts_for_min_bytes(
    cluster: Cluster, level: tuple[Peer, int]
) -> None:
    """The first partition is read before it, and the wait begins after it."""
    _, end = level
    ear: Any = Ear()
    records = memoryview(encode_batch([(1, b"k", b"v" * 20_000, ())]))

    def handle(node: Node) -> None:
        dispatcher = Dispatcher(node.broker, "broker", float, None)
        request = fetch(offset=end, min_bytes=10_000, max_wait_ms=600_000)
        dispatcher.handle_frame(ear, frame_of(request, FETCH_VERSION))
        replicas = node.broker.replicas
        replicas.append(replicas.get(TOPIC, 0), records, 1, 1)

    cluster.run(handle)
    wait_for(lambda: ear.is_answered)


def test_a_large_transaction_is_appended_in_turns(cluster: Cluster) -> None:
    """Each partition is verified, and all are added by the coordinator of the same node."""
    peer = Peer(cluster.bootstrap)
    asked = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)

    def begin() -> Any:
        peer.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
        answer = peer.ask(asked, 4)
        return answer if not answer.error_code else None

    producer = wait_for(begin)
    peer.close()
    records = encode_batch(
        # of this moment: after older ones segment.ms would have the next batches begin segments
        [(time.time_ns() // 1_000_000, b"k", b"v", ())],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    request = produced(bytes(records))
    request.transactional_id = "x"
    connection: Any = FakeConnection()
    counter = ask(cluster, connection, request, PRODUCE_VERSION)
    added = 25 * COUNT  # by the coordinator in one turn, see docs/limits.md
    assert counter.most < added, counter.where
