"""Bad bytes of every kind against a live node: it refuses them and serves the others."""

from __future__ import annotations

import gzip
import struct
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from ottla.errors import ErrorCode
from ottla.protocol import frames
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.codec import decode_at
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.records.crc32c import crc32c
from ottla.testing.cluster import Cluster
from ottla.types import Uuid
from tests.server.requests.untrusted_clients import Peer, create_topic, joined, produce
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.server.node.node import Node

TOPIC = "untrusted.here"
RECORDS = [(1_700_000_000_000, b"k", b"value", ())]
TLS_HELLO = bytes.fromhex("160301020001000" + "1fc0303") + bytes(400)
METADATA = joined(frames.encode_request(MetadataRequest(topics=[]), 12, 1, "test"))


def now_batch(**settings: int) -> bytearray:
    """Return a batch of one record of this moment."""
    return encode_batch([(int(time.time() * 1000), b"k", b"value", ())], **settings)  # type: ignore[arg-type] # settings are numbers


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Give a node with one topic."""
    with Cluster() as running:
        assert create_topic(running, TOPIC) == [0]
        yield running


@pytest.fixture
def witness(cluster: Cluster) -> Iterator[Peer]:
    """Give a connection that is served before and after each test."""
    peer = Peer(cluster.bootstrap)
    assert peer.is_served()
    yield peer
    assert peer.is_served()
    peer.close()


@pytest.fixture
def peer(cluster: Cluster, witness: Peer) -> Iterator[Peer]:
    """Give a connection to misbehave on."""
    client = Peer(cluster.bootstrap)
    yield client
    client.close()


def header(key: int, version: int, client: bytes = b"\0\1c") -> bytes:
    """Return a request header with nothing after it."""
    return struct.pack(">hhi", key, version, 1) + client


def sized(body: bytes) -> bytes:
    """Return a frame."""
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -5), id="negative size"),
        pytest.param(struct.pack(">i", 0), id="size zero"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="largest size"),
        pytest.param(struct.pack(">i", (100 << 20) + 1), id="one byte over the limit"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(TLS_HELLO, id="TLS"),
        pytest.param(sized(b"\0"), id="one byte"),
        pytest.param(sized(header(3, 12)[:9]), id="half a header"),
        pytest.param(sized(header(3, 12, b"\x7f\xff")), id="a client id beyond the frame"),
        pytest.param(sized(header(999, 0)), id="an unknown key"),
        pytest.param(sized(header(-1, 0)), id="a negative key"),
        pytest.param(sized(header(4, 0)), id="a removed key"),
        pytest.param(sized(header(3, 99) + b"\0\0"), id="Metadata v99"),
        pytest.param(sized(header(3, -1)), id="a negative version"),
        pytest.param(sized(header(52, 0) + b"\0\0"), id="a key of controllers"),
        pytest.param(sized(header(3, 1) + b"\x7f\xff\xff\xff"), id="an array of 2^31-1"),
        pytest.param(sized(header(20, 1) + b"\x80\0\0\0\0\0\0\1"), id="an array of -2^31"),
        pytest.param(
            sized(header(3, 12) + b"\0\xff\xff\xff\xff\x0f"), id="a compact array of 2^32"
        ),
        pytest.param(sized(header(3, 12) + b"\0" + b"\xff" * 20), id="a varint without end"),
        pytest.param(sized(METADATA[4:-3]), id="a body that is cut"),
    ],
)
def test_nonsense_is_closed_without_an_answer(peer: Peer, data: bytes) -> None:
    """As Kafka 4.3.0 does, measured on a live one."""
    assert peer.is_closed_after(data)


def _unfinished_frames(node: Node) -> int:
    connections = [one for listener in node._listeners.open for one in listener.connections]
    return sum(one._reader.is_inside_frame for one in connections)


def test_a_large_announcement_takes_no_memory_and_ends_in_time(
    cluster: Cluster, witness: Peer
) -> None:
    """A hundred times 100 MiB announced, two bytes sent: nothing allocated, closed at 30 s."""
    before = psutil.Process().memory_info().rss
    begun_ms = cluster.run(lambda node: node.clock.monotonic_ms())
    clients = [Peer(cluster.bootstrap) for _ in range(100)]
    for client in clients:
        client.sock.sendall(struct.pack(">i", 100 << 20) + b"ab")
    assert witness.is_served()
    wait_for(lambda: cluster.run(_unfinished_frames) >= 100)
    assert psutil.Process().memory_info().rss - before < 40 << 20

    def swept(after_ms: int) -> int:
        def sweep(node: object) -> int:
            return sum(one.sweep(begun_ms + after_ms, 600_000) for one in node._listeners.open)  # type: ignore[attr-defined] # a Node

        return cluster.run(sweep)

    assert swept(0) == 0
    assert swept(29_000) == 0
    elapsed_ms = cluster.run(lambda node: node.clock.monotonic_ms()) - begun_ms
    assert swept(elapsed_ms + 36_000) == 100
    for client in clients:
        assert client.sock.recv(1) == b""
        client.close()


def test_the_nodes_own_sweep_closes_a_silent_connection() -> None:
    """connections.max.idle.ms is applied periodically."""
    with Cluster(config={"connections.max.idle.ms": "400"}) as cluster:

        def is_served_and_closed() -> bool:
            peer = Peer(cluster.bootstrap)
            try:
                return peer.is_served() and peer.sock.recv(1) == b""
            except (EOFError, ConnectionError):  # a busy machine asked later than that
                return False

        wait_for(is_served_and_closed)


def test_max_connections_per_ip_is_kept() -> None:
    """The connection too many is closed; the others are served."""
    with Cluster(config={"max.connections.per.ip": "2"}) as cluster:
        peers = [Peer(cluster.bootstrap) for _ in range(2)]
        assert all(peer.is_served() for peer in peers)
        assert Peer(cluster.bootstrap).is_closed_after(b"")
        assert all(peer.is_served() for peer in peers)
        peers.pop().close()
        wait_for(lambda: not Peer(cluster.bootstrap).is_closed_after(METADATA))
        peers.pop().close()


def test_an_ipv4_address_is_the_same_on_a_listener_of_both_kinds() -> None:
    """An IPv6 socket shows it as ::ffff:127.0.0.1: the limits of 127.0.0.1 did not hold there."""
    config = {
        "listeners": "PLAINTEXT://[::]:0,CONTROLLER://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
        "max.connections.per.ip.overrides": "127.0.0.1:1",
    }
    with Cluster(config=config) as cluster:
        peer = Peer(cluster.bootstrap)
        assert peer.is_served()
        assert Peer(cluster.bootstrap).is_closed_after(b"")
        hosts = cluster.run(
            lambda node: [one.peer_host for one in node._listeners.open[0].connections]
        )
        assert hosts == ["127.0.0.1"]


def test_a_too_new_api_versions_is_answered_in_version_zero(peer: Peer) -> None:
    """UNSUPPORTED_VERSION with the versions there are, and the connection stays."""
    peer.sock.sendall(sized(header(18, 99) + b"\0"))
    answer = memoryview(peer.read_frame())
    response, _ = decode_at(ApiVersionsResponse, 0, answer, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [key.api_key for key in response.api_keys] == [18]
    assert peer.is_served()


def test_api_versions_with_an_illegal_software_name_is_refused(peer: Peer) -> None:
    """INVALID_REQUEST, and the connection stays."""
    request = ApiVersionsRequest(client_software_name="a b\n", client_software_version="1")
    assert peer.ask(request, 4).error_code == ErrorCode.INVALID_REQUEST
    assert peer.is_served()


def test_a_frame_may_come_byte_by_byte(peer: Peer) -> None:
    """A slow sender within the limits is served like any other."""
    for place in range(len(METADATA)):
        peer.sock.sendall(METADATA[place : place + 1])
    assert peer.read_frame()[:4] == b"\0\0\0\1"


def broken_crc() -> bytes:
    """Return a batch with a flipped bit."""
    batch = now_batch()
    batch[-1] ^= 1
    return bytes(batch)


def with_crc(batch: bytearray) -> bytes:
    """Return the batch with a checksum that is right for its bytes."""
    batch[17:21] = struct.pack(">I", crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def lying_count(count: int) -> bytes:
    """Return a batch that says to hold so many records."""
    batch = now_batch()
    batch[23:27] = struct.pack(">i", count - 1)
    batch[57:61] = struct.pack(">i", count)
    return with_crc(batch)


def endless_varint() -> bytes:
    """Return a batch whose record's length never ends."""
    batch = now_batch()
    batch[61:66] = b"\xff" * 5
    return with_crc(batch)


