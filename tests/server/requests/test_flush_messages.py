"""The answer to a producer comes after the flush that flush.messages asks for, never before."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.protocol.frames import encode_request
from ottla.server.system.files import RealFile
from ottla.testing.cluster import Cluster
from tests.controller.harness import topic
from tests.server.broker.test_disk_reserve import commit, committed, coordinated, delete_topic
from tests.server.requests.untrusted_clients import (
    PRODUCE_VERSION,
    Peer,
    Topic,
    create_topic,
    joined,
    produce,
)
from tests.server.system.test_disk_faults import batch, end_offset, fetch
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KAFKA_STORAGE_ERROR = 56


class HeldDisk:
    """Holds back the fsync of segments whose path contains a text, then lets it fail or go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = ""
        self.number = 0
        self.hangs = threading.Event()
        self.release = threading.Event()
        self.synced: list[str] = []
        sync = RealFile.sync

        def held(file: RealFile) -> None:
            path = file._prefix + file._path
            if self.text and self.text in path and path.endswith(".log"):
                self.hangs.set()
                assert self.release.wait(60)
                if self.number:
                    raise OSError(self.number, "simulated", path)
            sync(file)
            if path.endswith(".log"):
                self.synced.append(path)

        monkeypatch.setattr(RealFile, "sync", held)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldDisk]:
    """Give a disk that stalls when told, and lets go at the end whatever happened."""
    held = HeldDisk(monkeypatch)
    yield held
    held.release.set()


def make_topics(cluster: Cluster, *names: str) -> None:
    """Create topics that flush each record, and wait until their files are durable."""
    peer = Peer(cluster.bootstrap)
    wanted = [topic(name, 1, 1, flush_messages="1") for name in names]
    answer = peer.ask(CreateTopicsRequest(topics=wanted, timeout_ms=5000), 7)
    assert {one.error_code for one in answer.topics} == {0}
    peer.close()


def ask_produce(peer: Peer, *names: str, acks: int = -1) -> None:
    """Send one request for partition 0 of each topic, and do not wait for the answer."""
    topics = [
        Topic(name=name, partition_data=[Topic.PartitionProduceData(index=0, records=batch())])
        for name in names
    ]
    request = ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)
    peer.sock.sendall(joined(encode_request(request, PRODUCE_VERSION, 5, "test")))


def answered(peer: Peer) -> list[int]:
    """Wait for the answer to a produce and return its codes."""
    content = memoryview(peer.read_frame())
    answer: Any = codec.decode_at(response_class(ApiKey.PRODUCE), PRODUCE_VERSION, content, 5)[0]
    return [one.error_code for found in answer.responses for one in found.partition_responses]


def is_silent(peer: Peer) -> bool:
    """Whether no byte of an answer is there."""
    peer.sock.setblocking(False)
    try:
        peer.sock.recv(1)
    except BlockingIOError:
        return True
    finally:
        peer.sock.settimeout(WAIT_S)
    return False


def test_the_answer_comes_after_the_flush(disk: HeldDisk) -> None:
    """While a worker flushes, others are served and consumers see the record; then it is told."""
    with Cluster() as cluster:
        make_topics(cluster, "t")
        assert create_topic(cluster, "u") == [0]
        peer, witness = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        assert produce(peer, "t", batch()) == 0
        disk.text = f"{cluster.data_dir}/t-0/"
        ask_produce(peer, "t")
        assert disk.hangs.wait(WAIT_S)
        for _ in range(5):
            assert produce(witness, "u", batch()) == 0
            assert witness.is_served()
        assert end_offset(witness, "t") == 4
        assert fetch(witness, "t", 2)[1]
        assert is_silent(peer)
        disk.release.set()
        assert answered(peer) == [0]
        assert cluster.run(lambda node: node.broker.replicas.get("t", 0).log.recovery_point) == 4
        peer.close()
        witness.close()


def test_each_answered_record_was_synced(disk: HeldDisk) -> None:
    """No answer without an fsync of the segment before it."""
    with Cluster() as cluster:
        make_topics(cluster, "t")
        peer = Peer(cluster.bootstrap)
        for _ in range(5):
            before = len([path for path in disk.synced if "/t-0/" in path])
            assert produce(peer, "t", batch()) == 0
            assert len([path for path in disk.synced if "/t-0/" in path]) > before
        peer.close()


def test_many_clients_share_a_flush(disk: HeldDisk) -> None:
    """Ten that produce while one flush runs are answered by the next one."""
    with Cluster() as cluster:
        make_topics(cluster, "t")
        peers = [Peer(cluster.bootstrap) for _ in range(11)]
        assert produce(peers[0], "t", batch()) == 0
        disk.text = f"{cluster.data_dir}/t-0/"
        ask_produce(peers[0], "t")
        assert disk.hangs.wait(WAIT_S)
        disk.synced.clear()
        for peer in peers[1:]:
            ask_produce(peer, "t")
        witness = Peer(cluster.bootstrap)
        wait_for(lambda: end_offset(witness, "t") == 2 * 12)
        assert all(is_silent(peer) for peer in peers)
        disk.release.set()
        assert [answered(peer) for peer in peers] == [[0]] * 11
        assert len([path for path in disk.synced if disk.text in path]) == 2
        for peer in (*peers, witness):
            peer.close()


