"""Fetches that wait, fail or are overtaken, on a live node: what a client sees of each."""

from __future__ import annotations

import errno
import time
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import codec, frames
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.builder import encode_batch
from ottla.security.principal import ANONYMOUS
from ottla.server.metrics.requests import RequestMetrics
from ottla.server.requests.dispatch import Dispatcher
from ottla.server.system.files import RealFile
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition, Uuid
from tests.server.requests.untrusted_clients import Peer, joined, produce
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.server.node.node import Node

Topic = FetchRequest.FetchTopic
MUCH, LONG_MS = 1 << 26, 60_000
"""Who waits that long is not answered within the thirty seconds of a peer's patience."""
UNHEARD_OF = Uuid(b"x" * 16)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def create(cluster: Cluster, name: str, **configs: str) -> Uuid:
    creatable = CreateTopicsRequest.CreatableTopic
    pairs = [
        creatable.CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    wanted = creatable(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=pairs
    )
    peer = Peer(cluster.bootstrap)
    answer = peer.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
    peer.close()
    assert answer.topics[0].error_code == 0
    return Uuid(answer.topics[0].topic_id)


def records(size: int = 100) -> bytes:
    return bytes(encode_batch([(int(time.time() * 1000), b"k", bytes(size), ())]))


def request(*wanted: tuple[Uuid, int, int], wait_ms: int = LONG_MS, **fields: Any) -> FetchRequest:
    """Ask for (topic id, partition, offset); fields as they are called in the request."""
    topics = [
        Topic(
            topic_id=topic_id,
            partitions=[
                Topic.FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=MUCH
                )
            ],
        )
        for topic_id, partition, offset in wanted
    ]
    whole: dict[str, Any] = {"min_bytes": 1, "max_bytes": MUCH, "session_epoch": -1} | fields
    return FetchRequest(max_wait_ms=wait_ms, topics=topics, **whole)


def codes(answer: Any) -> list[int]:
    return [one.error_code for topic in answer.responses for one in topic.partitions]


def send(peer: Peer, wanted: FetchRequest, version: int = 13) -> None:
    peer.sock.sendall(joined(frames.encode_request(wanted, version, 5, "test")))


def waiting_count(node: Node) -> int:
    return node.broker.delayed_fetches.delayed_count


def test_more_than_an_answer_may_hold_is_not_waited_for(cluster: Cluster) -> None:
    """min_bytes counts up to max_bytes."""
    topic_id = create(cluster, "t")
    peer = Peer(cluster.bootstrap)
    assert produce(peer, "t", records(3000)) == 0
    assert produce(peer, "t", records(3000)) == 0
    answer = peer.ask(request((topic_id, 0, 0), min_bytes=1 << 20, max_bytes=2000), 13)
    assert codes(answer) == [0]
    peer.close()


def test_the_rest_of_an_older_segment_is_not_waited_for(cluster: Cluster) -> None:
    """It will not grow; the next fetch reads the next segment."""
    topic_id = create(cluster, "t")
    peer = Peer(cluster.bootstrap)
    assert produce(peer, "t", records()) == 0
    cluster.run(lambda node: node.broker.replicas.get("t", 0).log.roll(node.clock.now_ms()) and 0)
    assert produce(peer, "t", records(50_000)) == 0
    answer = peer.ask(request((topic_id, 0, 0), min_bytes=10_000), 13)
    assert len(answer.responses[0].partitions[0].records) < 1000
    peer.close()


@pytest.mark.parametrize("unknown", [(UNHEARD_OF, 0, 0), None])
def test_what_no_one_knows_does_not_end_the_wait_for_the_rest(
    cluster: Cluster, unknown: tuple[Uuid, int, int] | None
) -> None:
    """A topic or an index that is not there is told with the answer; alone it is told at once."""
    topic_id = create(cluster, "t")
    missing = unknown or (topic_id, 7, 0)
    code = 100 if unknown else 3
    peer, other = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
    assert codes(peer.ask(request(missing), 13)) == [code]
    send(peer, request((topic_id, 0, 0), missing))
    assert other.is_served()
    assert cluster.run(waiting_count) == 1
    assert produce(other, "t", records()) == 0
    assert peer.read_frame()
    peer.close()
    other.close()


def test_a_partition_unknown_before_a_wait_is_unknown_after_it(cluster: Cluster) -> None:
    """Kafka looks for it once; it is answered as such also where it was created meanwhile."""
    topic_id = create(cluster, "t")
    peer, other = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
    send(peer, request((topic_id, 0, 0), (topic_id, 1, 5)))
    assert other.is_served()
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)
    grow = CreatePartitionsRequest(topics=[grown], timeout_ms=5000, validate_only=False)
    assert other.ask(grow, 3).results[0].error_code == 0
    assert produce(other, "t", records(), partition=1) == 0
    assert produce(other, "t", records()) == 0
    frame = memoryview(peer.read_frame())
    assert codes(codec.decode_at(FetchResponse, 13, frame, 5)[0]) == [0, 3]
    peer.close()
    other.close()


