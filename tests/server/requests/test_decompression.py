"""Large compressed batches: workers check them within limits, and the loop serves the others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import cramjam
import pytest

from ottla.config.own import LimitSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import frames
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.protocol.codec import decode_at
from ottla.protocol.frames import ResponseHeader
from ottla.records import large_batches
from ottla.records.batch import RecordBatch
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression
from ottla.records.validation_rules import OffloadRequired, ValidationRules
from ottla.server.requests import decompression
from ottla.server.requests.decompression import Decompression
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import (
    PRODUCE_VERSION,
    Peer,
    Topic,
    create_topic,
    joined,
    produce,
)
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.records.validation_rules import CheckedBatch

CODECS = [codec for codec in Compression if codec]
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start a node with larger batches than by default and a small limit of decompressed bytes."""
    settings = {"message.max.bytes": "8000000", "decompressed.max.bytes": str(24 << 20)}
    with Cluster(config=settings) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """Give a topic of its own to each test."""
    name = "".join(c if c.isalnum() else "." for c in request.node.name)
    assert create_topic(cluster, name) == [0]
    return name


@pytest.fixture
def peer(cluster: Cluster) -> Iterator[Peer]:
    """Give a connection."""
    one = Peer(cluster.bootstrap)
    yield one
    one.close()


class Gate:
    """Holds the workers until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.threads: set[str] = set()
        check = large_batches.check_large_batch

        def held(*arguments: Any, **named: Any) -> CheckedBatch:
            self.threads.add(threading.current_thread().name)
            self.reached.set()
            assert self.opened.wait(WAIT_S)
            return check(*arguments, **named)

        monkeypatch.setattr(large_batches, "check_large_batch", held)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Give a gate that is open at last, whatever happens."""
    one = Gate(monkeypatch)
    yield one
    one.opened.set()


