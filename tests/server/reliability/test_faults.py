"""What goes wrong below or around one live node: docs/reliability.md, bugs and faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.records.builder import encode_batch
from ottla.server.system.files import RealFile
from ottla.server.system.timers import SystemClock
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.controller.harness import topic
from tests.server.requests.untrusted_clients import Peer, create_topic, produce
from tests.soaks import with_soaks
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID = 56, 100, 103


def batch(now_ms: int | None = None) -> bytes:
    """Return a batch of one record of this moment, or another."""
    stamp = int(time.time() * 1000) if now_ms is None else now_ms
    return bytes(encode_batch([(stamp, b"k", b"v", ())]))


def topic_ids(peer: Peer, *names: str) -> list[Any]:
    """Return the ids of topics."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    answer = peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
    return [topic.topic_id for topic in answer.topics]


def fetch_by_id(peer: Peer, topic_id: Any, *, session_id: int = 0, session_epoch: int = -1) -> Any:
    """Fetch partition 0 from its start by topic id."""
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20
    )
    topics = [FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])]
    asked = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=topics,
        session_id=session_id,
        session_epoch=session_epoch,
    )
    return peer.ask(asked, 13)


def member(peer: Peer) -> tuple[str, int]:
    """Make a group of one; return member id and generation."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    asked = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined: list[Any] = []

    def is_in() -> bool:
        joined.append(peer.ask(asked, 3))
        return not joined[-1].error_code

    from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest

    peer.ask(FindCoordinatorRequest(key="g"), 3)
    wait_for(is_in)
    mine = joined[-1]
    share = SyncGroupRequest.SyncGroupRequestAssignment(member_id=mine.member_id, assignment=b"a")
    request = SyncGroupRequest(
        group_id="g",
        generation_id=mine.generation_id,
        member_id=mine.member_id,
        assignments=[share],
    )
    assert peer.ask(request, 3).error_code == 0
    return mine.member_id, mine.generation_id


def test_43_a_topic_made_again_under_its_name_is_another_one() -> None:
    """Fetches and sessions of the old id see nothing of the new topic's records."""
    from ottla.protocol.apis.delete_topics import DeleteTopicsRequest

    with Cluster() as cluster:
        assert create_topic(cluster, "t") == [0]
        peer = Peer(cluster.bootstrap)
        (old,) = topic_ids(peer, "t")
        assert produce(peer, "t", batch()) == 0
        session = fetch_by_id(peer, old, session_id=0, session_epoch=0).session_id
        assert session
        asked = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
        assert peer.ask(asked, 5).responses[0].error_code == 0
        wait_for(lambda: not topic_ids(peer, "t")[0])
        assert create_topic(cluster, "t") == [0]
        (new,) = topic_ids(peer, "t")
        assert new != old
        assert produce(peer, "t", batch()) == 0
        again = peer.ask(
            FetchRequest(
                max_wait_ms=0, min_bytes=0, topics=[], session_id=session, session_epoch=1
            ),
            13,
        )
        codes = [p.error_code for topic in again.responses for p in topic.partitions]
        assert codes == [INCONSISTENT_TOPIC_ID]
        fresh = fetch_by_id(peer, old).responses[0].partitions[0]
        assert (fresh.error_code, bytes(fresh.records or b"")) == (UNKNOWN_TOPIC_ID, b"")
        first = fetch_by_id(peer, new).responses[0].partitions[0]
        assert (first.error_code, first.high_watermark) == (0, 1)
        peer.close()


