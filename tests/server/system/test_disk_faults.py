"""Disks that are full, broken, cut, locked or foreign, below a live node."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.records.builder import encode_batch
from ottla.server.system.files import RealFile
from ottla.storage.directories.log_dir import decode_meta_properties
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.server.requests.untrusted_clients import Peer, create_topic, produce
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.types import Buffer

BATCHES = 20
KAFKA_STORAGE_ERROR = 56


def batch(value: bytes = b"value") -> bytes:
    """Return a batch of two records of this moment."""
    now_ms = int(time.time() * 1000)
    return bytes(encode_batch([(now_ms, b"k", value, ()), (now_ms, b"l", value, ())]))


def end_offset(peer: Peer, topic: str) -> int:
    """Return the topic's end."""
    wanted = ListOffsetsRequest.ListOffsetsTopic(
        name=topic,
        partitions=[
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=0, timestamp=-1
            )
        ],
    )
    answer = peer.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 7)
    return int(answer.topics[0].partitions[0].offset)


def fetch(peer: Peer, topic: str, offset: int) -> tuple[int, bytes]:
    """Return the error code and the bytes read from an offset."""
    wanted = FetchRequest.FetchTopic(
        topic=topic,
        partitions=[
            FetchRequest.FetchTopic.FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
            )
        ],
    )
    answer = peer.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted]), 11)
    found = answer.responses[0].partitions[0]
    return int(found.error_code), bytes(found.records or b"")


def open_files(directory: Path) -> list[str]:
    """Return the files in a directory that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return [name for name in found if name.startswith(f"{directory}/")]


class FailingDisk:
    """Makes appends to files whose path contains a text fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = ""
        self.number = 0
        append = RealFile.append

        def failing(file: RealFile, buffers: Sequence[Buffer]) -> int:
            if self.number and self.text in file._prefix + file._path:
                raise OSError(self.number, "simulated", file._path)
            return append(file, buffers)

        monkeypatch.setattr(RealFile, "append", failing)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    """Give a disk that fails when told."""
    return FailingDisk(monkeypatch)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_one_of_two_directories_fails_and_the_other_serves_on(
    tmp_path: Path, disk: FailingDisk, number: int
) -> None:
    """Produce and fetch answer 56 there, all else goes on, and the node does not halt."""
    log_dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with Cluster(data_dir=log_dirs) as cluster:
        names = ["one", "two", "three", "four"]
        assert set(create_topic(cluster, *names)) == {0}
        wait_for(lambda: all(any(tmp_path.glob(f"*/{name}-0")) for name in names))
        failing = [name for name in names if (tmp_path / "b" / f"{name}-0").exists()]
        sound = [name for name in names if name not in failing]
        assert failing
        assert sound
        peer, witness = Peer(cluster.bootstrap), Peer(cluster.bootstrap)
        assert {produce(peer, name, batch()) for name in names} == {0}
        disk.text, disk.number = str(tmp_path / "b"), number
        assert produce(peer, failing[0], batch()) == KAFKA_STORAGE_ERROR
        disk.number = 0
        assert {produce(peer, name, batch()) for name in failing} == {KAFKA_STORAGE_ERROR}
        assert fetch(peer, failing[0], 0)[0] == KAFKA_STORAGE_ERROR
        assert {produce(witness, name, batch()) for name in sound} == {0}
        time.sleep(0.6)
        assert not cluster.run(lambda node: node.halted.is_set())
        offline = cluster.run(lambda node: [not d.is_online for d in node.broker.logs.directories])
        assert offline == [False, True]
        peer.close()
        witness.close()