def large(codec: Compression = Compression.ZSTD, size: int = 3 << 20, mark: bytes = b"x") -> bytes:
    """Return a batch of three records, too much for the loop once it is plain."""
    now_ms = int(time.time() * 1000)
    rows = [(now_ms, b"%d" % index, mark * (size // 3), ()) for index in range(3)]
    return bytes(encode_batch(rows, compression=codec))


def small() -> bytes:
    """Return a batch of one record."""
    return bytes(encode_batch([(int(time.time() * 1000), b"k", b"small", ())]))


def request_for(*parts: tuple[str, bytes], acks: int = -1) -> ProduceRequest:
    """Return a request for partition 0 of some topics."""
    data = [
        Topic(name=name, partition_data=[Topic.PartitionProduceData(index=0, records=records)])
        for name, records in parts
    ]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=data)


def send(peer: Peer, request: ProduceRequest) -> None:
    """Send a request and do not wait."""
    peer.sock.sendall(joined(frames.encode_request(request, PRODUCE_VERSION, 5, "test")))


def values(peer: Peer, topic: str) -> list[tuple[int, bytes]]:
    """Return offset and value, shortened, of all records."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 28,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchTopic.FetchPartition(
                        partition=0, fetch_offset=0, partition_max_bytes=1 << 28
                    )
                ],
            )
        ],
    )
    data = peer.ask(request, 11).responses[0].partitions[0].records
    return [
        (record.offset, bytes(record.value or b"")[:5])
        for batch in iterate_batches(data)
        for record in batch.records()
    ]


def test_others_are_answered_while_a_batch_is_checked(
    cluster: Cluster, topic: str, peer: Peer, gate: Gate
) -> None:
    """The worker is held: other connections produce to the same partition all the same."""
    send(peer, request_for((topic, large())))
    assert gate.reached.wait(WAIT_S)
    witness = Peer(cluster.bootstrap)
    assert produce(witness, topic, small()) == 0
    assert witness.is_served()
    gate.opened.set()
    peer.read_frame()
    assert values(witness, topic) == [(0, b"small"), *((n, b"xxxxx") for n in (1, 2, 3))]
    assert all(name.startswith("ottla-worker") for name in gate.threads)


def test_one_connections_requests_stay_in_order(
    cluster: Cluster, topic: str, peer: Peer, gate: Gate
) -> None:
    """What the same connection sends behind the large batch is appended behind it."""
    send(peer, request_for((topic, large())))
    send(peer, request_for((topic, small())))
    assert gate.reached.wait(WAIT_S)
    witness = Peer(cluster.bootstrap)
    assert values(witness, topic) == []
    gate.opened.set()
    peer.read_frame()
    peer.read_frame()
    assert values(witness, topic) == [*((n, b"xxxxx") for n in range(3)), (3, b"small")]


@pytest.mark.parametrize("codec", list(Compression))
def test_all_codecs_come_through(topic: str, peer: Peer, gate: Gate, codec: Compression) -> None:
    """A large batch of every codec, and a plain one, is appended as it was sent."""
    gate.opened.set()
    assert produce(peer, topic, large(codec)) == 0
    assert gate.threads
    assert values(peer, topic) == [(n, b"xxxxx") for n in range(3)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(topic: str, peer: Peer, codec: Compression) -> None:
    """More plain bytes than the node allows are INVALID_RECORD; the connection goes on."""
    bomb = large(codec, 30 << 20, b"\0")
    assert produce(peer, topic, bomb) == ErrorCode.INVALID_RECORD
    assert produce(peer, topic, small()) == 0
    assert values(peer, topic) == [(0, b"small")]


def test_a_topic_deleted_meanwhile_is_unknown(
    cluster: Cluster, topic: str, peer: Peer, gate: Gate
) -> None:
    """Nothing is appended to it, not even when another topic has taken its name."""
    send(peer, request_for((topic, large())))
    assert gate.reached.wait(WAIT_S)
    other = Peer(cluster.bootstrap)
    answer = other.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=9000), 5)
    assert answer.responses[0].error_code == 0
    assert create_topic(cluster, topic) == [0]
    gate.opened.set()
    answer = produce_answer(peer)
    assert answer.responses[0].partition_responses[0].error_code == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert values(other, topic) == []


def produce_answer(peer: Peer) -> Any:
    """Read the answer to a request that was only sent."""
    frame = memoryview(peer.read_frame())
    _, position = decode_at(ResponseHeader, 1, frame)
    return decode_at(ProduceResponse, PRODUCE_VERSION, frame, position)[0]


def test_one_answer_for_all_partitions(
    cluster: Cluster, topic: str, peer: Peer, gate: Gate
) -> None:
    """What can be appended at once is; the answer waits for the rest and keeps its order."""
    other_topic = f"{topic}.other"
    assert create_topic(cluster, other_topic) == [0]
    send(peer, request_for((topic, large()), (other_topic, small()), ("nowhere", small())))
    assert gate.reached.wait(WAIT_S)
    witness = Peer(cluster.bootstrap)
    assert values(witness, other_topic) == [(0, b"small")]
    gate.opened.set()
    answer = produce_answer(peer)
    assert [one.name for one in answer.responses] == [topic, other_topic, "nowhere"]
    found = [one.partition_responses[0] for one in answer.responses]
    assert [one.error_code for one in found] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [one.base_offset for one in found] == [0, 0, -1]


def test_without_an_answer(cluster: Cluster, topic: str, peer: Peer) -> None:
    """With acks=0 a good batch is appended, a bad one closes the connection."""
    send(peer, request_for((topic, large()), acks=0))
    assert peer.is_served()
    assert len(values(peer, topic)) == 3
    bomb = joined(
        frames.encode_request(
            request_for((topic, large(size=30 << 20)), acks=0), PRODUCE_VERSION, 5, "test"
        )
    )
    assert peer.is_closed_after(bomb)
    assert Peer(cluster.bootstrap).is_served()


def test_a_client_that_leaves_is_no_error(
    cluster: Cluster, topic: str, peer: Peer, gate: Gate
) -> None:
    """Its batch was complete when it came: it is appended as in Kafka, without a response."""
    send(peer, request_for((topic, large()), acks=1))
    assert gate.reached.wait(WAIT_S)
    peer.close()
    gate.opened.set()
    witness = Peer(cluster.bootstrap)
    wait_for(lambda: values(witness, topic))
    assert len(values(witness, topic)) == 3


class Workshop:
    """Workers that begin when they are told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any, Exception | None], None]]] = []

    def run(self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        """Note the job."""
        self.jobs.append((job, done))

    def work(self) -> None:
        """Do the oldest job."""
        job, done = self.jobs.pop(0)
        try:
            result = job()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)


def make(shop: Workshop, cpu_s: Callable[[], float] = lambda: 0.0, **texts: str) -> Decompression:
    """Return one with limits of 10 MiB of output and 16 MiB of memory by default."""
    given = {
        "decompressed.max.bytes": str(10 << 20),
        "decompression.memory.bytes": str(16 << 20),
        **{name.replace("_", "."): text for name, text in texts.items()},
    }
    return Decompression(
        LimitSettings(LimitSettings.definitions.read(given).values, given), shop.run, cpu_s
    )


def oversized(size: int = 3 << 20) -> OffloadRequired:
    """Return what the validator raises."""
    rules = ValidationRules(topic_partition="t-0")
    return OffloadRequired(memoryview(bytearray(large(size=size))), rules)


