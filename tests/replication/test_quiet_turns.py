"""A follower's fetch with little to give waits until appends pause for a turn of the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import pytest

from ottla.replication.replica_set import MAX_TURNS, ReplicaSet
from ottla.testing.disk import SimulatedDisk
from ottla.testing.simulation import SimulatedCluster
from tests.storage.sets import open_set

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(("busy_turns", "turns"), [(0, 2), (1, 3), (3, 5), (100, MAX_TURNS + 1)])
def test_it_waits_for_a_turn_without_appends(busy_turns: int, turns: int) -> None:
    """Also when the first turn appends nothing; not for ever."""
    soon: deque[Callable[[], None]] = deque()
    replicas = ReplicaSet(1, open_set(SimulatedDisk()), call_soon=soon.append)
    called: list[bool] = []
    replicas.when_quiet(lambda: called.append(True))
    count = 0
    while soon:
        assert not called
        soon.popleft()()
        count += 1
        if count <= busy_turns:
            replicas.append_count += 1
    assert called == [True]
    assert count == turns


@pytest.mark.parametrize(("acknowledged", "turns"), [(0, 1), (1, 1), (2, 2), (16, 2), (17, 1)])
def test_followers_are_woken_when_a_few_producers_have_sent(acknowledged: int, turns: int) -> None:
    """Others run between the turns; one producer, and many, are not waited for."""
    soon: deque[Callable[[], None]] = deque()
    yielded: list[bool] = []
    replicas = ReplicaSet(
        1,
        open_set(SimulatedDisk()),
        call_soon=soon.append,
        yield_processor=lambda: yielded.append(True),
    )
    replicas._wake_followers_soon(acknowledged)
    count = 0
    while soon:
        soon.popleft()()
        count += 1
    assert (count, len(yielded)) == (turns, turns - 1)


def test_a_fetch_with_little_to_give_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """And both replicas have all records of several producers in the end."""
    cluster = SimulatedCluster(3, nodes=2)
    when_quiet = ReplicaSet.when_quiet
    count = 0

    def counted(
        replicas: ReplicaSet,
        callback: Callable[[], None],
        between: Callable[[], None] | None = None,
    ) -> None:
        nonlocal count
        count += 1
        when_quiet(replicas, callback, between)

    monkeypatch.setattr(ReplicaSet, "when_quiet", counted)

    async def produce() -> None:
        async with cluster.producer(acks="all") as producer:
            for number in range(20):
                await producer.send_and_wait("t", b"%d" % number)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 2)
        await asyncio.gather(*(produce() for _ in range(8)))
        nodes = [host.node for host in cluster if host.node is not None]
        ends = [node.broker.replicas.get("t", 0).log.log_end_offset for node in nodes]
        assert ends == [160, 160]
        await cluster.stop()

    cluster.run(work())
    assert 0 < count < 160