def named(answer: Any) -> list[tuple[Uuid, int]]:
    return [
        (topic.topic_id, one.partition_index)
        for topic in answer.responses
        for one in topic.partitions
    ]


@pytest.mark.parametrize("waits", [False, True])
def test_partitions_that_are_not_read_come_last(cluster: Cluster, waits: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Kafka answers for them before it reads: unknown ids first. A session keeps this order."""
    first, second = create(cluster, "t"), create(cluster, "u")
    peer, other = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
    wanted = [(first, 1, 0), (UNHEARD_OF, 0, 0), (first, 0, 0), (second, 0, 0)]
    order = [(first, 0), (second, 0), (UNHEARD_OF, 0), (first, 1)]
    fields = {"session_epoch": 0, "wait_ms": LONG_MS if waits else 0}
    send(peer, request(*wanted, **fields))
    assert other.is_served()
    if waits:
        assert produce(other, "t", records()) == 0
    frame = memoryview(peer.read_frame())
    answer = codec.decode_at(FetchResponse, 13, frame, 5)[0]
    assert named(answer) == order
    session_id = answer.session_id
    following = peer.ask(request(session_id=session_id, session_epoch=1, wait_ms=0), 13)
    assert [name for name in named(following) if name[1] or name[0] == UNHEARD_OF] == order[2:]
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)
    grow = CreatePartitionsRequest(topics=[grown], timeout_ms=5000, validate_only=False)
    assert other.ask(grow, 3).results[0].error_code == 0
    assert produce(other, "t", records(), partition=1) == 0
    assert produce(other, "t", records()) == 0
    assert produce(other, "u", records()) == 0
    last = peer.ask(request(session_id=session_id, session_epoch=2, wait_ms=0), 13)
    served = [(first, 0), (second, 0), (first, 1)]
    if waits:  # what had records in the response before comes last
        served.append(served.pop(0))
    assert [name for name in named(last) if name[0] != UNHEARD_OF] == served
    peer.close()
    other.close()


def fail_directory(node: Node) -> None:
    logs = node.broker.logs
    log_dir = logs.log_dir_of(TopicPartition("t", 0))
    assert log_dir is not None
    logs.fail(log_dir, OSError(errno.EIO, "simulated"))


def two_directories(path: Path) -> Cluster:
    """Return a node whose topic t lies in another directory than its metadata."""
    return Cluster(data_dir=f"{path}/a,{path}/b")


def test_a_failed_directory_is_told_in_a_session_and_to_who_waits(tmp_path: Path) -> None:
    """Also at the end of the partition, where an incremental answer had nothing to say before."""
    with two_directories(tmp_path) as cluster:
        create(cluster, "first")
        topic_id = create(cluster, "t")
        peer, waiting = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        assert produce(peer, "t", records()) == 0
        wanted = (topic_id, 0, 1)
        session_id = peer.ask(request(wanted, wait_ms=0, session_epoch=0), 13).session_id
        send(waiting, request(wanted))
        assert peer.is_served()
        cluster.run(fail_directory)
        following = request(session_id=session_id, session_epoch=1)
        assert codes(peer.ask(following, 13)) == [56]
        assert waiting.read_frame()
        one = Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MUCH)
        topics = [Topic(topic="t", partitions=[one])]
        by_name = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
        assert [codes(peer.ask(by_name, version)) for version in (4, 5, 6)] == [[6], [6], [56]]
        peer.close()
        waiting.close()


def test_a_fetch_that_fails_when_it_is_woken_harms_no_producer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own client is told; the append that woke it is answered as ever."""
    topic_id = create(cluster, "t")
    peer, waiting = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
    send(waiting, request((topic_id, 0, 0), min_bytes=5000))
    assert peer.is_served()

    def no_descriptor(*_: Any) -> bool:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(RealFile, "is_cached", no_descriptor)
    assert produce(peer, "t", records(20_000)) == 0
    assert waiting.read_frame()
    assert codes(peer.ask(request((topic_id, 0, 0), wait_ms=0), 13)) == [56]
    monkeypatch.setattr("ottla.server.fetch.read.FetchRead.run_again", no_descriptor)
    send(waiting, request((topic_id, 0, 1), min_bytes=50_000))
    assert peer.is_served()
    assert produce(peer, "t", records(90_000)) == 0
    assert waiting.read_frame()
    peer.close()
    waiting.close()


def test_a_wait_that_its_session_has_overtaken_gets_no_data(cluster: Cluster) -> None:
    """Another connection went on with the session: 71, and not the other request's partitions."""
    first, second = create(cluster, "t"), create(cluster, "u")
    peer, other = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
    session_id = peer.ask(request((first, 0, 0), wait_ms=0, session_epoch=0), 13).session_id
    send(peer, request(session_id=session_id, session_epoch=1))
    assert other.is_served()
    forgotten = FetchRequest.ForgottenTopic(topic_id=first, partitions=[0])
    following = request(
        (second, 0, 0),
        wait_ms=0,
        session_id=session_id,
        session_epoch=2,
        forgotten_topics_data=[forgotten],
    )
    assert other.ask(following, 13).error_code == 0
    assert produce(other, "t", records()) == 0
    frame = peer.read_frame()
    assert int.from_bytes(frame[9:11], "big") == 71  # behind correlation id, tags and throttling
    peer.close()
    other.close()


def test_a_fenced_client_is_told_who_leads(tmp_path: Path) -> None:
    """From version 16 on with its address (KIP-951)."""
    with Cluster(data_dir=str(tmp_path)) as cluster:
        topic_id = create(cluster, "t")
    with Cluster(data_dir=str(tmp_path)) as cluster:
        peer = Peer(cluster.bootstrap)
        epoch = cluster.run(lambda node: node.broker.replicas.get("t", 0).leader_epoch)
        assert epoch > 0
        wanted = request((topic_id, 0, 0), wait_ms=0)
        wanted.topics[0].partitions[0].current_leader_epoch = 0
        told = {version: peer.ask(wanted, version) for version in (13, 16, 18)}
        assert [codes(answer) for answer in told.values()] == [[74]] * 3
        leaders = [answer.responses[0].partitions[0].current_leader for answer in told.values()]
        assert [one.leader_id for one in leaders] == [-1, 1, 1]
        assert leaders[1].leader_epoch == epoch
        port = int(cluster.bootstrap.rpartition(":")[2])
        assert [one.port for one in told[18].node_endpoints] == [port]
        assert not told[13].node_endpoints
        peer.close()


def test_a_debugging_replica_is_fenced_as_well(cluster: Cluster) -> None:
    """ListOffsets of replica -2 leaves out who leads, not under which epoch."""
    create(cluster, "t")
    peer = Peer(cluster.bootstrap)
    wanted = ListOffsetsRequest.ListOffsetsTopic
    one = wanted.ListOffsetsPartition(partition_index=0, current_leader_epoch=99, timestamp=-1)
    topics = [wanted(name="t", partitions=[one])]
    for replica_id in (-1, -2):
        asked = ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=topics)
        assert codes(_Listed(peer.ask(asked, 7))) == [75]
    peer.close()


