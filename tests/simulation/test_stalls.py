"""A node's loop waits for no disk, and a slow disk does not delay the answers of a voter.

OTTLA_TEST_PARTITIONS=3000 truncates that many logs.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pytest

from ottla import NewTopic
from ottla.clients.admin.quotas import QuotaChange
from ottla.controller.controller import Controller
from ottla.controller.replayed_log import _RECORDS_PER_TURN
from ottla.controller.runtime import ControllerRuntime
from ottla.raft.driver import RaftDriver
from ottla.raft.requests import ReplicaKey, Vote
from ottla.testing.simulation import SimulatedCluster
from ottla.types import OffsetAndEpoch
from tests.waits import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.admin.admin import AsyncAdmin
    from ottla.metadata.framing import MessageAndVersion
    from ottla.purgatory.pending import Pending
    from ottla.raft.requests import Request
    from ottla.replication.partition import Partition
    from ottla.testing.simulation.node import SimulatedNode

PARTITIONS = int(os.environ.get("OTTLA_TEST_PARTITIONS", "120"))
STALL_US = 10_000_000
FETCH_TIMEOUT_S = 2.0
"""controller.quorum.fetch.timeout.ms"""
FLUSHES = {
    "broker.session.timeout.ms": "3000",
    "log.flush.interval.ms": "100",
    "log.flush.scheduler.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}
"""Recovery points are stored soon: a truncation has to lower them first."""
RECORDS = 28_800
RECORD_US = 100
"""How long the replay of a record takes: of all of them longer than the fetch timeout."""
LIMITS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)


class FileCalls:
    """Counts calls of files outside of workers, and flushes among them."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.flushes: list[str] = []
        self.truncations: dict[int, int] = {}
        """By moment."""
        for node in cluster:
            for disk in node.disks.values():
                disk.on_call = partial(self._called, disk.on_call)

    def _called(
        self, then: Callable[[str, str, int], None] | None, kind: str, path: str, size: int
    ) -> None:
        loop = self.cluster.loop
        if not loop.is_in_worker:
            if "sync" in kind:
                self.flushes.append(f"{kind} {path}")
            if kind == "truncate":
                self.truncations[loop.now_us] = self.truncations.get(loop.now_us, 0) + 1
        if then is not None:
            then(kind, path, size)


def _hosted(node: SimulatedNode) -> list[Partition]:
    return [] if node.node is None else list(node.node.broker.replicas)


def _are_in_sync(cluster: SimulatedCluster) -> bool:
    leaders = [one for node in cluster for one in _hosted(node) if one.is_leader]
    return len(leaders) == PARTITIONS and all(len(one.isr) == 3 for one in leaders)


async def _diverge(cluster: SimulatedCluster) -> None:
    """Let node 3 write to the partitions that it leads while the others elect new leaders."""
    async with cluster.producer(acks="1") as producer:
        for number in range(PARTITIONS):
            await producer.send("t", b"v", partition=number)
        await producer.flush()
        await asyncio.sleep(1)
        cluster.partition([3, "client"], [1, 2])
        for one in _hosted(cluster[3]):
            if one.is_leader:
                await producer.send("t", b"lost", partition=one.topic_partition.partition)
        await producer.flush()
    await asyncio.sleep(10)