def alter(peer: Peer, kind: int, name: str, key: str, value: str) -> int:
    """Set one setting; return the error code."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name=key, config_operation=0, value=value)
    asked = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=[change])],
        validate_only=False,
    )
    return int(peer.ask(asked, 1).responses[0].error_code)


def test_84_a_topics_own_setting_survives_a_change_of_the_default() -> None:
    """The override stays, the topic without one follows (KAFKA-9254)."""
    with Cluster() as cluster:
        assert create_topic(cluster, "own", "follows") == [0, 0]
        peer = Peer(cluster.bootstrap)
        assert alter(peer, 2, "own", "max.message.bytes", "70000") == 0
        assert alter(peer, 4, "", "message.max.bytes", "90000") == 0

        def limits() -> list[int]:
            logs = [TopicPartition(name, 0) for name in ("own", "follows")]
            found = cluster.run(lambda node: [node.broker.logs.get(one) for one in logs])
            return [log.config.max_message_bytes for log in found if log is not None]

        wait_for(lambda: limits() == [70_000, 90_000])
        assert alter(peer, 4, "1", "message.max.bytes", "95000") == 0
        wait_for(lambda: limits() == [70_000, 95_000])
        peer.close()


def leader_epochs(node: Any) -> tuple[int, int]:
    """Return the epochs of the quorum and of a partition."""
    return node.broker.quorum.leader_epoch, node.broker.replicas.get("t", 0).leader_epoch


@pytest.mark.parametrize("step_ms", [-YEAR_MS, -HOUR_MS, HOUR_MS, YEAR_MS])
def test_a_step_of_the_clock_moves_no_session_and_no_leader(
    monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    """Members stay, epochs stay, a waiting fetch waits by its own time, records are taken."""
    now_ms = SystemClock.now_ms
    offset_ms = [0]
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + offset_ms[0])
    with Cluster() as cluster:
        assert create_topic(cluster, "t") == [0]
        peer = Peer(cluster.bootstrap)
        name, generation = member(peer)
        epochs = cluster.run(leader_epochs)
        offset_ms[0] = step_ms
        assert produce(peer, "t", batch(now_ms(SystemClock()) + step_ms)) == 0
        asked = HeartbeatRequest(group_id="g", generation_id=generation, member_id=name)
        for _ in range(5):
            assert peer.ask(asked, 3).error_code == 0
            assert peer.is_served()
        offset_ms[0] = 0
        assert peer.ask(asked, 3).error_code == 0
        assert produce(peer, "t", batch()) == 0
        assert cluster.run(leader_epochs) == epochs
        assert not cluster.run(lambda node: node.halted.is_set())
        peer.close()


def test_a_disk_that_stalls_stops_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a flush hangs, appends, reads, metadata and heartbeats are answered."""
    release, hangs = threading.Event(), threading.Event()
    sync = RealFile.sync

    def stalled(file: RealFile) -> None:
        if file._path.startswith("t-0"):
            hangs.set()
            assert release.wait(60)
        sync(file)

    config = {"log.flush.interval.ms": "1", "log.flush.scheduler.interval.ms": "20"}
    with Cluster(config=config) as cluster:
        assert create_topic(cluster, "t", "u") == [0, 0]
        peer = Peer(cluster.bootstrap)
        name, generation = member(peer)
        monkeypatch.setattr(RealFile, "sync", stalled)
        try:
            assert produce(peer, "t", batch()) == 0
            assert hangs.wait(60)
            asked = HeartbeatRequest(group_id="g", generation_id=generation, member_id=name)
            for _ in range(10):
                assert peer.ask(asked, 3).error_code == 0
                assert produce(peer, "t", batch()) == 0
                assert produce(peer, "u", batch()) == 0
                assert peer.is_served()
            assert create_topic(cluster, "v") == [0]
        finally:
            release.set()
        wait_for(lambda: cluster.run(_recovery_point) >= 10)
        peer.close()


def _recovery_point(node: Any) -> int:
    found = node.broker.logs.get(TopicPartition("t", 0))
    return int(found.recovery_point)


def test_a_damaged_vote_is_not_taken_for_none(tmp_path: Path) -> None:
    """A node that may have voted does not start as if it had not; one line names the file."""
    Cluster(data_dir=str(tmp_path)).start().stop()
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_bytes(b'{"leaderId":')
    with pytest.raises(KafkaError, match="quorum-state") as caught:
        Cluster(data_dir=str(tmp_path)).start()
    assert "\n" not in str(caught.value)


def test_a_partition_of_one_topic_that_is_damaged_holds_no_one_up(tmp_path: Path) -> None:
    """Noise in every file of one log: the node starts, the other topic is whole."""
    cluster = Cluster(data_dir=str(tmp_path)).start()
    assert create_topic(cluster, "good", "bad") == [0, 0]
    peer = Peer(cluster.bootstrap)
    for name in ("good", "bad"):
        assert produce(peer, name, batch()) == 0
    peer.close()
    cluster.shutdown()
    for file in (tmp_path / "bad-0").iterdir():
        if file.name != "partition.metadata":
            file.write_bytes(b"\xff" * 200)
    cluster.start()
    peer = Peer(cluster.bootstrap)
    (good,) = topic_ids(peer, "good")
    assert fetch_by_id(peer, good).responses[0].partitions[0].high_watermark == 1
    (bad,) = topic_ids(peer, "bad")
    assert fetch_by_id(peer, bad).responses[0].partitions[0].error_code == KAFKA_STORAGE_ERROR
    assert produce(peer, "bad", batch()) == KAFKA_STORAGE_ERROR
    assert produce(peer, "good", batch()) == 0
    peer.close()
    cluster.stop()


class Process:
    """A node in its own process."""

    def __init__(self, folder: Path) -> None:
        self.ready = folder / "ready.json"
        self.ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ottla", "server-start", "--port", "0"]
        command += ["--override", f"log.dirs={folder / 'data'}", "--ready-file", str(self.ready)]
        self.popen = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def bootstrap(self) -> str:
        """Wait until it serves; return its address."""
        wait_for(self.ready.exists)
        return str(json.loads(self.ready.read_text(encoding="utf-8"))["bootstrap"])

    def end(self) -> tuple[int, str]:
        """Wait for its end; return exit code and what it said."""
        try:
            _, errors = self.popen.communicate(timeout=60)
        finally:
            self.popen.kill()
        return self.popen.returncode, errors