def bomb(codec: Compression) -> bytes:
    """Return a small batch that unpacks to 100 MiB."""
    inner = bytearray(encode_batch([(1, None, b"x", ())]))
    if codec is Compression.GZIP:
        packed = gzip.compress(bytes(100 << 20), 9)
    else:
        import cramjam

        packed = bytes(cramjam.zstd.compress(bytes(100 << 20), 3))
    inner[61:] = packed
    inner[21:23] = struct.pack(">h", int(codec))
    inner[8:12] = struct.pack(">i", len(inner) - 12)
    return with_crc(inner)


@pytest.mark.parametrize(
    ("records", "codes"),
    [
        pytest.param(broken_crc(), {2}, id="bad CRC"),
        pytest.param(b"", {87, 2}, id="no records"),
        pytest.param(bytes(now_batch()[:-3]), {2, 87}, id="cut batch"),
        pytest.param(bytes(now_batch()[:30]), {2, 87}, id="half a header"),
        pytest.param(lying_count(2**31 - 1), {2, 87}, id="2^31-1 records"),
        pytest.param(lying_count(-1), {2, 87}, id="minus one record"),
        pytest.param(lying_count(0), {2, 87}, id="no record counted"),
        pytest.param(endless_varint(), {2, 87}, id="a varint without end"),
        pytest.param(bytes(now_batch()) * 2, {87}, id="two batches"),
        pytest.param(with_crc(now_batch()[:61]), {2, 87}, id="a header alone"),
    ],
)
def test_bad_records_are_refused_with_their_code(
    peer: Peer, records: bytes, codes: set[int]
) -> None:
    """CORRUPT_MESSAGE or INVALID_RECORD; the connection stays and the log takes the next batch."""
    assert produce(peer, TOPIC, records) in codes
    assert produce(peer, TOPIC, bytes(now_batch())) == 0


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_a_decompression_bomb_costs_bounded_memory(peer: Peer, codec: Compression) -> None:
    """100 MiB in a small batch are given up at the limit and refused."""
    packed = bomb(codec)
    assert len(packed) < 1 << 20
    assert produce(peer, TOPIC, packed) in {2, 87}
    assert peer.is_served()