def test_only_consumers_are_told_what_is_committed(cluster: Cluster) -> None:
    """ListOffsets of any other replica id, also of -2, has the end of the log."""
    create(cluster, "t")

    def append(node: Node) -> None:
        partition = node.broker.replicas.get("t", 0)
        now_ms = node.broker.clock.now_ms()
        batch = memoryview(encode_batch([(now_ms, None, b"v", ())]))
        partition.log.writes.append_as_leader(batch, partition.leader_epoch, now_ms)

    cluster.run(append)
    peer = Peer(cluster.bootstrap)
    topic = ListOffsetsRequest.ListOffsetsTopic
    latest = topic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [topic(name="t", partitions=[latest])]
    ends = {
        replica_id: peer.ask(ListOffsetsRequest(replica_id=replica_id, topics=topics), 7)
        .topics[0]
        .partitions[0]
        .offset
        for replica_id in (-1, -2, -3, 1)
    }
    assert ends == {-1: 0, -2: 1, -3: 1, 1: 1}
    peer.close()


class _Listed:
    """ListOffsets' answer with the field names of Fetch's."""

    def __init__(self, answer: Any) -> None:
        self.responses = answer.topics


class _Ear:
    """Stands in for a connection."""

    peer_host, listener_name, connection_id = "127.0.0.1", "PLAINTEXT", "1"
    is_closed = is_in_login = False
    principal = ANONYMOUS

    def respond(self, items: Any) -> None:
        assert items


@pytest.mark.parametrize("client_id", ["free", "limited"])
def test_errors_are_counted_for_every_client(cluster: Cluster, client_id: str) -> None:
    """Whether a quota concerns it or not, and its requests too."""

    def ask(node: Node) -> tuple[int, int]:
        entity = (("client-id", "limited"),)
        node.broker.quotas.update({entity: {"consumer_byte_rate": 1e9}}, [entity])
        metrics = RequestMetrics()
        dispatcher = Dispatcher(node.broker, "broker", perf_counter, metrics.times)
        wanted = request(session_id=77, session_epoch=3)
        frame = joined(frames.encode_request(wanted, 13, 1, client_id))[4:]
        ear: Any = _Ear()
        dispatcher.handle_frame(ear, memoryview(bytearray(frame)))
        metrics.drain()
        return metrics.requests[1, 13], metrics.times.errors[1, 70]

    assert cluster.run(ask) == (1, 1)


