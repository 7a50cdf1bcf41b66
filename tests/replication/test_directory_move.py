"""A replica's copy in another log directory: copied, truncated, exchanged, step by step."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.errors import CorruptMessage
from ottla.records.builder import encode_batch
from ottla.replication import directory_move
from ottla.replication.directory_move import DirectoryMove, MoveState, Need, Read
from ottla.replication.partition import Partition
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.config import LogConfig
from ottla.storage.log.leader_epochs import EpochEntry
from ottla.storage.log.truncation import RemoteState
from ottla.storage.producers.snapshot import encode_snapshot
from ottla.testing.disk import SimulatedDisk
from ottla.types import FileSlice
from tests.storage.logs import NOW_MS, TOPIC_ID, flush, new_log, send
from tests.storage.sets import A, drain, finish, make, open_set

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog

SEGMENTS = LogConfig(segment_bytes=2500, index_interval_bytes=150, segment_index_bytes=1200)
NEVER = 1000
"""Turns after which a move that does not end is an error."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_move, "READ_BYTES", 700)
    monkeypatch.setattr(directory_move, "APPEND_BATCHES", 2)


class World:
    """One partition in the first of two directories, on its way to the second."""

    def __init__(self) -> None:
        self.logs = open_set(SimulatedDisk(0), SimulatedDisk(1), config=SEGMENTS)
        log = make(self.logs)
        self.source = self.logs.log_dir_of(A)
        self.target = next(one for one in self.logs.directories if one is not self.source)
        self.partition = Partition(A, TOPIC_ID, log)
        future = self.logs.futures.create(A, self.target, topic_id=TOPIC_ID, now_ms=NOW_MS)
        self.move = DirectoryMove(self.partition, future)

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    def append(self, count: int = 1, *, epoch: int = 0, size: int = 60) -> None:
        """Append a batch as a leader of an epoch."""
        if epoch > self.log.latest_epoch:
            self.log.assign_epoch(epoch)
        records = [(NOW_MS, None, b"v" * size, ()) for _ in range(count)]
        batch = memoryview(encode_batch(records))
        self.log.writes.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW_MS)
        self.log.update_high_watermark(self.log.log_end_offset)

    def poll(self) -> Read | Need:
        return self.move.poll(NOW_MS)

    def flush(self) -> None:
        finish(self.logs.flushes.take_whole(self.move.future, NOW_MS))
        self.move.flushed()

    def advance(self) -> Need:
        """Do what the move needs until it needs the controller or the exchange."""
        for _ in range(NEVER):
            need = self.poll()
            if isinstance(need, Read):
                self.move.received(need, need.piece.read())
            elif need is Need.FLUSH:
                self.flush()
            elif need is not Need.TURN:
                return need
        raise AssertionError("the move does not end")

    def exchange(self) -> None:
        self.move.state = MoveState.ASSIGNED
        assert self.advance() is Need.EXCHANGE
        before = content(self.log)
        epochs = list(self.log.leader_epochs.entries)
        marks = self.log.high_watermark, self.log.log_start_offset
        self.partition.log = self.logs.futures.promote(A, now_ms=NOW_MS)
        assert content(self.log) == before
        assert self.log.leader_epochs.entries == epochs
        assert (self.log.high_watermark, self.log.log_start_offset) == marks


def content(log: PartitionLog) -> bytes:
    """Return all bytes from the batch that holds the log's start on."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        found, _ = log.reads.find(offset, 1, FetchIsolation.LOG_END, True)
        assert isinstance(found, FileSlice)
        data += found.read()
        offset = log.segments[log.segments.number_for(offset)].batch_at(offset).last_offset + 1  # type: ignore[union-attr]
    return data


def test_only_the_exchange_needs_a_copy_that_is_as_durable_as_the_log() -> None:
    """The controller is told of the directory also while the log is flushed all the time."""
    world = World()
    world.append()
    assert world.advance() is Need.ASSIGNMENT
    world.append()
    finish(world.logs.flushes.take_whole(world.log, NOW_MS))
    assert world.log.recovery_point == 2
    while isinstance(need := world.poll(), Read):
        world.move.received(need, need.piece.read())
    assert need is Need.ASSIGNMENT
    world.move.state = MoveState.ASSIGNED
    world.append()
    finish(world.logs.flushes.take_whole(world.log, NOW_MS))
    while isinstance(need := world.poll(), Read):
        world.move.received(need, need.piece.read())
    assert need is Need.FLUSH
    world.flush()
    assert world.poll() is Need.EXCHANGE


def test_a_replica_is_copied_flushed_announced_and_exchanged() -> None:
    """In this order; the old directory is deleted, the new one has the partition's name."""
    world = World()
    for _ in range(30):
        world.append()
    assert world.advance() is Need.ASSIGNMENT
    assert world.move.future.recovery_point == 30
    world.append()
    assert world.move.lag == 1
    assert world.advance() is Need.ASSIGNMENT
    world.exchange()
    assert world.logs.log_dir_of(A) is world.target
    names = [one for one in world.target.directory.list() if one.startswith("a-0")]
    assert names == ["a-0"]
    world.append()
    assert world.log.log_end_offset == 32
    drain(world.logs)
    finish(world.logs.removals.take_due(NOW_MS + 100_000))
    assert world.source is not None
    assert not [one for one in world.source.directory.list() if one.startswith("a-0")]


