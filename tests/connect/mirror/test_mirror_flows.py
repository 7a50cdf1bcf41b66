"""Mirrors between two real nodes, in this process and in one that is killed."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import TYPE_CHECKING

import pytest

from ottla.clients.blocking import Admin, Consumer, Producer
from ottla.clients.offsets import OffsetAndMetadata
from ottla.connect.mirror.flows import Flow, MirrorMaker, MirrorMakerConfig
from ottla.connect.mirror.records import MirrorCheckpoint, MirrorHeartbeat, OffsetSync
from ottla.testing.cluster import Cluster
from ottla.types import TopicPartition
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.connect.runtime.standalone import Standalone

FILE = """
clusters=a,b
a.bootstrap.servers={a}
b.bootstrap.servers={b}
a->b.enabled=true
b->a.enabled={back}
replication.factor=1
offset-syncs.topic.replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset.storage.replication.factor=1
offset.storage.partitions=1
refresh.topics.interval.seconds=1
refresh.groups.interval.seconds=1
emit.checkpoints.interval.seconds=1
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=1
consumer.poll.timeout.ms=100
"""


START_MS = 1_700_000_000_000


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for a time that no healthy run needs."""
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.fixture(name="ends", scope="module")
def _ends() -> Iterator[tuple[str, str]]:
    with Cluster() as a, Cluster() as b:
        yield a.bootstrap, b.bootstrap


def settings(ends: tuple[str, str], back: str = "false") -> dict[str, str]:
    """Return the settings of a file."""
    lines = FILE.format(a=ends[0], b=ends[1], back=back).split()
    return dict(line.split("=", 1) for line in lines)


