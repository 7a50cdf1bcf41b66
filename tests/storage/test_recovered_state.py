"""Recovered state equals live state: whatever a log went through, it says what its batches say.

A leader writes a random history. Replicas take it in random chunks, are started again from any
snapshot, killed, cut off from power, truncated before and after flushes and copied to another
directory. After each of these, producers, open transactions, the last stable offset, the
transaction index, leader epochs, and what lookups and readers get are those of `Model`, which
reads the same batches one by one.

Run more with OTTLA_HISTORIES=20000; a failure names its seed, `replay(seed)` repeats it.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.replication.log_copy import append_copied
from ottla.storage.batches import leading_batches_size
from ottla.storage.log.config import LogConfig
from ottla.testing.disk import SimulatedDisk
from tests.soaks import with_soaks
from tests.storage.histories import (
    HistoryWriter,
    Model,
    check_index,
    check_producers,
    check_reads,
    check_snapshots,
    check_time,
)
from tests.storage.logs import NOW_MS, close, content, flush, new_log

if TYPE_CHECKING:
    from tests.storage.histories import Batch

HISTORIES = int(os.environ.get("OTTLA_HISTORIES", "200"))
GROUPS = 8
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=150, segment_index_bytes=4000)


class Replica:
    """A log on a disk of its own that takes a history's batches."""

    def __init__(self, rng: Random, branches: list[list[Batch]], branch_offset: int) -> None:
        """Take the first branch; a truncation to branch_offset or below may change to the next."""
        self.rng = rng
        self.batches, *self._others = branches
        self._branch_offset = branch_offset
        self.disk = SimulatedDisk(rng.getrandbits(32))
        self.log = new_log(self.disk, config=CONFIG)
        self.is_reloaded = False
        """Whether markers may be above the high watermark that a snapshot precedes."""
        self.what: list[str] = []

    def step(self) -> None:
        """Do something random, then compare."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.62:
            self.fetch()
        elif kind < 0.72:
            self._restart()
        elif kind < 0.84:
            self._crash()
        elif kind < 0.94:
            self._truncate()
        elif self.log.segments.active.size:
            self.what.append("roll")
            self.log.roll(NOW_MS)
        if rng.random() < 0.3:
            flush(self.log)
        self.check()

    def fetch(self, max_bytes: int | None = None) -> None:
        """Append whole batches of a random number of bytes."""
        size = max_bytes or self.rng.choice((1, 300, 1000, 1900))
        chunk = b""
        for batch in self.batches[self._position :]:
            if chunk and len(chunk) + len(batch.data) > size:
                break
            chunk += batch.data
        self.what.append(f"fetch {len(chunk)} at {self.log.log_end_offset}")
        append_copied(self.log, chunk, leader_epoch=1 << 30, now_ms=NOW_MS)
        log = self.log
        log.update_high_watermark(self.rng.randint(log.high_watermark, log.log_end_offset))

    @property
    def _position(self) -> int:
        """How many batches the log has."""
        offsets = [batch.base_offset for batch in self.batches]
        return bisect_left(offsets, self.log.log_end_offset)

    def _open(self, *, clean: bool) -> None:
        log = self.log
        high_watermark = min(log.high_watermark, self.rng.choice((0, log.high_watermark)))
        self.log = new_log(self.disk, config=CONFIG, clean=clean, recovery_point=log.recovery_point)
        self.is_reloaded = True
        self.log.update_high_watermark(max(high_watermark, 0))

    def _restart(self) -> None:
        self.what.append("restart")
        close(self.log)
        self._open(clean=True)

    def _crash(self) -> None:
        """Kill the process, or cut the power."""
        is_power = self.rng.random() < 0.6
        self.what.append("power loss" if is_power else "kill")
        (self.disk.crash if is_power else self.disk.kill)()
        self._open(clean=False)

    def _truncate(self) -> None:
        """Cut the log as a new leader requires; what happens before the flush may be anything."""
        log, rng = self.log, self.rng
        lowest = log.high_watermark if rng.random() < 0.7 else log.recovery_point
        offset = rng.randint(min(lowest, log.log_end_offset), log.log_end_offset)
        is_other = bool(self._others) and rng.random() < 0.5
        if is_other:
            offset = min(offset, self._branch_offset)
        self.what.append(f"truncate to {offset}{' of another leader' if is_other else ''}")
        if not log.truncation.truncate_to(offset, now_ms=NOW_MS):
            return
        self.is_reloaded = True
        still_open = [one.first_offset for one in self.model().open]
        assert log.last_stable_offset <= min([log.high_watermark, *still_open])
        if rng.random() < 0.3:  # another one before the flush
            offset = rng.randint(min(log.high_watermark, offset), log.log_end_offset)
            log.truncation.truncate_to(offset, now_ms=NOW_MS)
        if rng.random() < 0.4:
            self._crash()  # what was cut may be back
            return
        flush(log)
        if is_other:
            self.batches = self._others.pop()

    def model(self) -> Model:
        """Return what the batches in the log mean."""
        return Model(self.batches[: self._position])

    # What must be equal

    def check(self) -> None:
        """Compare everything with the model."""
        model, log = self.model(), self.log
        assert log.log_end_offset >= model.end_offset
        check_producers(log, model)
        check_index(log, model)
        exact = model.last_stable_offset(log.high_watermark)
        if self.is_reloaded:  # a snapshot does not say which markers are replicated
            open_offsets = [one.first_offset for one in model.open]
            assert exact <= log.last_stable_offset <= min([log.high_watermark, *open_offsets])
        else:
            assert log.last_stable_offset == exact
        check_reads(log, model, self.rng)
        check_time(log, model, NOW_MS + self.rng.randint(-600, 600))
        if self.rng.random() < 0.3:
            check_snapshots(log, self.batches, self.disk)


def check_leader(writer: HistoryWriter) -> None:
    """Compare a leader's log, which got its batches one by one."""
    leader, model = writer.leader, Model(writer.batches)
    check_producers(leader, model)
    check_index(leader, model)
    assert leader.last_stable_offset == model.last_stable_offset(leader.high_watermark)