def test_what_was_read_before_a_truncation_is_dropped() -> None:
    """The file may have other bytes there by now."""
    world = World()
    for _ in range(12):
        world.append()
    need = world.poll()
    assert isinstance(need, Read)
    data = need.piece.read()
    world.log.truncation.truncate_to(1, now_ms=NOW_MS)
    flush(world.log)
    world.append(epoch=1, size=70)
    world.move.received(need, data)
    assert world.advance() is Need.ASSIGNMENT
    world.exchange()


def test_a_log_that_starts_within_a_batch() -> None:
    """The batch comes whole, as the log has it; the copy starts at the same offset."""
    world = World()
    for _ in range(4):
        world.append(10)
    world.log.truncation.delete_records_before(25)
    world.exchange()
    assert world.log.log_start_offset == 25


def test_damaged_records_are_not_copied() -> None:
    """The copy checks the CRC of each batch."""
    world = World()
    world.append()
    need = world.poll()
    assert isinstance(need, Read)
    data = bytearray(need.piece.read())
    data[-1] ^= 1
    world.move.received(need, bytes(data))
    with pytest.raises(CorruptMessage, match="Record is corrupt"):
        world.poll()
    with pytest.raises(CorruptMessage, match="no whole batch"):
        world.move.received(need, bytes(data[:-1]))


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_of_a_log_that_moves(seed: int) -> None:
    """Appends, truncations, new epochs, a moving start, flushes: the logs are equal in the end."""
    world, rng, epoch = World(), Random(seed), 0
    for _ in range(150):
        action = rng.randrange(12)
        if action < 5:
            world.append(rng.randint(1, 4), epoch=epoch, size=rng.randint(1, 300))
        elif action == 5:
            epoch += 1
            world.log.assign_epoch(epoch)
        elif action == 6:
            log = world.log
            to = rng.randint(log.log_start_offset, log.log_end_offset)
            world.log.truncation.truncate_to(to, now_ms=NOW_MS)
            flush(world.log)
            epoch += 1
        elif action == 7 and rng.random() < 0.3:
            to = rng.randint(world.log.log_start_offset, world.log.high_watermark)
            world.log.truncation.delete_records_before(to)
        elif action == 8:
            drain(world.logs)
        else:
            need = world.poll()
            if isinstance(need, Read):
                world.move.received(need, need.piece.read())
            elif need is Need.FLUSH:
                world.flush()
    world.exchange()


def test_a_tiered_log_is_copied_from_where_its_disk_begins() -> None:
    """The copy has the starts, epochs and producers of what is in remote storage alone."""
    world = World()
    writer = new_log()
    send(writer, 7, 0)
    producers = writer.producer_state.entries_for_worker()
    before = RemoteState(2, [EpochEntry(0, 0), EpochEntry(1, 5)], producers)
    world.log.truncation.truncate_fully_and_start_at(9, now_ms=NOW_MS, before=before)
    for _ in range(20):
        world.append(epoch=2)
    world.move.state = MoveState.ASSIGNED
    assert world.advance() is Need.EXCHANGE
    current, future = world.log, world.move.future
    for log in (current, future):
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (2, 9, 29)
        assert log.leader_epochs.entries == [(0, 2), (1, 5), (2, 9)]
        assert encode_snapshot(log.producer_state.producers.values()) == encode_snapshot(producers)
    assert future.directory.exists(future.producer_state.snapshot_path(9))