def test_a_batch_over_max_message_bytes_is_refused(peer: Peer) -> None:
    """MESSAGE_TOO_LARGE."""
    batch = encode_batch([(int(time.time() * 1000), None, bytes(1_100_000), ())])
    assert produce(peer, TOPIC, bytes(batch)) == ErrorCode.MESSAGE_TOO_LARGE


def test_wrong_sequences_are_refused(peer: Peer) -> None:
    """A gap is OUT_OF_ORDER, an old epoch is INVALID_PRODUCER_EPOCH, a repetition is answered."""
    first = bytes(now_batch(producer_id=77, producer_epoch=3, base_sequence=0))
    assert produce(peer, TOPIC, first) == 0
    assert produce(peer, TOPIC, first) == 0
    gap = now_batch(producer_id=77, producer_epoch=3, base_sequence=5)
    assert produce(peer, TOPIC, bytes(gap)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = now_batch(producer_id=77, producer_epoch=2, base_sequence=1)
    assert produce(peer, TOPIC, bytes(old)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(peer, "no-such-topic", first) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wrong = produce(peer, TOPIC, first, partition=-1)
    assert wrong == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_acks_that_do_not_exist_are_refused(peer: Peer) -> None:
    """INVALID_REQUIRED_ACKS, but a topic that does not exist is told first, as by Kafka."""
    batch = bytes(now_batch())
    assert produce(peer, TOPIC, batch, acks=5) == ErrorCode.INVALID_REQUIRED_ACKS
    missing = produce(peer, "no-such-topic", batch, acks=5)
    assert missing == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_that_does_not_fit_is_left_out(cluster: Cluster, peer: Peer) -> None:
    """Of two large batches under a small limit the first comes whole, the second not at all."""
    names = ("large.1", "large.2")
    assert create_topic(cluster, *names) == [0, 0]
    batch = bytes(encode_batch([(int(time.time() * 1000), None, bytes(5000), ())]))
    wanted = []
    for name in names:
        assert produce(peer, name, batch) == 0
        partition = FetchRequest.FetchTopic.FetchPartition(
            partition=0, fetch_offset=0, partition_max_bytes=1000
        )
        wanted.append(FetchRequest.FetchTopic(topic=name, partitions=[partition]))
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=wanted)
    answer = peer.ask(request, 12)
    sizes = [len(topic.partitions[0].records or b"") for topic in answer.responses]
    assert sizes == [len(batch), 0]


def test_an_unknown_topic_id_is_answered(peer: Peer) -> None:
    """UNKNOWN_TOPIC_ID for the partition; the session's error stays clear."""
    topic = FetchRequest.FetchTopic(
        topic_id=Uuid(b"0123456789abcdef"),
        partitions=[
            FetchRequest.FetchTopic.FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=1
            )
        ],
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
    answer = peer.ask(request, 17)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_illegal_names_and_collisions_are_refused(cluster: Cluster, witness: Peer) -> None:
    """INVALID_TOPIC for each of them; a dot and an underscore in one place collide."""
    names = ["", ".", "..", "a/b", "a b", "é", "x" * 250, "../../etc", "a\0b", "untrusted_here"]
    assert set(create_topic(cluster, *names)) == {int(ErrorCode.INVALID_TOPIC_EXCEPTION)}
    assert create_topic(cluster, "x" * 249) == [0]


def test_a_negative_number_of_partitions_makes_no_room_for_a_huge_one(peer: Peer) -> None:
    """Two topics whose numbers cancel each other out are refused before anything is placed."""
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
        )
        for name, count in (("huge", 2**31 - 1), ("negative", -(2**31)))
    ]
    answer = peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION
    assert peer.is_served()