def write(writer: HistoryWriter, count: int) -> None:
    """Let a leader write, and its followers follow."""
    leader, rng = writer.leader, writer.rng
    for _ in range(count):
        writer.step()
        if rng.random() < 0.2:
            leader.update_high_watermark(rng.randint(leader.high_watermark, leader.log_end_offset))
    check_leader(writer)


def replay(seed: int) -> None:
    """Run one history."""
    rng = Random(seed)
    writers = [HistoryWriter(rng, new_log(config=CONFIG))]
    write(writers[0], rng.randint(5, 40))
    branch_offset = writers[0].leader.log_end_offset
    if rng.random() < 0.5:
        leader = new_log(config=CONFIG)
        for batch in writers[0].batches:
            append_copied(leader, batch.data, leader_epoch=1 << 30, now_ms=NOW_MS)
        writers.append(writers[0].branched(leader))
        write(writers[1], rng.randint(1, 25))
    write(writers[0], rng.randint(1, 25))
    share = rng.choice((0.0, 0.0, 0.1, 0.4))
    branches = [writer.compacted(share, seed) for writer in writers]
    replica = Replica(rng, branches, branch_offset)
    try:
        for _ in range(rng.randint(3, 25)):
            replica.step()
        while replica.log.log_end_offset <= replica.batches[-1].last_offset:
            replica.fetch()
        replica.log.update_high_watermark(replica.log.log_end_offset)
        replica.is_reloaded = False  # what is above the high watermark is nothing now
        replica.check()
        check_copy(rng, replica)
    except BaseException as error:
        error.add_note(f"replay({seed}): {', '.join(replica.what)}")
        raise


def check_copy(rng: Random, source: Replica) -> None:
    """Copy the log as a move to another directory does, and compare the copy."""
    copy = Replica(rng, [source.batches], 0)
    while copy.log.log_end_offset < source.log.log_end_offset:
        found = source.log.reads.read(copy.log.log_end_offset, rng.choice((100, 1000, 1900)))
        data = content(found.records)
        size = leading_batches_size(data, rng.choice((1, 3, 100)))
        append_copied(copy.log, data[:size], leader_epoch=1 << 30, now_ms=NOW_MS)
    copy.log.update_high_watermark(source.log.high_watermark)
    copy.check()
    flush(copy.log)
    copy._crash()
    copy.log.update_high_watermark(copy.log.log_end_offset)
    copy.check()


@pytest.mark.parametrize("group", with_soaks(range(GROUPS), count=2))
def test_a_log_says_what_its_batches_say(group: int) -> None:
    """Random histories with restarts, crashes, truncations and copies at random points."""
    for seed in range(group, HISTORIES, GROUPS):
        replay(seed)
