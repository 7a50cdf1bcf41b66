"""The part of a disk that clients may not fill: refused in time, and all else goes on."""

from __future__ import annotations

import errno
import logging
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla import KafkaError, Producer
from ottla.config.broker import parse_broker_config
from ottla.config.own import _AUTOMATIC, reserve_bytes
from ottla.config.problems import ConfigErrors
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.replication.replica_set import ReplicaSet
from ottla.server.broker.maintenance import SpaceWatch
from ottla.server.system.files import RealDirectory
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log.config import LogConfig
from ottla.storage.log_set.log_set import LogSet
from ottla.testing.cluster import TEST_DEFAULTS, Cluster
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.cli.running import run
from tests.server.http.test_endpoint import page
from tests.server.requests.untrusted_clients import (
    PRODUCE_VERSION,
    Peer,
    Topic,
    create_topic,
    produce,
)
from tests.server.system.test_disk_faults import batch, end_offset, fetch
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTE, GIBIBYTE = 1 << 20, 1 << 30
TOTAL_BYTES = 100 * MEBIBYTE
RESERVE_BYTES = 25 * MEBIBYTE
KAFKA_STORAGE_ERROR = 56


class FakeDisk:
    """Says how much is left below which path; a negative number fails instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: dict[str, int] = {}

        def free_space(directory: RealDirectory) -> int:
            for path, left in self.left.items():
                if directory.root.endswith(path):
                    if left < 0:
                        raise OSError(errno.EIO, "simulated")
                    return left
            return TOTAL_BYTES

        monkeypatch.setattr(RealDirectory, "free_space", free_space)
        monkeypatch.setattr(RealDirectory, "total_space", lambda _: TOTAL_BYTES)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FakeDisk:
    """Give a disk of 100 MiB that is empty until told otherwise."""
    return FakeDisk(monkeypatch)


def look(cluster: Cluster) -> None:
    """Look at the space now rather than within a second."""
    cluster.run(lambda node: node._maintenance._space.measure_now())


def commit(peer: Peer, offset: int) -> int:
    """Commit the group's offset of t-0; return the error code."""
    committed = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = committed.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id="g", member_id="", topics=[committed(name="t", partitions=[partition])]
    )
    return int(peer.ask(request, 8).topics[0].partitions[0].error_code)


def committed(peer: Peer) -> int:
    """Return the group's offset of t-0."""
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = peer.ask(OffsetFetchRequest(group_id="g", topics=[wanted]), 7)
    return int(answer.topics[0].partitions[0].committed_offset)


def coordinated(peer: Peer) -> bool:
    """Whether the group's coordinator is known and its offsets are loaded."""
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    return peer.ask(request, 6).coordinators[0].error_code == 0 and commit(peer, 0) == 0


def delete_topic(peer: Peer, name: str) -> int:
    """Delete a topic; return the error code."""
    topic = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=Uuid(bytes(16)))
    answer = peer.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000), 6)
    return int(answer.responses[0].error_code)


@pytest.mark.parametrize(
    ("setting_bytes", "total_bytes", "kept_bytes"),
    [
        (_AUTOMATIC, TOTAL_BYTES, RESERVE_BYTES),
        (_AUTOMATIC, GIBIBYTE, 64 * MEBIBYTE),
        (_AUTOMATIC, 20 * GIBIBYTE, GIBIBYTE),
        (_AUTOMATIC, 20 * GIBIBYTE - 100, GIBIBYTE - 5),
        (_AUTOMATIC, 500 * GIBIBYTE, GIBIBYTE),
        (0, TOTAL_BYTES, 0),
        (7, TOTAL_BYTES, 7),
    ],
)
def test_what_is_kept(setting_bytes: int, total_bytes: int, kept_bytes: int) -> None:
    """By default 5 % between 64 MiB and 1 GiB, of a small disk a quarter; a number as it is."""
    assert reserve_bytes(setting_bytes, total_bytes) == kept_bytes


def test_the_setting_is_checked() -> None:
    """Below -1 is refused with the name, and a name that is nearly right is told."""
    given = {**TEST_DEFAULTS, "log.dirs": "/d"}
    with pytest.raises(ConfigErrors) as refused:
        parse_broker_config({**given, "log.dir.reserve.bytes": "-2"})
    assert [one.name for one in refused.value.problems] == ["log.dir.reserve.bytes"]
    (typo,) = parse_broker_config({**given, "log.dir.reserve.byte": "1"}).unknown_settings
    assert "did you mean log.dir.reserve.bytes?" in typo.message
    assert parse_broker_config(given).own.log_dir_reserve_bytes == _AUTOMATIC


