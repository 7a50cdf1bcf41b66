"""Pauses of a process in virtual time: SIGSTOP, a frozen machine, long turns of its event loop."""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pytest

from ottla import NewTopic
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.purgatory.work import Worker
from ottla.replication import fetcher
from ottla.replication.leader_state import LeaderState
from ottla.server.broker import publisher
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_set.checkpoint_queue import CheckpointJob
from ottla.testing.disk import SimulatedDisk
from ottla.testing.simulation import SimulatedCluster
from ottla.testing.simulation.loop import LongTurn
from tests.storage.logs import NOW_MS, flush, new_log, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.purgatory.work import Work

PARTITIONS = 30
LIMIT = 10
"""Partitions that one turn may change, instead of hundreds."""


def test_a_paused_leader_is_replaced_and_follows_when_it_goes_on() -> None:
    """Its connections stay open; it learns late that another one leads."""
    cluster = SimulatedCluster(31, config={"broker.session.timeout.ms": "3000"})

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin, cluster.producer(acks="all") as producer:
            await admin.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})])
            await producer.send_and_wait("t", b"before")
            cluster.pause(1)
            placed = await producer.send_and_wait("t", b"meanwhile")
            assert placed.offset == 1
            assert cluster[1].is_alive
            cluster.resume(1)
            async with asyncio.timeout(20):
                while not _is_follower(cluster):  # noqa: ASYNC110 - virtual time costs nothing
                    await asyncio.sleep(0.1)

    cluster.run(work())


def _is_follower(cluster: SimulatedCluster) -> bool:
    node = cluster[1].node
    assert node is not None
    found = node.broker.replicas.find("t", 0)
    return found is not None and not found.is_leader and found.log.log_end_offset == 2


def test_a_long_turn_fails_a_run() -> None:
    """Work that is charged to one turn of a node beyond the limit is reported with its parts."""
    cluster = SimulatedCluster(32, nodes=1)
    cluster.loop.turn_limit_us = 10_000

    async def work() -> None:
        await cluster.start()
        process = cluster[1].process
        assert process is not None

        def compute() -> None:
            for _ in range(11):
                cluster.loop.charge("sums", 1_000_000)

        cluster.loop.call_soon(compute, context=process.context())
        await asyncio.sleep(1)

    with pytest.raises(LongTurn, match="11 sums 11000 us"):
        cluster.run(work())


class CallsInATurn:
    """Counts the calls of a method in each turn of a simulated cluster's loop."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        cluster: SimulatedCluster,
        owner: type,
        name: str,
    ) -> None:
        self.longest = self.total = self._count = 0
        method: Callable[..., Any] = getattr(owner, name)
        thread = get_ident()  # real nodes of other tests run in others

        def counted(*arguments: Any, **options: Any) -> Any:
            if get_ident() == thread:
                self._count += 1
            return method(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)
        cluster.loop.on_turn = self._turn_ended

    def _turn_ended(self) -> None:
        self.longest = max(self.longest, self._count)
        self.total += self._count
        self._count = 0


def _led(cluster: SimulatedCluster, node_id: int) -> list[LeaderState]:
    node = cluster[node_id].node
    assert node is not None
    return [one.leading for one in node.broker.replicas if one.leading is not None]


def _limit_steps(cluster: SimulatedCluster) -> None:
    node = cluster[1].node
    assert node is not None
    node.broker.worker.max_steps = LIMIT


async def _create(cluster: SimulatedCluster, replicas: list[int]) -> None:
    async with cluster.admin() as admin:
        assignments = dict.fromkeys(range(PARTITIONS), replicas)
        await admin.create_topics([NewTopic("t", assignments=assignments)])
    await asyncio.sleep(2)


def test_a_setting_of_brokers_changes_some_logs_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """All logs of the broker have it in the end, also those of a topic changed meanwhile."""
    monkeypatch.setattr(publisher, "PARTITIONS_AT_ONCE", 1)
    cluster = SimulatedCluster(33, nodes=1)

    async def work() -> None:
        await cluster.start()
        await _create(cluster, [1])
        _limit_steps(cluster)
        calls = CallsInATurn(monkeypatch, cluster, PartitionLog, "reconfigure")
        async with cluster.admin() as admin:
            brokers, topic = (
                ConfigResource(ResourceType.BROKER, ""),
                ConfigResource(ResourceType.TOPIC, "t"),
            )
            await admin.alter_configs({brokers: {"log.retention.ms": "7200000"}})
            await admin.alter_configs({topic: {"retention.ms": "3600000"}})
        await asyncio.sleep(1)
        node = cluster[1].node
        assert node is not None
        found = [one.log.config.retention_ms for one in node.broker.replicas if not one.is_internal]
        assert found == [3_600_000] * PARTITIONS
        assert calls.longest <= LIMIT < calls.total

    cluster.run(work())


@pytest.mark.soak
def test_lagging_followers_are_checked_some_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower of all partitions that stops leaves the ISR of each."""
    cluster = SimulatedCluster(34, config={"replica.lag.time.max.ms": "2000"})

    async def work() -> None:
        await cluster.start()
        await _create(cluster, [1, 2])
        _limit_steps(cluster)
        calls = CallsInATurn(monkeypatch, cluster, LeaderState, "check_lag")
        cluster.partition([1, 3, "client"], [2])
        async with cluster.producer(acks="1") as producer:
            for index in range(PARTITIONS):
                await producer.send("t", b"v", partition=index)
        await asyncio.sleep(6)
        assert {len(one.partition.isr) for one in _led(cluster, 1)} == {1}
        assert calls.longest <= LIMIT < calls.total

    cluster.run(work())


