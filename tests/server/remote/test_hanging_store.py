"""A store whose calls never end: what a node does meanwhile, and its stop."""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING, ClassVar

import pytest

import ottla
from ottla.server.system.real import RealEnvironment
from ottla.server.system.workers import DetachedThreads
from ottla.storage.remote.managers.directory import DirectoryStorage
from ottla.testing import Cluster
from tests.server.remote.test_tier import TIERED, copied, lines, settings_of
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from ottla.server.node.node import Node
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import SegmentFiles

RECORDS = 3000


class HangingStorage(DirectoryStorage):
    """A directory; the calls of `kinds` for partition 1 do not end before `release`."""

    kinds: ClassVar[set[str]] = set()
    release: ClassVar[Event] = Event()

    def _wait(self, kind: str, segment: RemoteSegment) -> None:
        if kind in self.kinds and segment.partition == 1:
            self.release.wait()

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> None:
        self._wait("copy", segment)
        super().copy_segment(segment, files)

    def read_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        self._wait("read", segment)
        return super().read_segment(segment, start, end)

    def delete_segment(self, segment: RemoteSegment) -> None:
        self._wait("delete", segment)
        super().delete_segment(segment)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Return a node that waits half a second for calls when it stops."""

    def start(_environment: RealEnvironment, loop: object) -> DetachedThreads:
        return DetachedThreads(loop, wait_s=0.5)  # type: ignore[arg-type]

    monkeypatch.setattr(RealEnvironment, "start_detached", start)
    HangingStorage.release.clear()
    HangingStorage.kinds.clear()
    settings = settings_of(tmp_path)
    settings["remote.log.storage.manager.class.name"] = f"{__name__}.HangingStorage"
    cluster = Cluster(config=settings)
    cluster.start()
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic("t", 2, 1, configs=TIERED)])
    yield cluster
    cluster.stop()
    HangingStorage.release.set()


def fill(cluster: Cluster) -> None:
    """Write as many records to both partitions."""
    with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(2 * RECORDS):
            producer.send("t", b"%06d" % (number // 2) + b"x" * 994, partition=number % 2)


def until_copied(cluster: Cluster, partition: int) -> None:
    """Wait until a partition's active segment is the only one on the disk."""

    def is_copied(node: Node) -> bool:
        log = node.broker.replicas.get("t", partition).log
        return bool(log.local_log_start_offset == log.segments.active.base_offset > 0)

    wait_for(lambda: cluster.run(is_copied))


def count(cluster: Cluster, partition: int) -> int:
    """Read a partition from its start to its end, as far as that goes in a minute."""
    at, found = ottla.TopicPartition("t", partition), 0
    with ottla.Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as one:
        one.assign([at])
        one.seek_to_beginning(at)
        end = time.monotonic() + WAIT_S
        while found < RECORDS and time.monotonic() < end:
            found += len(one.poll(0.2))
    return found


def test_a_copy_that_does_not_end(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The other partition is copied, its own stays on the disk; a stop ends."""
    HangingStorage.kinds.add("copy")
    fill(cluster)
    until_copied(cluster, 0)
    assert count(cluster, 0) == count(cluster, 1) == RECORDS
    assert cluster.run(oldest_s)["copier"] > 0
    begin = time.monotonic()
    cluster.stop()
    assert time.monotonic() - begin < WAIT_S
    assert len(lines(caplog, "remote.calls_left")) == 1


def oldest_s(node: Node) -> dict[str, float]:
    """Return the age of the oldest call of each kind."""
    assert node.remote_logs is not None
    return {kind: calls.oldest_ms / 1000 for kind, calls in node.remote_logs.tier.calls.items()}


def test_a_read_that_does_not_end(cluster: Cluster) -> None:
    """Fetches are answered in time, without records; those of the other partition have theirs."""
    fill(cluster)
    until_copied(cluster, 0)
    until_copied(cluster, 1)
    HangingStorage.kinds.add("read")
    at = [ottla.TopicPartition("t", number) for number in (1, 0)]
    with ottla.Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as one:
        one.assign(at)
        one.seek_to_beginning(*at)
        found: set[int] = set()
        end = time.monotonic() + WAIT_S
        read = 0
        while read < RECORDS and time.monotonic() < end:
            records = one.poll(0.2)
            read += len(records)
            found |= {record.partition for record in records}
        assert (read >= RECORDS, found) == (True, {0})
    assert cluster.run(oldest_s)["reader"] > 0
    HangingStorage.kinds.clear()
    HangingStorage.release.set()
    assert count(cluster, 1) == RECORDS


def test_a_deletion_that_does_not_end(cluster: Cluster, tmp_path: Path) -> None:
    """The other partition's segments go; copies go on."""
    fill(cluster)
    until_copied(cluster, 0)
    until_copied(cluster, 1)
    HangingStorage.kinds.add("delete")
    before = len(copied(tmp_path))
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        topic = ottla.ConfigResource(ottla.ResourceType.TOPIC, "t")
        admin.alter_configs({topic: {"retention.bytes": "1500000", "local.retention.bytes": "1"}})
    wait_for(lambda: len(copied(tmp_path)) < before)
    wait_for(lambda: cluster.run(oldest_s)["expiration"] > 0)
    fill(cluster)
    until_copied(cluster, 1)