def test_only_clients_records_are_refused_and_go_on_by_themselves(
    disk: FakeDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """56 for produces; commits, fetches, new and deleted topics as ever; then all is as before."""
    with Cluster() as cluster:
        assert create_topic(cluster, "t", "old") == [0, 0]
        peer = Peer(cluster.bootstrap)
        assert produce(peer, "t", batch(b"kept")) == 0
        wait_for(lambda: coordinated(peer))
        with caplog.at_level(logging.INFO, "ottla.disk"):
            disk.left[cluster.data_dir] = RESERVE_BYTES - 1
            look(cluster)
            look(cluster)
            assert {produce(peer, "t", batch(b"no")) for _ in range(3)} == {KAFKA_STORAGE_ERROR}
            assert end_offset(peer, "t") == 2
            assert fetch(peer, "t", 0)[0] == 0
            assert commit(peer, 2) == 0
            assert committed(peer) == 2
            assert create_topic(cluster, "new") == [0]
            assert produce(peer, "new", batch()) == KAFKA_STORAGE_ERROR
            assert delete_topic(peer, "old") == 0
            assert cluster.run(lambda node: all(d.is_online for d in node.broker.logs.directories))
            disk.left[cluster.data_dir] = RESERVE_BYTES
            look(cluster)
        assert produce(peer, "t", batch()) == 0
        assert produce(peer, "new", batch()) == 0
        assert not cluster.run(lambda node: node.halted.is_set())
        peer.close()
        path = cluster.data_dir
    begun, ended = (record for record in caplog.records if record.name == "ottla.disk")
    assert begun.levelno == logging.ERROR
    for part in (
        path,
        "1 less than its reserve of 26214400",
        "log.dir.reserve.bytes",
        "free some",
    ):
        assert part in begun.getMessage()
    assert path in ended.getMessage()


def test_the_node_checks_periodically(disk: FakeDisk) -> None:
    """Within seconds produces are refused, and within seconds accepted again."""
    with Cluster() as cluster:
        assert create_topic(cluster, "t") == [0]
        peer = Peer(cluster.bootstrap)
        assert produce(peer, "t", batch()) == 0
        disk.left[cluster.data_dir] = 0
        wait_for(lambda: produce(peer, "t", batch()) == KAFKA_STORAGE_ERROR)
        disk.left.clear()
        wait_for(lambda: produce(peer, "t", batch()) == 0)
        peer.close()


def test_a_node_that_starts_short_of_space_refuses_from_the_first_record(disk: FakeDisk) -> None:
    """The space is looked at before the first request is served."""
    with Cluster() as cluster:
        assert create_topic(cluster, "t") == [0]
        disk.left[cluster.data_dir] = 0
        cluster.restart()
        peer = Peer(cluster.bootstrap)
        assert produce(peer, "t", batch()) == KAFKA_STORAGE_ERROR
        peer.close()


def test_one_of_two_directories_is_short(tmp_path: Path, disk: FakeDisk) -> None:
    """The other one serves on and gets the new partitions; acks=0 closes the connection."""
    with Cluster(data_dir=f"{tmp_path / 'a'},{tmp_path / 'b'}") as cluster:
        names = ["one", "two", "three", "four"]
        assert set(create_topic(cluster, *names)) == {0}
        # partitions get their directories after the answer
        wait_for(lambda: all([*tmp_path.glob(f"?/{name}-0/*.log")] for name in names))
        short = [name for name in names if (tmp_path / "b" / f"{name}-0").exists()]
        sound = [name for name in names if name not in short]
        assert short
        assert sound
        disk.left["/b"] = 17
        look(cluster)
        peer = Peer(cluster.bootstrap)
        assert {produce(peer, name, batch()) for name in short} == {KAFKA_STORAGE_ERROR}
        assert {produce(peer, name, batch()) for name in sound} == {0}
        assert set(create_topic(cluster, "five", "six", "seven")) == {0}
        assert {produce(peer, name, batch()) for name in ("five", "six", "seven")} == {0}
        data = Topic(
            name=short[0], partition_data=[Topic.PartitionProduceData(index=0, records=batch())]
        )
        with pytest.raises(EOFError):
            peer.ask(ProduceRequest(acks=0, timeout_ms=5000, topic_data=[data]), PRODUCE_VERSION)
        disk.left["/b"] = -1  # a check that fails changes nothing
        look(cluster)
        peer = Peer(cluster.bootstrap)
        assert produce(peer, short[0], batch()) == KAFKA_STORAGE_ERROR
        assert produce(peer, "unknown", batch()) == 3
        counted = cluster.run(lambda node: node.broker.replicas.refused_for_space_count)
        assert counted == len(short) + 2
        peer.close()


def test_the_disks_own_numbers_against_a_reserve_larger_than_it(tmp_path: Path) -> None:
    """No fake: what the system calls free is less than a reserve of an exbibyte, not than 0."""
    for setting, code in ((str(1 << 60), KAFKA_STORAGE_ERROR), ("0", 0)):
        config = {"log.dir.reserve.bytes": setting}
        with Cluster(config=config, data_dir=str(tmp_path / setting)) as cluster:
            assert create_topic(cluster, "t") == [0]
            peer = Peer(cluster.bootstrap)
            assert produce(peer, "t", batch()) == code
            peer.close()


def test_health_names_a_directory_that_takes_no_records(
    disk: FakeDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tool and readiness probe said healthy while every produce was refused."""
    with Cluster(config={"metrics.listener": "127.0.0.1:0"}) as cluster:
        health = ("cluster", "health", "--bootstrap-server", cluster.bootstrap)
        assert run(capsys, *health)[0] == 0
        disk.left[cluster.data_dir] = 1000
        look(cluster)
        status, shown, _ = run(capsys, *health)
        assert status == 1
        assert f"Log directories without space:      {cluster.data_dir} of broker 1" in shown
        status, content = page(cluster, "readyz")
        assert (status, content["checks"]["space"]) == (503, False)
        assert page(cluster, "livez")[0] == 200
        del disk.left[cluster.data_dir]
        look(cluster)
        assert page(cluster, "readyz")[0] == 200
        assert run(capsys, *health)[0] == 0


def test_metrics_tell_what_is_left(disk: FakeDisk) -> None:
    """Free bytes, the reserve, whether produces are refused, and how many were."""
    with Cluster(config={"metrics.listener": "127.0.0.1:0"}) as cluster:
        assert create_topic(cluster, "t") == [0]
        disk.left[cluster.data_dir] = 1000
        look(cluster)
        peer = Peer(cluster.bootstrap)
        assert produce(peer, "t", batch()) == KAFKA_STORAGE_ERROR
        told = {
            series.family.classic: list(series.values)
            for series in cluster.run(_series)
            if series.family.classic.startswith(("ottla_log_directory", "ottla_produces"))
        }
        peer.close()
    assert told == {
        "ottla_log_directory_free_bytes": [1000],
        "ottla_log_directory_reserve_bytes": [RESERVE_BYTES],
        "ottla_log_directory_short_of_space": [1],
        "ottla_produces_refused_for_space": [1],
    }


def _series(node: Any) -> list[Any]:
    found: list[Any] = list(node.http.metrics._disks())
    return found


def test_a_look_that_hangs_is_not_joined_by_others() -> None:
    """One look at a time: a disk that stalls must not take all workers."""
    waiting: list[Any] = []
    log_dir = LogDirectory("/d", SimulatedDisk(capacity_bytes=1000))
    logs = LogSet([log_dir], config_for=lambda _: LogConfig(), rng=Random(1))
    logs.load(1)
    replicas = ReplicaSet(1, logs)
    watch = SpaceWatch(replicas, 1001)
    for _ in range(3):
        watch.measure(lambda _volume, measure, done: waiting.append((measure, done)))
    assert len(waiting) == 1
    measure, done = waiting.pop()
    done(measure(), None)
    assert replicas.is_short_of_space
    assert logs.log_dir_of(TopicPartition("t", 0)) is None
    watch.measure(lambda _volume, measure, done: waiting.append((measure, done)))
    _, done = waiting.pop()
    done(None, RuntimeError())
    assert replicas.is_short_of_space
    assert not waiting


@pytest.mark.parametrize(
    ("left_bytes", "interval_ms"),
    [
        (GIBIBYTE, 1000),
        (100_000_000, 400),
        (2_000_000, 50),
        (1, 50),
        (0, 50),
        (-1, 1000),
    ],
)
def test_measurements_are_more_frequent_near_the_reserve(left_bytes: int, interval_ms: int) -> None:
    """A second while there is room, 50 ms just above the reserve, a second when it is reached."""
    log_dir = LogDirectory("/d", SimulatedDisk(capacity_bytes=1000 + left_bytes))
    logs = LogSet([log_dir], config_for=lambda _: LogConfig(), rng=Random(1))
    logs.load(1)
    watch = SpaceWatch(ReplicaSet(1, logs), 1000)
    watch.measure_now()
    assert watch.interval_ms == interval_ms


def test_a_producer_is_told_the_cause(disk: FakeDisk, caplog: pytest.LogCaptureFixture) -> None:
    """In a warning at once, in the error at its timeout, and in the node's log with the name."""
    with Cluster() as cluster:
        assert create_topic(cluster, "t") == [0]
        limits = {"delivery.timeout.ms": 300, "request.timeout.ms": 200, "linger.ms": 0}
        disk.left[cluster.data_dir] = 7
        look(cluster)
        with (
            Producer(config={"bootstrap.servers": cluster.bootstrap, **limits}) as producer,
            caplog.at_level(logging.INFO),
        ):
            delivery = producer.send("t", b"value")
            with pytest.raises(KafkaError, match="the broker's disk is nearly full: 7 bytes"):
                delivery.result(WAIT_S)
            del disk.left[cluster.data_dir]
            look(cluster)
            producer.send("t", b"value").result(WAIT_S)
    lines = [(one.name, one.getMessage()) for one in caplog.records]
    told = [text for name, text in lines if name == "ottla.clients"]
    assert "t-0: the broker's disk is nearly full: 7 bytes are left, less than its" in told[0]
    cause = "KAFKA_STORAGE_ERROR: the broker's disk is nearly full: 7 bytes are left"
    assert any(text.startswith(f"refused for t-0: {cause}") for _, text in lines)