@pytest.mark.parametrize("delay_s", with_soaks([0.05, 0.3, 0.6, 0.9]))
def test_sigterm_while_starting(tmp_path: Path, delay_s: float) -> None:
    """Whenever it comes: no traceback, and the next start works on what is there."""
    process = Process(tmp_path)
    time.sleep(delay_s)  # this is the fault, not a wait for something
    process.popen.send_signal(signal.SIGTERM)
    code, errors = process.end()
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in errors
    again = Process(tmp_path)
    peer = Peer(again.bootstrap())
    assert peer.is_served()
    peer.close()
    again.popen.send_signal(signal.SIGTERM)
    assert again.end()[0] == 0


@pytest.mark.soak
def test_sigterm_under_load(tmp_path: Path) -> None:
    """With a writer and half a frame: exit 0, and all that was acknowledged is there."""
    process = Process(tmp_path)
    bootstrap = process.bootstrap()
    at = type("At", (), {"bootstrap": bootstrap})()
    assert create_topic(at, "t") == [0]
    half, writer = Peer(bootstrap), Peer(bootstrap)
    half.sock.sendall(b"\0\0\0\x50\0\0")
    acknowledged = 0
    with suppress(OSError, EOFError):
        while (code := produce(writer, "t", batch())) == 0:
            acknowledged += 1
            if acknowledged == 50:
                process.popen.send_signal(signal.SIGTERM)
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is given up first"
    status, errors = process.end()
    assert (status, "Traceback" in errors) == (0, False)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with Cluster(data_dir=str(tmp_path / "data")) as cluster:
        log = cluster.run(lambda node: node.broker.logs.get(TopicPartition("t", 0)))
        assert log is not None
        assert log.log_end_offset >= acknowledged >= 50
    half.close()


@pytest.mark.soak
def test_a_second_sigterm_ends_the_process_at_once(tmp_path: Path) -> None:
    """The first one waits for a flush that hangs; the second one does not."""
    process = Process(tmp_path)
    process.bootstrap()
    os.kill(process.popen.pid, signal.SIGSTOP)
    process.popen.send_signal(signal.SIGTERM)
    process.popen.send_signal(signal.SIGINT)
    os.kill(process.popen.pid, signal.SIGCONT)
    code, errors = process.end()
    assert (code, "Traceback" in errors) == (1, False)
    again = Process(tmp_path)
    peer = Peer(again.bootstrap())
    assert peer.is_served()
    peer.close()
    again.popen.send_signal(signal.SIGTERM)
    assert again.end()[0] == 0


class SteppedClock(SystemClock):
    """Wall time that steps when told; for one node of this process alone."""

    offset_ms = 0

    def now_ms(self) -> int:
        """Return the stepped time."""
        return super().now_ms() + self.offset_ms


def test_a_clock_that_steps_ahead_does_not_empty_the_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A year: one line, one segment a check; set right again, no further one goes."""
    clock = SteppedClock()
    with Cluster(config={"log.initial.task.delay.ms": str(YEAR_MS)}) as cluster:
        cluster.run(lambda node: setattr(node._maintenance, "_clock", clock))
        peer = Peer(cluster.bootstrap)
        wanted = [topic("small", 1, 1, segment_bytes=str(1 << 20))]
        peer.ask(CreateTopicsRequest(topics=wanted, timeout_ms=5000), 7)
        for _ in range(6):
            records = encode_batch([(int(time.time() * 1000), b"", bytes(600_000), ())])
            assert produce(peer, "small", bytes(records)) == 0
        assert _retention(cluster) == 0
        clock.offset_ms = YEAR_MS
        with caplog.at_level("WARNING", "ottla.maintenance"):
            assert [_retention(cluster) for _ in range(3)] == [1, 2, 3]
        clock.offset_ms = 0
        assert [_retention(cluster) for _ in range(3)] == [3, 3, 3]
        clock.offset_ms = YEAR_MS
        assert [_retention(cluster) for _ in range(5)] == [4, 5, 5, 5, 5]
        peer.close()
    lines = [one.getMessage() for one in caplog.records if "stepped" in one.getMessage()]
    assert len(lines) == 2
    assert f"stepped {YEAR_MS // 1000} s ahead" in lines[0]


def _retention(cluster: Cluster) -> int:
    """Let retention look once; return where the log begins then."""

    def begin(node: Any) -> None:
        node._maintenance._run_attempt("retention", node._maintenance._apply_retention())

    cluster.run(begin)
    wait_for(lambda: not cluster.run(lambda node: node._maintenance.is_checking))
    return cluster.run(lambda node: int(node.broker.replicas.get("small", 0).log.log_start_offset))