def records_of(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """Return the first records of partition 0, at least so many."""
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records: list[ConsumerRecord] = []
        until(lambda: len(records.__iadd__(consumer.poll(0.2))) >= count)
        return records


def synced_offsets(bootstrap: str, partition: TopicPartition) -> list[int]:
    """Return the offsets of which the target's are known."""
    made = records_of(bootstrap, "mm2-offset-syncs.b.internal", 1)
    syncs = [OffsetSync.decode(it.key, it.value) for it in made]
    return sorted({it.upstream for it in syncs if it.partition == partition})


def until_group_is_at(bootstrap: str, partition: TopicPartition, offset: int) -> None:
    """Wait until the offset of the group, with its metadata, is that."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        expected = OffsetAndMetadata(offset, "meta")
        until(lambda: admin.list_group_offsets("billing").get(partition) == expected)


def copied_topics(worker: Standalone) -> set[str]:
    """Return the topics of which records were copied, as the metrics have them."""
    beans = worker.metrics().result(30)
    sources = [it for it in beans if it.type == "MirrorSourceConnector"]
    return {it.tags["topic"] for it in sources if it.attributes["record-count"]}


def test_records_configs_and_offsets_are_mirrored(ends: tuple[str, str]) -> None:
    """All of a record passes; offset syncs, checkpoints and heartbeats are written."""
    source, target = ends
    with Admin(bootstrap_servers=source) as admin, Producer(bootstrap_servers=source) as producer:
        admin.create_topic("orders", 2, 1, configs={"retention.ms": "123456789"})
        producer.send_and_wait("orders", b"v0", b"k", partition=0, timestamp_ms=START_MS)
        at, remote = TopicPartition("orders", 0), TopicPartition("a.orders", 0)
        admin.alter_group_offsets("billing", {at: OffsetAndMetadata(1, "meta")})
    mirror = MirrorMaker(MirrorMakerConfig(settings(ends)))
    mirror.start()
    try:
        # of the syncs before its start the checkpoints' task keeps none but the newest
        until_group_is_at(target, remote, 1)
        with Producer(bootstrap_servers=source) as producer:
            for number in range(1, 250):
                producer.send(
                    "orders",
                    None if number == 7 else b"v%d" % number,
                    None if number == 8 else b"k",
                    partition=0,
                    timestamp_ms=START_MS + number,
                    headers=[("h", b"\xff"), ("h", None)] if number == 9 else (),
                )
        with Admin(bootstrap_servers=source) as admin:
            admin.alter_group_offsets("billing", {at: OffsetAndMetadata(150, "meta")})
        copies = records_of(target, "a.orders", 250)
        originals = records_of(source, "orders", 250)
        assert [it[1:] for it in copies] == [it[1:] for it in originals]
        until(lambda: synced_offsets(source, at)[-1] >= 249 - 101)
        # another one at each start of the task: it has more topics once the heartbeats' is found
        synced = synced_offsets(source, at)
        assert synced[0] == 0
        assert {later - first for first, later in pairwise(synced)} <= {*range(1, 102)}
        newest = max(offset for offset in synced if offset <= 150)
        until_group_is_at(target, remote, newest + 1)
        with Admin(bootstrap_servers=target) as admin:
            described = admin.describe_topics(["a.orders"])["a.orders"]
            assert len(described.partitions) == 2  # type: ignore[union-attr]
        # each start of the task counts from 0, and heartbeats come all the time
        worker = mirror.workers[Flow("a", "b")]
        until(lambda: "a.heartbeats" in copied_topics(worker))
        made = records_of(target, "a.checkpoints.internal", 2)
        checkpoints = [MirrorCheckpoint.decode(it.key, it.value) for it in made]
        assert MirrorCheckpoint("billing", remote, 150, newest + 1, "meta") in checkpoints
        beats = [
            MirrorHeartbeat.decode(it.key, it.value) for it in records_of(target, "heartbeats", 1)
        ]
        assert (beats[0].source, beats[0].target) == ("a", "b")
        with Producer(bootstrap_servers=source) as producer:
            producer.send_and_wait("later", b"new topic")
        assert records_of(target, "a.later", 1)[0].value == b"new topic"
    finally:
        mirror.stop()
    with Producer(bootstrap_servers=source) as producer:
        producer.send_and_wait("orders", b"after", partition=0)
    again = MirrorMaker(MirrorMakerConfig(settings(ends)))
    again.start()
    try:
        copies = records_of(target, "a.orders", 251)
        assert [it.value for it in copies[249:]] == [b"v249", b"after"]
    finally:
        again.stop()


class Group:
    """A group that moves between clusters, and its offsets there."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self._offset = 0

    def consume(self, bootstrap: str, topic: str, expected: list[bytes]) -> None:
        """Read and commit until all these values were read, here or before."""
        with Consumer(
            topic, bootstrap_servers=bootstrap, group_id="failover", auto_offset_reset="earliest"
        ) as consumer:

            def has_all() -> bool:
                self.read += [it.value for it in consumer.poll(0.2)]
                return set(self.read) >= set(expected)

            until(has_all)
            consumer.commit()

    def wait_offset(self, bootstrap: str, partition: TopicPartition, at_least: int) -> None:
        """Wait for an offset; none that is seen is before an earlier one."""

        def has_come() -> bool:
            with Admin(bootstrap_servers=bootstrap) as admin:
                known = admin.list_group_offsets("failover").get(partition)
            offset = known.offset if known else self._offset
            assert offset >= self._offset
            self._offset = offset
            return offset >= at_least

        until(has_come)

    def forget(self) -> None:
        """Begin with another topic, whose offsets are others."""
        self._offset = 0


def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Append values, and wait."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush()


def until_copied(bootstrap: str, topic: str, expected: list[bytes]) -> None:
    """Wait for copies of all values."""
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: set[bytes] = set()

        def has_all() -> bool:
            values.update(it.value for it in consumer.poll(0.2))
            return values >= set(expected)

        until(has_all)


def test_failover_and_failback_of_a_group_while_the_mirror_is_killed(
    ends: tuple[str, str], tmp_path: Path
) -> None:
    """Nothing is lost, and the group's offsets never go back, over four kills."""
    rng = random.Random(4)
    source, target = ends
    file = tmp_path / "mm2.properties"
    file.write_text(FILE.format(a=source, b=target, back="true") + "topics=.*pay\n")
    command = [sys.executable, "-m", "ottla", "connect-mirror-maker", str(file)]
    group, remote = Group(), TopicPartition("a.pay", 0)
    for end in ends:
        with Admin(bootstrap_servers=end) as admin:
            admin.create_topic("pay", 1, 1)
    sent: list[bytes] = []
    for turn in range(4):
        process = Popen(command, stdout=DEVNULL, stderr=DEVNULL, env=os.environ)
        try:
            more = [b"%d" % it for it in range(turn * 300, turn * 300 + 300)]
            send(source, "pay", more)
            sent += more
            if turn < 3:
                group.consume(source, "pay", sent)
            if turn % 2:
                time.sleep(rng.random() * 2)  # killed in the midst of its start or its work
            else:
                until_copied(target, "a.pay", sent)
                group.wait_offset(target, remote, turn * 100 + 1)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    process = Popen(command, stdout=DEVNULL, stderr=DEVNULL, env=os.environ)
    try:
        until_copied(target, "a.pay", sent)
        group.wait_offset(target, remote, 600)
        group.consume(target, "a.pay", sent)  # the source is lost: the group moves
        group.forget()
        back = [b"b%d" % it for it in range(50)]
        send(target, "pay", back)
        group.consume(target, "pay", back)
        until_copied(source, "b.pay", back)
        group.wait_offset(source, TopicPartition("b.pay", 0), 1)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


def test_the_command_runs_the_file_of_the_docs(ends: tuple[str, str], tmp_path: Path) -> None:
    """The block of docs/mirroring.md, with these clusters; Ctrl-C commits and ends it."""
    text = (Path(__file__).parents[3] / "docs" / "mirroring.md").read_text(encoding="utf-8")
    block = text.split("```properties\n")[1].split("```")[0]
    file = tmp_path / "mm2.properties"
    source, target = ends
    block = block.replace("localhost:9092", source).replace("localhost:9192", target)
    file.write_text(block)
    send(source, "orders-new", [b"tea"])
    command = [sys.executable, "-m", "ottla", "connect-mirror-maker", str(file)]
    process = Popen([*command, "--clusters", "backup"], stdout=DEVNULL, stderr=DEVNULL)
    try:
        until_copied(target, "main.orders-new", [b"tea"])
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
