"""Idle partitions of fetch sessions are looked at again when their replica changes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest

from ottla.purgatory.purgatory import Purgatory
from ottla.replication.delayed_fetch import DelayedFetch
from ottla.replication.fetch_session import FetchSession, FetchSessionCache
from ottla.storage.log.append_info import FetchIsolation
from tests.replication.test_fetch_session import request
from tests.replication.test_leader_state import EPOCHS, LAG_MS, NOW_MS, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel
    from ottla.replication.partition import Partition


class Timer:
    """Never expires."""

    def add(self, _deadline_ms: int, _callback: object) -> TimerTask:
        """Return a task that can be cancelled."""
        return cast("TimerTask", self)

    def cancel(self) -> None:
        """Take note of nothing."""


class Follower:
    """The session of broker 2 with three partitions that broker 1 leads, all of them idle."""

    def __init__(self) -> None:
        self.worlds = [World() for _ in range(3)]
        self.partitions: list[Partition] = [world.partition for world in self.worlds]
        self.cache = FetchSessionCache(1, random.Random(1))
        begins = request(0, 1, 2)._replace(replica_id=2, replica_epoch=EPOCHS[2])
        session = self.cache.session_of(begins, 12, 0)
        assert session is not None
        self.session: FetchSession = session
        self.purgatory: Purgatory[DelayedFetch] = Purgatory("Fetch", cast("TimingWheel", Timer()))
        for cached, world in zip(session.partitions.values(), self.worlds, strict=True):
            cached.found(world.partition)
            world.fetch(2, 0)
            world.fetch(3, 0)
            session.unchanged(cached)
            session.unchanged(cached)
        session.last_fetch_ms = NOW_MS + 10 * LAG_MS

    def active(self) -> list[int]:
        """Return the indexes of those that a fetch looks at."""
        return [cached.key[2] for cached in self.session.active()]

    def wait(self) -> DelayedFetch:
        """Return a fetch that waits for one byte of any partition."""
        delayed = DelayedFetch(0, {}, 1, lambda: None, isolation=FetchIsolation.LOG_END)
        self.purgatory.try_complete_else_watch(delayed, ())
        self.session.wait(delayed, self.purgatory)
        return delayed


@pytest.fixture
def follower() -> Follower:
    """Return a session with three idle partitions."""
    return Follower()


def test_a_partition_is_idle_when_it_was_unchanged_twice_in_turn() -> None:
    """One that is read at its end is unchanged once before each record, and stays active."""
    follower = Follower()
    assert follower.active() == []
    session = follower.session
    cached = next(iter(session.partitions.values()))
    follower.partitions[0].changed()
    session.unchanged(cached)
    assert follower.active() == [0]
    session.unchanged(cached)
    assert follower.active() == []


@pytest.mark.parametrize("is_ended", [False, True])
def test_what_left_its_session_meanwhile_is_not_watched(*, is_ended: bool) -> None:
    """A fetch in turns goes on after the session has ended, or forgot some of its partitions."""
    follower = Follower()
    session = follower.session
    session.activate_all()
    cached = next(iter(session.partitions.values()))
    if is_ended:
        end = request(session_id=session.session_id, epoch=-1)
        assert follower.cache.session_of(end, 12, 0) is None
    else:
        session.forget(cached.key)
    for _ in range(3):
        session.unchanged(cached)
    assert not follower.partitions[0]._watching


def _append(world: World) -> None:
    world.partition.changed()  # as `ReplicaSet.append` does
    world.append()


def _delete_records(world: World) -> None:
    world.append()
    world.fetch(2, 1)
    world.fetch(3, 1)
    world.partition.log.truncation.delete_records_before(-1)


def _new_epoch(world: World) -> None:
    world.partition.become_leader(1, 6)


def _resign(world: World) -> None:
    world.partition.resign(3, 6)


def _leave_the_isr(world: World) -> None:
    world.partition.assign((1, 2, 3), (1, 3), 8)
    world.partition.become_leader(1, 5)


CHANGES = (_append, _delete_records, _new_epoch, _resign, _leave_the_isr)


@pytest.mark.parametrize("change", CHANGES)
def test_an_idle_partition_that_changed_is_looked_at(
    follower: Follower, change: Callable[[World], None]
) -> None:
    """Each change that a response or the in-sync set depends on makes it active."""
    change(follower.worlds[1])
    assert follower.active() == [1]


def test_active_partitions_are_in_the_order_of_the_session(follower: Follower) -> None:
    """Not in the order of their changes."""
    for index in (2, 0, 1):
        follower.partitions[index].changed()
    assert follower.active() == [0, 1, 2]


def test_a_waiting_fetch_completes_when_an_idle_partition_gets_records(follower: Follower) -> None:
    """It did not watch the partition when it began to wait."""
    delayed = follower.wait()
    _append(follower.worlds[0])
    assert follower.purgatory.check_and_complete(follower.partitions[0].log) == 1
    assert delayed.is_completed
    assert follower.purgatory.watched_count == 0


def test_a_follower_of_an_idle_partition_is_caught_up_until_its_last_fetch(
    follower: Follower,
) -> None:
    """The first record after a long silence does not make it lag."""
    world = follower.worlds[0]
    world.fetch(3, 0, follower.session.last_fetch_ms)
    _append(world)
    world.leading.check_lag(follower.session.last_fetch_ms + LAG_MS)
    assert not world.environment.proposed
    world.leading.check_lag(follower.session.last_fetch_ms + LAG_MS + 1)
    assert [proposal.ids for proposal in world.environment.proposed] == [(1,)]


def test_replicas_forget_a_session_that_ended(follower: Follower) -> None:
    """Neither a forgotten partition nor an ended session is kept by a replica."""
    session = follower.session
    forgets = request(session_id=session.session_id, epoch=1, forgotten=(0,))
    follower.cache.session_of(forgets, 12, 0)
    follower.partitions[0].changed()
    assert follower.active() == []
    ends = request(session_id=session.session_id, epoch=-1)
    follower.cache.session_of(ends, 12, 0)
    follower.partitions[1].changed()
    assert follower.active() == []


def test_a_partition_that_a_request_names_is_active(follower: Follower) -> None:
    """Its position changed."""
    session = follower.session
    named = request(1, session_id=session.session_id, epoch=1)
    follower.cache.session_of(named, 12, 0)
    assert follower.active() == [1]