def test_a_full_fetch_names_some_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session begins with some; the others follow at once."""
    monkeypatch.setattr(fetcher, "NAMED_AT_ONCE", LIMIT)
    cluster = SimulatedCluster(35)

    async def work() -> None:
        await cluster.start()
        await _create(cluster, [1, 2])
        requests: list[int] = []
        make = fetcher.ReplicaFetcher._fetch_request

        def made(one: fetcher.ReplicaFetcher) -> Any:
            request = make(one)
            requests.append(len(request.partitions))
            return request

        monkeypatch.setattr(fetcher.ReplicaFetcher, "_fetch_request", made)
        cluster.kill(2)
        await cluster.start(2)
        await asyncio.sleep(1)
        assert max(requests) == LIMIT
        assert sum(requests) >= PARTITIONS
        async with cluster.producer(acks="all") as producer:
            sent = [producer.send("t", b"v", partition=index) for index in range(PARTITIONS)]
            await asyncio.wait_for(asyncio.gather(*sent), 10)

    cluster.run(work())


def test_checkpoints_collect_some_logs_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker writes them when the offsets of all logs are collected."""
    cluster = SimulatedCluster(
        36,
        nodes=1,
        config={
            "log.flush.interval.messages": "1",
            "log.flush.offset.checkpoint.interval.ms": "1000",
            "replica.high.watermark.checkpoint.interval.ms": "1000",
        },
    )

    async def work() -> None:
        await cluster.start()
        await _create(cluster, [1])
        node = cluster[1].node
        assert node is not None
        counts: list[int] = []
        collect, begin_turn = CheckpointJob.collect, Worker._begin_turn

        def collected(job: CheckpointJob) -> Work[None]:
            for _ in collect(job):
                counts[-1] += not cluster.loop.is_in_worker
                yield

        def begun(worker: Worker) -> None:
            worker.max_steps = LIMIT
            counts.append(0)
            begin_turn(worker)

        monkeypatch.setattr(CheckpointJob, "collect", collected)
        monkeypatch.setattr(Worker, "_begin_turn", begun)
        async with cluster.producer(acks="all") as producer:
            sent = [producer.send("t", b"v", partition=index) for index in range(PARTITIONS)]
            await asyncio.gather(*sent)
        await asyncio.sleep(3)
        logs = node.broker.replicas.logs
        stored = logs.checkpoints.stored_recovery_point
        assert [stored(one) for one in logs if one.log_end_offset] == [1] * PARTITIONS
        assert sum(count > 0 for count in counts) > PARTITIONS // LIMIT
        assert max(counts) == LIMIT

    cluster.run(work())


def test_a_log_that_begins_again_removes_no_file_at_once() -> None:
    """Files of segments and snapshots of producers are renamed; a worker removes them later."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(40):
        send(log, 7, number)
    flush(log)
    assert len(log.producer_state.snapshots) == 2
    calls: list[str] = []
    disk.on_call = lambda kind, path, _size: calls.append(f"{kind} {path}")
    log.truncation.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    assert not [one for one in calls if one.startswith("remove")]
    assert [one for one in disk.list("t-0") if one.endswith(".snapshot.deleted")]
    log.release()