def test_a_directory_vanishes_and_returns_while_its_node_runs(
    tmp_path: Path, disk: FailingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Unmounted, then mounted again, it is served again, also by the only replica of a partition.

    An empty mount point is refused, and nothing is written into it.
    """
    log_dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    config = {"log.dir.return.interval.ms": "100", "log.dir.reserve.bytes": "0"}
    with Cluster(data_dir=log_dirs, config=config) as cluster:
        names = ["one", "two", "three", "four"]
        assert set(create_topic(cluster, *names)) == {0}
        wait_for(lambda: all(any(tmp_path.glob(f"*/{name}-0")) for name in names))
        failing = [name for name in names if (tmp_path / "b" / f"{name}-0").exists()]
        peer = Peer(cluster.bootstrap)
        assert {produce(peer, name, batch()) for name in names} == {0}
        disk.text, disk.number = str(tmp_path / "b"), errno.EIO
        assert produce(peer, failing[0], batch()) == KAFKA_STORAGE_ERROR
        wait_for(lambda: not open_files(tmp_path / "b"), problem="it cannot be unmounted")
        (tmp_path / "b").rename(tmp_path / "away")
        (tmp_path / "b").mkdir()
        disk.number = 0
        wait_for(lambda: "no meta.properties; mount its disk there" in caplog.text)
        assert fetch(peer, failing[0], 0)[0] == KAFKA_STORAGE_ERROR
        assert not list((tmp_path / "b").iterdir())
        (tmp_path / "b").rmdir()
        (tmp_path / "away").rename(tmp_path / "b")
        wait_for(lambda: {produce(peer, name, batch()) for name in failing} == {0})
        for name in names:
            assert fetch(peer, name, 0)[0] == 0
            assert end_offset(peer, name) >= 2
        assert cluster.run(lambda node: len(node.broker.logs.online_directories)) == 2
        peer.close()


def test_a_node_without_a_directory_left_halts_with_one_line(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """The produce is answered 56; then the node says what failed and what to do, and halts."""
    with Cluster(data_dir=str(tmp_path)) as cluster:
        assert create_topic(cluster, "t") == [0]
        peer = Peer(cluster.bootstrap)
        assert produce(peer, "t", batch(b"kept")) == 0
        disk.text, disk.number = "/t-0/", errno.ENOSPC
        assert produce(peer, "t", batch(b"refused")) == KAFKA_STORAGE_ERROR
        wait_for(lambda: not cluster.is_running)
        text = str(cluster.node(1).halt_reason)
        assert str(tmp_path) in text
        assert "free some space" in text
        assert "\n" not in text
        disk.number = 0
        peer.close()
        cluster.shutdown()
        cluster.start()
        peer = Peer(cluster.bootstrap)
        assert end_offset(peer, "t") == 2
        assert produce(peer, "t", batch()) == 0
        peer.close()


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[tuple[Cluster, Path]]:
    """Give a killed node with twenty batches in one segment, and the partition's folder."""
    cluster = Cluster(data_dir=str(tmp_path), config={"log.index.interval.bytes": "200"}).start()
    assert create_topic(cluster, "t") == [0]
    peer = Peer(cluster.bootstrap)
    for number in range(BATCHES):
        assert produce(peer, "t", batch(b"%d" % number)) == 0
    peer.close()
    cluster.kill()
    yield cluster, tmp_path / "t-0"
    cluster.stop()


@pytest.mark.parametrize("seed", range(4))
def test_a_segment_that_was_cut_keeps_its_whole_batches(
    filled: tuple[Cluster, Path], seed: int
) -> None:
    """Whatever byte it was cut at: the batches before are served, the next append follows them."""
    cluster, folder = filled
    segment = folder / f"{0:020}.log"
    content = segment.read_bytes()
    size = len(content)
    cut = Random(seed).randrange(size)
    segment.write_bytes(content[:cut])
    whole, position = 0, 0
    while position + 12 <= cut:
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
        whole += position <= cut
    cluster.start()
    peer = Peer(cluster.bootstrap)
    assert end_offset(peer, "t") == 2 * whole
    assert fetch(peer, "t", 0) == (0, content[: segment.stat().st_size])
    assert produce(peer, "t", batch()) == 0
    assert end_offset(peer, "t") == 2 * whole + 2
    peer.close()


@pytest.mark.parametrize("clean", [False, True])
def test_indexes_that_lie_are_not_believed(filled: tuple[Cluster, Path], *, clean: bool) -> None:
    """Every offset is found although both indexes are noise, after a crash and a clean stop."""
    cluster, folder = filled
    if clean:
        cluster.start()
        cluster.shutdown()
    for name in (".index", ".timeindex"):
        (folder / f"{0:020}{name}").write_bytes(Random(3).randbytes(240))
    content = (folder / f"{0:020}.log").read_bytes()
    cluster.start()
    peer = Peer(cluster.bootstrap)
    for offset in range(2 * BATCHES):
        code, records = fetch(peer, "t", offset)
        assert code == 0
        assert records
        assert content.endswith(records)
        base = int.from_bytes(records[:8], "big")
        assert base <= offset < base + 2
    peer.close()


def test_two_nodes_on_one_directory(tmp_path: Path) -> None:
    """The second one says in one line that the directory is in use; the first one never notices."""
    with Cluster(data_dir=str(tmp_path)) as cluster:
        peer = Peer(cluster.bootstrap)
        with pytest.raises(KafkaError, match="Failed to acquire lock on file") as caught:
            Cluster(data_dir=str(tmp_path)).start()
        assert "\n" not in str(caught.value)
        assert peer.is_served()
        peer.close()


@pytest.mark.parametrize(
    ("config", "text"),
    [({"node.id": "2"}, "2"), ({}, "clusterB123456789abcde")],
    ids=["another node", "another cluster"],
)
def test_a_directory_of_somebody_else_is_refused(
    tmp_path: Path, config: dict[str, str], text: str
) -> None:
    """A wrong node id, or directories of two clusters: one line that names both."""
    log_dirs = [tmp_path / "a", tmp_path / "b"]
    Cluster(data_dir=f"{log_dirs[0]},{log_dirs[1]}").start().stop()
    if not config:
        meta = log_dirs[1] / "meta.properties"
        lines = meta.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith("cluster.id")]
        meta.write_text("\n".join([*kept, f"cluster.id={text}", ""]), encoding="utf-8")
    with pytest.raises(KafkaError) as caught:
        Cluster(data_dir=f"{log_dirs[0]},{log_dirs[1]}", config=config).start()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def _rewrite(meta: Path, line: str, replacement: str | None) -> None:
    """Replace the line of meta.properties that begins so, or remove it."""
    kept = [one for one in meta.read_text(encoding="utf-8").splitlines() if line not in one]
    added = [] if replacement is None else [replacement]
    meta.write_text("\n".join([*kept, *added, ""]), encoding="utf-8")