def test_one_request_waits_for_the_flushes_of_all_its_partitions(disk: HeldDisk) -> None:
    """Two that must be flushed and one that must not: answered together, in their order."""
    with Cluster() as cluster:
        make_topics(cluster, "t", "u")
        assert create_topic(cluster, "lazy") == [0]
        peer = Peer(cluster.bootstrap)
        for name in ("t", "u", "lazy"):
            assert produce(peer, name, batch()) == 0
        disk.text = f"{cluster.data_dir}/u-0/"
        ask_produce(peer, "t", "unknown", "u", "lazy")
        assert disk.hangs.wait(WAIT_S)
        wait_for(lambda: any("/t-0/" in path for path in disk.synced))
        witness = Peer(cluster.bootstrap)
        assert witness.is_served()
        assert is_silent(peer)
        disk.release.set()
        assert answered(peer) == [0, 3, 0, 0]
        peer.close()
        witness.close()


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_flush_that_fails_is_told(tmp_path: Path, disk: HeldDisk, acks: int) -> None:
    """56 for the partition on the disk that failed, 0 for the other; without acks a closed line."""
    with Cluster(data_dir=f"{tmp_path / 'a'},{tmp_path / 'b'}") as cluster:
        make_topics(cluster, "one", "two")
        on_b = "one" if (tmp_path / "b" / "one-0").exists() else "two"
        on_a = "two" if on_b == "one" else "one"
        peer, witness = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        assert {produce(peer, name, batch()) for name in (on_a, on_b)} == {0}
        disk.text, disk.number = str(tmp_path / "b"), errno.EIO
        disk.release.set()
        ask_produce(peer, on_a, on_b, acks=acks)
        if acks:
            assert answered(peer) == [0, KAFKA_STORAGE_ERROR]
        else:
            with pytest.raises(EOFError):
                peer.read_frame()
        assert produce(witness, on_b, batch()) == KAFKA_STORAGE_ERROR
        assert produce(witness, on_a, batch()) == 0
        online = cluster.run(lambda node: [one.is_online for one in node.broker.logs.directories])
        assert online == [True, False]
        peer.close()
        witness.close()


def test_without_acks_the_next_request_waits(disk: HeldDisk) -> None:
    """As in Kafka, where the thread that appends flushes: the connection is not heard before."""
    with Cluster() as cluster:
        make_topics(cluster, "t")
        peer, witness = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        assert produce(peer, "t", batch()) == 0
        disk.text = f"{cluster.data_dir}/t-0/"
        ask_produce(peer, "t", acks=0)
        ask_produce(peer, "t")
        assert disk.hangs.wait(WAIT_S)
        assert witness.is_served()
        assert end_offset(witness, "t") == 4
        disk.release.set()
        assert answered(peer) == [0]
        assert end_offset(witness, "t") == 6
        peer.close()
        witness.close()


def _roll(node: Any) -> None:
    node.broker.replicas.get("t", 0).log.roll(node.clock.now_ms())


def test_by_default_no_answer_waits(disk: HeldDisk) -> None:
    """With the disk stalled for good, producers are answered unless a topic asks for flushes."""
    with Cluster() as cluster:
        assert create_topic(cluster, "t") == [0]
        peer = Peer(cluster.bootstrap)
        disk.text = f"{cluster.data_dir}/t-0/"
        assert produce(peer, "t", batch()) == 0
        cluster.run(_roll)  # what is rolled is flushed
        assert disk.hangs.wait(WAIT_S)
        assert {produce(peer, "t", batch()) for _ in range(5)} == {0}
        disk.release.set()
        peer.close()


def test_a_topic_deleted_meanwhile(disk: HeldDisk) -> None:
    """Its producer is told that there is no such topic, without a wait for the disk."""
    with Cluster() as cluster:
        make_topics(cluster, "t")
        peer, witness = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        assert produce(peer, "t", batch()) == 0
        disk.text = f"{cluster.data_dir}/t-0/"
        ask_produce(peer, "t")
        assert disk.hangs.wait(WAIT_S)
        assert delete_topic(witness, "t") == 0
        assert answered(peer) == [3]
        disk.release.set()
        peer.close()
        witness.close()


def test_a_clients_quota_changes_nothing_about_it(disk: HeldDisk) -> None:
    """A node that measures its clients answers after the flush as well."""
    with Cluster(config={"log.flush.interval.messages": "1"}) as cluster:
        assert create_topic(cluster, "t") == [0]
        peer, witness = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        assert produce(peer, "t", batch()) == 0
        cluster.run(_measure_everybody)
        disk.text = f"{cluster.data_dir}/t-0/"
        ask_produce(peer, "t")
        assert disk.hangs.wait(WAIT_S)
        assert witness.is_served()
        assert is_silent(peer)
        disk.release.set()
        assert answered(peer) == [0]
        peer.close()
        witness.close()


def _measure_everybody(node: Any) -> None:
    quota = {(("client-id", None),): {"producer_byte_rate": 1e12}}
    node.broker.quotas.update(quota, set(quota))
    assert node.broker.quotas.concerns("ANONYMOUS", "test")


def test_offsets_are_committed_after_the_flush(disk: HeldDisk) -> None:
    """A broker that flushes each record tells a group nothing that a power cut could take back."""
    with Cluster(config={"log.flush.interval.messages": "1"}) as cluster:
        assert create_topic(cluster, "t") == [0]
        peer, witness = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        wait_for(lambda: coordinated(peer))
        disk.text = f"{cluster.data_dir}/__consumer_offsets-"
        asking = threading.Thread(target=lambda: codes.append(commit(peer, 7)))
        codes: list[int] = []
        asking.start()
        assert disk.hangs.wait(WAIT_S)
        assert witness.is_served()
        assert not codes
        disk.release.set()
        asking.join(WAIT_S)
        assert codes == [0]
        assert committed(witness) == 7
        peer.close()
        witness.close()