def test_bytes_that_a_quota_withholds_are_not_counted_as_sent(cluster: Cluster) -> None:
    """A partition's bytes out are what clients got."""
    topic_id = create(cluster, "t")
    peer = Peer(cluster.bootstrap)
    for _ in range(4):
        assert produce(peer, "t", records(100_000)) == 0

    def limit(node: Node) -> None:
        entity = (("client-id", "test"),)
        node.broker.quotas.update({entity: {"consumer_byte_rate": 10_000.0}}, [entity])

    cluster.run(limit)
    got, throttled_ms = 0, 0
    while not throttled_ms:
        answer = peer.ask(request((topic_id, 0, 0), wait_ms=0), 13)
        throttled_ms = answer.throttle_time_ms
        got += sum(len(one.records) for topic in answer.responses for one in topic.partitions)
    assert cluster.run(lambda node: node.broker.replicas.get("t", 0).bytes_out) == got
    peer.close()


def test_a_partition_sent_twice_is_appended_once(cluster: Cluster) -> None:
    """The last batch of a request counts, as in Kafka, and is answered once."""
    create(cluster, "t")
    peer = Peer(cluster.bootstrap)
    data = ProduceRequest.TopicProduceData
    small, large = records(10), records(500)
    parts = [data.PartitionProduceData(index=0, records=one) for one in (small, large)]
    topics = [data(name="t", partition_data=parts), data(name="t", partition_data=parts[:1])]
    answer = peer.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 9)
    (told,) = answer.responses
    assert [(one.error_code, one.base_offset) for one in told.partition_responses] == [(0, 0)]
    log_bytes = cluster.run(lambda node: node.broker.replicas.get("t", 0).log.size_bytes)
    assert log_bytes == len(small)
    peer.close()


def test_a_negative_limit_ends_with_the_first_partition_that_is_read(cluster: Cluster) -> None:
    """Kafka fails on the first one's data, and goes on with a limit of zero bytes."""
    ids = [create(cluster, name) for name in ("t", "u", "v")]
    peer = Peer(cluster.bootstrap)
    for name in ("t", "u", "v"):
        assert produce(peer, name, records()) == 0
    wanted = [(topic_id, 0, 0) for topic_id in ids]
    answer = peer.ask(request(*wanted, wait_ms=0, max_bytes=-1), 13)
    parts = [one for topic in answer.responses for one in topic.partitions]
    assert [(one.error_code, bool(one.records)) for one in parts] == [
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (ErrorCode.NONE, True),
        (ErrorCode.NONE, False),
    ]
    peer.close()


def test_partitions_of_one_topic_are_answered_together(cluster: Cluster) -> None:
    """Also where another topic stands between them, as in Kafka."""
    create(cluster, "t")
    peer = Peer(cluster.bootstrap)
    data = ProduceRequest.TopicProduceData
    topics = [
        data(
            name=name,
            partition_data=[data.PartitionProduceData(index=index, records=records(10))],
        )
        for name, index in (("t", 0), ("absent", 0), ("t", 7))
    ]
    answer = peer.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 9)
    assert {
        topic.name: [(one.index, one.error_code) for one in topic.partition_responses]
        for topic in answer.responses
    } == {"t": [(0, 0), (7, 3)], "absent": [(0, 3)]}
    assert len(answer.responses) == 2
    peer.close()


@pytest.mark.parametrize("version", [6, 12])
def test_a_deletion_under_a_waiting_fetch_names_no_other_leader(
    cluster: Cluster, version: int
) -> None:
    """A partition of the topic that is still to be removed is read, or does not exist."""
    create(cluster, "gone")
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="gone", count=3, assignments=None)
    peer, other = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
    grown = peer.ask(
        CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=False), 3
    )
    assert grown.results[0].error_code == 0
    wait_for(lambda: cluster.run(lambda node: node.broker.replicas.find("gone", 2) is not None))
    partitions = [
        Topic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100)
        for index in (2, 0)
    ]
    topics = [Topic(topic="gone", partitions=partitions)]
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=MUCH, max_bytes=MUCH, session_epoch=-1, topics=topics
    )
    answers: list[Any] = []
    reader = Thread(target=lambda: answers.append(peer.ask(request, version)))
    reader.start()
    wait_for(lambda: cluster.run(lambda node: node.broker.delayed_fetches.delayed_count) > 0)
    other.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000), 5)
    reader.join()
    codes = {one.error_code for one in answers[0].responses[0].partitions}
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes
    assert codes <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