class Answers:
    """The longest time that a voter needed to answer another one, a long poll included."""

    def __init__(self, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest_us = 0
        self.count = 0
        self._cluster = cluster
        self._waiting: dict[Pending[Any], int] = {}
        request, thread = RaftDriver.request, get_ident()

        def asked(driver: RaftDriver, question: Request) -> Pending[Any]:
            answer = request(driver, question)
            return self._asked(answer) if get_ident() == thread else answer  # else of a real node

        monkeypatch.setattr(RaftDriver, "request", asked)

    def _asked(self, answer: Pending[Any]) -> Pending[Any]:
        self._waiting[answer] = self._cluster.loop.now_us
        answer.on_done(self._answered)
        return answer

    def _answered(self, answer: Pending[Any]) -> None:
        self.longest_us = max(self.longest_us, self._until_now(answer))
        self.count += 1
        del self._waiting[answer]

    def _until_now(self, answer: Pending[Any]) -> int:
        return self._cluster.loop.now_us - self._waiting[answer]

    def are_in_time(self) -> bool:
        """Whether there are answers, each within half of the fetch timeout."""
        longest_us = max([self.longest_us, *map(self._until_now, self._waiting)])
        return self.count > 0 and longest_us < FETCH_TIMEOUT_S / 2 * 1e6


@pytest.mark.soak
def test_a_voter_answers_while_its_logs_are_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a leader's logs are cut below their stored recovery points; no flush is waited for."""
    cluster = SimulatedCluster(21, config=FLUSHES)

    async def work() -> None:
        await cluster.start()
        calls = FileCalls(cluster)
        async with cluster.admin() as admin:
            replicas = {number: [3, 1, 2] for number in range(PARTITIONS)}
            await admin.create_topics([NewTopic("t", assignments=replicas)])
        await until(lambda: _are_in_sync(cluster))
        await _diverge(cluster)
        assert all(one.log.log_end_offset > 1 for one in _hosted(cluster[3]))
        calls.truncations.clear()
        answers = Answers(cluster, monkeypatch)
        cluster.heal()
        await until(lambda: _are_in_sync(cluster))
        assert all(one.log.log_end_offset == 1 for node in cluster for one in _hosted(node))
        assert answers.are_in_time()
        assert calls.flushes == []
        assert sum(calls.truncations.values()) >= PARTITIONS
        assert len(calls.truncations) > 2, "some at a time"

    cluster.run(work())


def test_a_voter_answers_while_its_disk_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby's stall ends no epoch and delays no metadata change."""
    cluster = SimulatedCluster(22)

    async def work() -> None:
        await cluster.start()
        stalled = cluster[_standby(cluster)]
        async with cluster.admin() as admin:
            before = await admin.describe_metadata_quorum()
            answers = Answers(cluster, monkeypatch)
            stalled.disk_latency_us = (STALL_US, STALL_US)
            created = asyncio.create_task(admin.create_topics(["first", "second"]))
            await asyncio.sleep(STALL_US / 1e6)
            assert created.done()
            assert answers.are_in_time()
            stalled.disk_latency_us = (50, 3000)
            await created
            now = await admin.describe_metadata_quorum()
        assert answers.are_in_time()
        assert (now.leader_id, now.leader_epoch) == (before.leader_id, before.leader_epoch)

    cluster.run(work())


def test_another_controller_leads_while_the_disk_of_the_active_one_stalls() -> None:
    """It resigns after the fetch timeout, and follows when its disk works again."""
    cluster = SimulatedCluster(22)

    async def work() -> None:
        await cluster.start()
        stalled = cluster.active_controller
        assert stalled is not None
        async with cluster.admin() as admin:
            before = await admin.describe_metadata_quorum()
            stalled.disk_latency_us = (STALL_US, STALL_US)
            created = asyncio.create_task(admin.create_topics(["first", "second"]))
            await asyncio.sleep(STALL_US / 1e6)
            assert created.done()
            stalled.disk_latency_us = (50, 3000)
            await created
            now = await admin.describe_metadata_quorum()
        assert now.leader_id != before.leader_id
        assert now.leader_epoch > before.leader_epoch
        await until(lambda: _ends_agree(cluster))

    cluster.run(work())


def _ends_agree(cluster: SimulatedCluster) -> bool:
    """Whether all nodes have applied the same metadata."""
    images = [one.node.broker.image for one in cluster if one.node is not None]
    return len({one.offset_and_epoch for one in images}) == 1


def _standby(cluster: SimulatedCluster) -> int:
    """Return the id of a node that is not the active controller."""
    active = cluster.active_controller
    return next(number for number in (1, 2, 3) if cluster[number] is not active)


@pytest.mark.soak
def test_a_voter_answers_while_its_logs_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker loads them, which takes ten seconds here; the quorum goes on with it."""
    cluster = SimulatedCluster(23)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("t", PARTITIONS, 3)])
        active = cluster.active_controller
        killed = _standby(cluster)
        cluster.kill(killed)
        answers = Answers(cluster, monkeypatch)
        cluster[killed].disk_latency_us = (STALL_US, STALL_US)
        starting = asyncio.create_task(cluster.start(killed))
        await asyncio.sleep(STALL_US / 2e6)
        node = cluster[killed].node
        assert node is not None
        assert not list(node.broker.replicas.logs)
        assert cluster.active_controller is active
        cluster[killed].disk_latency_us = (50, 3000)
        await starting
        assert answers.are_in_time()

    cluster.run(work())


@pytest.mark.soak
def test_a_name_is_used_again_without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes the deleted partitions out of the checkpoints before their names return."""
    cluster = SimulatedCluster(27, config=FLUSHES)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("t", 5, 3)])
            async with cluster.producer() as producer:
                await asyncio.gather(*(producer.send("t", b"v", partition=n) for n in range(5)))
            await asyncio.sleep(3)
            calls = FileCalls(cluster)
            answers = Answers(cluster, monkeypatch)
            for node in cluster:
                node.disk_latency_us = (100_000, 100_000)
            for _ in range(3):
                await admin.delete_topics(["t"])
                await admin.create_topics([NewTopic("t", 5, 3), NewTopic("u", 5, 3)])
                await admin.delete_topics(["u"])
                await until(lambda: all(len(_hosted(node)) == 5 for node in cluster))
        assert calls.flushes == []
        assert answers.are_in_time()

    cluster.run(work())