def test_directories_without_an_id_get_one(tmp_path: Path) -> None:
    """Kafka writes directory.id since 3.7; older directories get it at their first start."""
    log_dirs = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    data_dir = ",".join(map(str, log_dirs))
    Cluster(data_dir=data_dir).start().stop()
    files = [one / "meta.properties" for one in log_dirs[1:]]  # the first one votes by its id
    for file in files:
        _rewrite(file, "directory.id=", None)
    found = []
    for _ in range(2):
        Cluster(data_dir=data_dir).start().stop()
        found.append([decode_meta_properties(file.read_bytes()).directory_id for file in files])
    assert found[0] == found[1], "they are kept"
    assert len({None, *found[0]}) == 3


@pytest.mark.parametrize(
    ("version", "text"),
    [("0", "cluster with ZooKeeper"), ("2", "Unknown meta.properties version number 2")],
)
def test_another_version_of_meta_properties_is_refused(
    tmp_path: Path, version: str, text: str
) -> None:
    """What a later version says is unknown here, as Kafka has it."""
    Cluster(data_dir=str(tmp_path)).start().stop()
    _rewrite(tmp_path / "meta.properties", "version=", f"version={version}")
    with pytest.raises(KafkaError, match=text):
        Cluster(data_dir=str(tmp_path)).start()


LIMITED = """
import os, resource, sys
kind, number, *command = sys.argv[1:]
resource.setrlimit(int(kind), (int(number), int(number)))
os.execv(command[0], command)
"""


