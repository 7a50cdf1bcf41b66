"""Copies of logs in other directories: exchanged, and found again by a start."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.directories.partition_dir_names import future_name, future_partition_of
from ottla.storage.log_set.log_set import LogSet
from ottla.testing.disk import SimulatedDisk
from ottla.types import TopicPartition, Uuid
from tests.storage.logs import NOW_MS, SMALL, TOPIC_ID, put
from tests.storage.sets import A, drain, finish, make

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

IDS = [Uuid(bytes([number + 1]) * 16) for number in range(2)]


class World:
    """Two directories with ids; `start` loads them as metadata assign the partition."""

    def __init__(self) -> None:
        self.disks = [SimulatedDisk(0), SimulatedDisk(1)]
        for disk, directory_id in zip(self.disks, IDS, strict=True):
            text = f"version=1\ncluster.id=c\nnode.id=1\ndirectory.id={directory_id}\n"
            disk.write_file_atomically("meta.properties", text.encode())
        self.logs = self.start(0)

    def start(self, assigned: int, *, lost: int | None = None) -> LogSet:
        for disk in self.disks:
            disk.kill()
        if lost is not None:
            self.disks[lost].fail(lambda _call: True, times=1000)
        self.logs = LogSet(
            [LogDirectory(f"/d{number}", disk) for number, disk in enumerate(self.disks)],
            config_for=lambda _: SMALL,
            rng=Random(1),
        )
        self.logs.load(NOW_MS, lambda one: one.topic_id != TOPIC_ID, lambda _: IDS[assigned])
        return self.logs

    def begin(self) -> None:
        """Create the log in the first directory and a copy with two records in the second."""
        log = make(self.logs)
        future = self.copy()
        for _ in range(2):
            put(log)
            put(future)
        drain(self.logs)

    def copy(self, directory: int = 1) -> PartitionLog:
        log_dir = self.logs.directories[directory]
        return self.logs.futures.create(A, log_dir, topic_id=TOPIC_ID, now_ms=NOW_MS)

    def names(self) -> list[list[str]]:
        """Return each directory's names of the partition, without what is random."""
        return [
            [one.partition(".")[0] + "-" * ("." in one) + one.rpartition("-")[2] * ("." in one)
             for one in disk.list() if one.startswith("a-0")]
            for disk in self.disks
        ]  # fmt: skip


def test_names() -> None:
    """Kafka's form; a topic's name may have dots and dashes, and may be too long."""
    partition = TopicPartition("a.b-c", 7)
    name = future_name(partition, Random(1))
    assert name.startswith("a.b-c-7.")
    assert len(name) == len("a.b-c-7.") + 32 + len("-future")
    assert future_partition_of(name) == partition
    assert future_partition_of("a.b-c-7") is None
    assert future_partition_of("a.00-delete") is None
    assert future_partition_of("nothing-future") is None
    with pytest.raises(ValueError, match="The topic name is too long"):
        future_name(TopicPartition("x" * 249, 0), Random(1))


@pytest.mark.parametrize("assigned", [0, 1])
def test_a_copy_next_to_the_log_stays_a_copy(assigned: int) -> None:
    """Whatever the metadata say: the log may have more records than the copy."""
    world = World()
    world.begin()
    logs = world.start(assigned)
    assert world.names() == [["a-0"], ["a-0-future"]]
    future = logs.futures.get(A)
    assert future is not None
    assert future.log_end_offset == 2
    assert logs.futures.log_dir_of(A) is logs.directories[1]


def test_a_copy_alone_is_promoted_where_the_metadata_have_it() -> None:
    """The old log's directory was marked as deleted before the crash."""
    world = World()
    world.begin()
    world.disks[0].rename("a-0", "a-0.0123-delete")
    world.start(0)
    assert world.names()[1] == ["a-0-future"]
    logs = world.start(1)
    assert world.names()[1] == ["a-0"]
    log = logs.get(A)
    assert log is not None
    assert log.log_end_offset == 2
    assert not logs.futures