class Replays:
    """Lets each replayed record take its time; counts those of a turn of the loop."""

    def __init__(self, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: dict[Controller, int] = {}
        """Of each controller, in all turns."""
        self.longest = 0
        """The most that a controller replayed in one turn."""
        self._in_turn: dict[Controller, int] = {}
        self._cluster = cluster
        cluster.loop.on_turn = self._turn_ended
        replay, begin = Controller.replay, ControllerRuntime._begin_epoch
        thread = get_ident()  # real nodes of other tests run in others

        def timed(controller: Controller, record: MessageAndVersion, offset: int) -> None:
            if get_ident() == thread:
                self._in_turn[controller] = self._in_turn.get(controller, 0) + 1
                cluster.loop.advance(RECORD_US)
            replay(controller, record, offset)

        def begun(runtime: ControllerRuntime) -> None:
            begin(runtime)
            known = len(runtime.controller.quotas._limits)
            assert known == RECORDS or get_ident() != thread, "it decides too early"

        monkeypatch.setattr(Controller, "replay", timed)
        monkeypatch.setattr(ControllerRuntime, "_begin_epoch", begun)

    def _turn_ended(self) -> None:
        for controller, count in self._in_turn.items():
            self.longest = max(self.longest, count)
            self.counts[controller] = self.counts.get(controller, 0) + count
        self._in_turn.clear()

    def of(self, node: SimulatedNode) -> int:
        """Return how many records a node replayed."""
        return 0 if node.node is None else self.counts.get(_controller(node), 0)


def _controller(node: SimulatedNode) -> Controller:
    assert node.node is not None
    return node.node.controller._runtime.controller


async def _limit_users(admin: AsyncAdmin) -> None:
    users = range(RECORDS // len(LIMITS))
    changes = [QuotaChange({"user": f"u{n}"}, dict.fromkeys(LIMITS, 1e9)) for n in users]
    outcomes = await admin.alter_client_quotas(changes, timeout=60)
    assert len(outcomes) == len(users)
    assert not any(outcomes.values())


async def _completed(pending: Pending[Any]) -> None:
    done = asyncio.Event()
    pending.on_done(lambda _done: done.set())
    await done.wait()


async def _ask(cluster: SimulatedCluster, asked: int, is_done: Callable[[], bool]) -> list[float]:
    """Ask a voter for votes until is_done(); return how many seconds each answer took."""
    source = next(one for one in cluster if one is not cluster[asked] and one.is_alive)
    assert source.node is not None
    driver, waits = source.node.controller.driver, []
    voter = driver.node.voters.get(asked)
    assert voter is not None
    own = ReplicaKey(driver.node.node_id, driver.node.directory_id)
    while not is_done():
        end = OffsetAndEpoch(driver.log.end_offset, driver.log.epoch_at_end())
        vote = Vote(own, driver.node.epoch, end, True, ReplicaKey(asked, voter.directory_id))
        begin_us = cluster.loop.now_us
        sent = source.node._quorum_channel.send(asked, voter.endpoints, vote)
        await _completed(sent)
        if sent.error is None:  # else it does not listen yet
            waits.append((cluster.loop.now_us - begin_us) / 1e6)
        await asyncio.sleep(0.01)
    return waits


async def _ask_while_it_starts(
    cluster: SimulatedCluster, asked: int, replays: Replays
) -> list[float]:
    """Start a voter; return how many seconds its answers took until all records were replayed."""
    starting = asyncio.create_task(cluster.start(asked))
    waits = await _ask(cluster, asked, lambda: replays.of(cluster[asked]) >= RECORDS)
    await starting
    return waits


@pytest.mark.conformance
def test_a_voter_answers_while_it_replays_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start replays so many records in a turn; votes are answered between the turns."""
    cluster = SimulatedCluster(24)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await _limit_users(admin)
        active = cluster.active_controller
        killed = _standby(cluster)
        cluster.kill(killed)
        assert active is not None
        assert active.node is not None
        epoch = active.node.controller.driver.node.epoch
        replays = Replays(cluster, monkeypatch)
        waits = await _ask_while_it_starts(cluster, killed, replays)
        assert len(waits) > 10
        assert max(waits) < FETCH_TIMEOUT_S / 2
        assert replays.longest <= _RECORDS_PER_TURN
        assert cluster.active_controller is active
        assert active.node.controller.driver.node.epoch == epoch

    cluster.run(work())


@pytest.mark.conformance
def test_a_voter_answers_while_it_loads_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was away takes the leader's snapshot; its image changes once, to the whole."""
    cluster = SimulatedCluster(25, config={"metadata.max.retention.bytes": "1"})

    async def work() -> None:
        await cluster.start()
        active = cluster.active_controller
        assert active is not None
        assert active.node is not None
        away = _standby(cluster)
        node = cluster[away].node
        assert node is not None
        others = [number for number in (1, 2, 3) if number != away]
        cluster.partition([away], others)
        async with active.admin() as admin:
            await _limit_users(admin)
        snapshot_id = active.node.controller._runtime.snapshots.write()
        log = active.node.controller.driver.log
        await until(lambda: log.start_offset == snapshot_id.offset)
        replays = Replays(cluster, monkeypatch)
        sizes: list[int] = []
        node.controller.add_listener(lambda delta, _image: sizes.append(len(delta.quotas_changed)))
        cluster.heal()
        waits = await _ask(cluster, away, lambda: replays.of(cluster[away]) >= RECORDS)
        await until(lambda: node.controller.image.quotas.by_entity)
        assert len(waits) > 10
        assert max(waits) < FETCH_TIMEOUT_S / 2
        assert replays.longest <= _RECORDS_PER_TURN
        assert [size for size in sizes if size] == [RECORDS // len(LIMITS)]

    cluster.run(work())


@pytest.mark.soak
def test_a_voter_answers_while_it_loads_the_snapshot_of_its_own_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest one holds nearly all of the metadata."""
    cluster = SimulatedCluster(28)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await _limit_users(admin)
        active = cluster.active_controller
        killed = _standby(cluster)
        node = cluster[killed]
        assert node.node is not None
        image = node.node.controller.image
        await until(lambda: len(image.quotas.by_entity) == RECORDS // len(LIMITS))
        snapshot_id = node.node.controller._runtime.snapshots.write()
        log = node.node.controller.driver.log
        await until(lambda: log.latest_snapshot == snapshot_id)
        cluster.kill(killed)
        replays = Replays(cluster, monkeypatch)
        waits = await _ask_while_it_starts(cluster, killed, replays)
        assert node.node is not None
        assert node.node.controller.driver.log.latest_snapshot == snapshot_id
        assert len(node.node.controller.image.quotas.by_entity) == RECORDS // len(LIMITS)
        assert len(waits) > 10
        assert max(waits) < FETCH_TIMEOUT_S / 2
        assert replays.longest <= _RECORDS_PER_TURN
        assert cluster.active_controller is active

    cluster.run(work())


@pytest.mark.conformance
def test_a_controller_leads_after_it_has_replayed_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """All start together: whoever is elected answers, but decides nothing before its log's end."""
    cluster = SimulatedCluster(26)

    async def work() -> None:
        await cluster.start()
        async with cluster.admin() as admin:
            await _limit_users(admin)
        for number in (1, 2, 3):
            cluster.kill(number)
        replays = Replays(cluster, monkeypatch)
        answers = Answers(cluster, monkeypatch)
        await cluster.start()
        assert replays.longest <= _RECORDS_PER_TURN
        assert answers.are_in_time()
        assert all(replays.of(node) >= RECORDS for node in cluster)

    cluster.run(work())