def start_node(directory: Path, **settings: Any) -> subprocess.Popen[str]:
    """Start a node in its own process with a place that may be bad."""
    command = [sys.executable, "-m", "ottla", "server-start", "--port", "0"]
    command += ["--override", f"log.dirs={directory}", "--ready-file", str(settings["ready"])]
    if "limit" in settings:  # not in a fork of this process, which may have other threads
        command = [sys.executable, "-ISc", LIMITED, *map(str, settings["limit"]), *command]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_place_that_takes_no_files_is_refused_in_one_line(tmp_path: Path) -> None:
    """Exit 1 and a line with the path, no traceback."""
    with start_node(Path("/proc/no-place"), ready=tmp_path / "ready") as process:
        _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "/proc/no-place" in errors
    assert "Traceback" not in errors


@pytest.mark.soak
def test_descriptors_that_run_out_pause_the_accepting_only(tmp_path: Path) -> None:
    """With 128 of them and 120 clients, the log works; new clients are served when some leave."""
    ready = tmp_path / "ready.json"
    limit = (resource.RLIMIT_NOFILE, 128)
    process = start_node(tmp_path / "data", ready=ready, limit=limit)
    try:
        wait_for(ready.exists)
        bootstrap = json.loads(ready.read_text(encoding="utf-8"))["bootstrap"]
        first = Peer(bootstrap)
        assert first.is_served()
        clients = [Peer(bootstrap) for _ in range(120)]
        time.sleep(0.3)
        named = type("At", (), {"bootstrap": bootstrap})()
        late = clients[-1]
        late.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            late.is_served()
        for client in clients[:80]:
            client.close()
        late.sock.settimeout(WAIT_S)
        assert late.read_frame()
        held = Path(f"/proc/{process.pid}/fd")
        wait_for(lambda: len(list(held.iterdir())) < 90, problem="clients that left hold some")
        assert create_topic(named, "t") == [0]
        assert produce(first, "t", batch()) == 0
        assert process.poll() is None
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=60)
        process.kill()
    assert process.returncode == 0


def test_too_few_descriptors_for_a_file_take_no_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A produce that finds no descriptor is refused; the next one is served."""
    with Cluster(data_dir=str(tmp_path)) as cluster:
        assert create_topic(cluster, "t") == [0]
        peer = Peer(cluster.bootstrap)
        assert produce(peer, "t", batch()) == 0
        append = RealFile.append

        def failing(file: RealFile, buffers: Sequence[Buffer]) -> int:
            if file._path.startswith("t-0"):
                raise OSError(errno.EMFILE, "Too many open files")
            return append(file, buffers)

        monkeypatch.setattr(RealFile, "append", failing)
        assert produce(peer, "t", batch()) == KAFKA_STORAGE_ERROR
        monkeypatch.setattr(RealFile, "append", append)
        assert produce(peer, "t", batch()) == 0
        log_dir = cluster.run(lambda node: node.broker.logs.log_dir_of(TopicPartition("t", 0)))
        assert log_dir is not None
        assert log_dir.is_online
        peer.close()
    assert ErrorCode.KAFKA_STORAGE_ERROR == KAFKA_STORAGE_ERROR


@pytest.mark.soak
def test_a_process_whose_disk_is_full_ends_with_one_line(tmp_path: Path) -> None:
    """The kernel refuses bytes beyond 12 MiB a file: 56, then exit 1 and what to do."""
    ready = tmp_path / "ready.json"
    limit = (resource.RLIMIT_FSIZE, 12 << 20)
    process = start_node(tmp_path / "data", ready=ready, limit=limit)
    try:
        wait_for(ready.exists)
        bootstrap = json.loads(ready.read_text(encoding="utf-8"))["bootstrap"]
        assert create_topic(type("At", (), {"bootstrap": bootstrap})(), "t") == [0]
        peer = Peer(bootstrap)
        codes: list[int] = []
        while not codes or codes[-1] == 0:
            codes.append(produce(peer, "t", batch(bytes(400_000))))
        assert codes[-1] == KAFKA_STORAGE_ERROR
        assert len(codes) > 10
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert [line for line in errors.splitlines() if line.startswith("Error: halted")]
    assert "raise the limit on file sizes" in errors