def with_window(size: int) -> OffloadRequired:
    """Return a batch whose only block of snappy takes that many bytes."""
    raw = bytes(cramjam.snappy.compress_raw(bytes(size)))
    header = encode_batch([(NOW_MS, b"k", b"v", ())], compression=Compression.SNAPPY)[:61]
    return OffloadRequired(memoryview(header + raw), ValidationRules(topic_partition="t-0"))


def test_others_wait_while_the_memory_is_used() -> None:
    """Two batches of 5 MiB and 2 of overhead run in 16 MiB; the third begins when one is done."""
    shop = Workshop()
    checks = make(shop)
    answers = [checks.check(with_window(5 << 20), now_ms=NOW_MS, client="c") for _ in range(3)]
    assert (checks.running_count, checks.waiting_count, len(shop.jobs)) == (2, 1, 2)
    shop.work()
    assert [one.done for one in answers] == [True, False, False]
    assert (checks.running_count, checks.waiting_count) == (2, 0)
    shop.work()
    shop.work()
    assert all(one.done for one in answers)
    assert (checks.checked_count, checks.refused_count) == (3, 0)


def test_small_windows_run_together() -> None:
    """Memory is counted by what the codec keeps, not by what the records take."""
    shop = Workshop()
    checks = make(shop)
    for _ in range(4):
        checks.check(oversized(9 << 20), now_ms=NOW_MS, client="c")
    assert checks.running_count >= 3


def test_recompression_counts_its_compressor() -> None:
    """A topic with another codec takes more memory."""
    rules = ValidationRules(compression_type=Compression.GZIP)
    view = oversized().view
    limits = large_batches.DecompressionLimits(1 << 24, 1000)
    kept, changed = (
        large_batches.memory_bytes(OffloadRequired(view, one), limits)
        for one in (ValidationRules(), rules)
    )
    assert changed == kept + (8 << 20)


def test_a_window_beyond_half_of_the_memory_is_refused() -> None:
    """So that two batches can always be checked at once."""
    shop = Workshop()
    checks = make(shop)
    pending = checks.check(with_window(9 << 20), now_ms=NOW_MS, client="c")
    shop.work()
    assert isinstance(pending.error, KafkaError)
    assert pending.error.code is ErrorCode.INVALID_RECORD
    assert checks.refused_count == 1


def test_both_limits_refuse_and_count() -> None:
    """Too many bytes and too much time are INVALID_RECORD."""
    shop = Workshop()
    decompression_queue = make(shop)
    pending = decompression_queue.check(oversized(11 << 20), now_ms=NOW_MS, client="c")
    shop.work()
    assert isinstance(pending.error, KafkaError)
    assert pending.error.code is ErrorCode.INVALID_RECORD
    ticks = iter(range(1000))
    slow = make(shop, cpu_s=lambda: next(ticks) / 10, decompression_max_cpu_ms="50")
    pending = slow.check(oversized(), now_ms=NOW_MS, client="c")
    shop.work()
    assert isinstance(pending.error, KafkaError)
    assert pending.error.code is ErrorCode.INVALID_RECORD
    assert "50 ms" in str(pending.error)
    assert (decompression_queue.refused_count, slow.refused_count) == (1, 1)


def test_too_many_that_wait_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches themselves take memory while they wait: bounded, and clients try again."""
    shop = Workshop()
    decompression_queue = make(shop)
    batch = with_window(5 << 20)
    monkeypatch.setattr(decompression, "MAX_WAITING_BYTES", len(batch.view) + 1)
    answers = [decompression_queue.check(batch, now_ms=NOW_MS, client="c") for _ in range(4)]
    error = answers[-1].error
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert error.is_retriable
    assert [one.done for one in answers] == [False, False, False, True]


def test_nothing_comes_back_after_the_end() -> None:
    """A node that stops appends nothing any more, and takes nothing new."""
    shop = Workshop()
    decompression_queue = make(shop)
    pending = decompression_queue.check(oversized(), now_ms=NOW_MS, client="c")
    decompression_queue.close()
    shop.work()
    assert not pending.done
    assert decompression_queue.check(oversized(), now_ms=NOW_MS, client="c").error is not None


def test_what_is_checked_is_not_decompressed_again() -> None:
    """The batch comes back whole: the loop only gives it a place."""
    shop = Workshop()
    batch = oversized()
    pending = make(shop).check(batch, now_ms=NOW_MS, client="c")
    shop.work()
    assert pending.value.view is batch.view
    assert RecordBatch(pending.value.view).record_count == 3