@pytest.mark.parametrize("assigned", [0, 1])
def test_a_copy_does_not_wait_for_a_directory_that_failed(assigned: int) -> None:
    """As in Kafka the metadata decide; of two logs they decide as well once it is back."""
    world = World()
    world.begin()
    logs = world.start(assigned, lost=0)
    assert [one.is_online for one in logs.directories] == [False, True]
    assert (logs.get(A) is None, bool(logs.futures)) == (not assigned, not assigned)
    assert world.names()[1] == (["a-0"] if assigned else ["a-0-future"])
    logs = world.start(assigned)
    assert logs.log_dir_of(A) is logs.directories[assigned]


@pytest.mark.parametrize("assigned", [0, 1])
def test_of_two_logs_the_one_in_the_metadata_is_kept(assigned: int) -> None:
    """Power failed during an exchange, and one of its two renames was lost."""
    world = World()
    world.begin()
    (name,) = [one for one in world.disks[1].list() if one.endswith("-future")]
    world.disks[1].rename(name, "a-0")
    logs = world.start(assigned)
    assert world.names()[assigned] == ["a-0"]
    assert world.names()[1 - assigned] == ["a-0-delete"]
    assert logs.log_dir_of(A) is logs.directories[assigned]


def test_two_logs_that_the_metadata_do_not_know_end_the_start() -> None:
    """As in Kafka; nothing says which one to keep."""
    world = World()
    world.begin()
    (name,) = [one for one in world.disks[1].list() if one.endswith("-future")]
    world.disks[1].rename(name, "a-0")
    IDS.append(Uuid(b"x" * 16))
    try:
        with pytest.raises(KafkaError, match="Duplicate log directories found for a-0"):
            world.start(2)
    finally:
        IDS.pop()


def test_a_damaged_copy_is_removed() -> None:
    """The log is there: nothing is lost, and the move can be requested again."""
    world = World()
    world.begin()
    future = world.logs.futures.get(A)
    assert future is not None
    finish(world.logs.flushes.take_whole(future, NOW_MS))
    world.logs.checkpoints.request_all()
    drain(world.logs)
    world.disks[1].flip_bit(f"{future.name}/00000000000000000000.log", 80, 1)
    logs = world.start(1)
    assert (logs.futures.get(A), logs.broken) == (None, {})
    finish(logs.removals.take_due(NOW_MS))
    assert world.names() == [["a-0"], []]


def test_a_copy_without_a_topic_id_begins_again() -> None:
    """Power failed while it was made: it may be of another topic of that name."""
    world = World()
    world.begin()
    (name,) = [one for one in world.disks[1].list() if one.endswith("-future")]
    world.disks[1].remove(f"{name}/partition.metadata")
    logs = world.start(1)
    future = logs.futures.get(A)
    assert future is not None
    assert (future.log_end_offset, future.topic_id) == (0, TOPIC_ID)


@pytest.mark.parametrize("is_source", [True, False])
def test_a_disk_that_fails_in_an_exchange(is_source: bool) -> None:  # noqa: FBT001 - parametrized
    """Only its own directory goes offline; the partition keeps a log that is in the other one."""
    world = World()
    world.begin()
    failing = world.disks[0 if is_source else 1]
    failing.fail(lambda call: call.kind == "rename")
    with pytest.raises(KafkaError) as refused:
        world.logs.futures.promote(A, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.names() == [["a-0"], ["a-0-future"]]
    assert [one.is_online for one in world.logs.directories] == [not is_source, is_source]
    assert (world.logs.get(A) is None) is is_source


def test_no_copy_is_made_while_a_directory_is_offline() -> None:
    """It may have one already."""
    world = World()
    make(world.logs)
    world.logs.fail(world.logs.directories[1], OSError("gone"))
    with pytest.raises(KafkaError, match="because log directories /d1 are offline"):
        world.copy()


def test_a_second_copy_is_deleted() -> None:
    """Of one partition there is one copy."""
    world = World()
    world.begin()
    world.disks[0].make(f"a-0.{0:032x}-future")
    topic = world.disks[0].read_file("a-0/partition.metadata")
    world.disks[0].write_file_atomically(f"a-0.{0:032x}-future/partition.metadata", topic)
    world.start(0)
    assert sorted([*world.names()[0], *world.names()[1]]) == ["a-0", "a-0-delete", "a-0-future"]
