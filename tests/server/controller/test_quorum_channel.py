"""Requests of one member to another, over the simulated network to a simulated node."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.driver import RaftDriver
from ottla.raft.member import MemberSettings
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.requests import (
    AddVoter,
    DescribeVersions,
    Fetch,
    LeaderAndEpoch,
    ReplicaKey,
    Vote,
    VoteResponse,
)
from ottla.raft.voter_set import Voter, VoterAddress, VoterHistory, VoterSet
from ottla.server.controller.quorum_view import QuorumAccess, QuorumChannel
from ottla.server.system.timers import LoopTimer
from ottla.storage.layout import METADATA_LOG
from ottla.testing.disk import SimulatedDisk
from ottla.testing.simulation.environment import SimulatedClock
from ottla.testing.simulation.node import HOST, SimulatedNode
from ottla.types import OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from ottla.purgatory.pending import Pending
    from ottla.raft.requests import Request

LISTENER, PORT, BOOTSTRAP = "CONTROLLER", 9093, -2
OBSERVER = ReplicaKey(9, Uuid(b"an observer's id"))
LEADER_END = VoterAddress(LISTENER, HOST, PORT)
TIMEOUT_MS = 2000


class Peer:
    """Another member of the node's quorum, as far as it sends."""

    def __init__(self, simulated: SimulatedNode) -> None:
        loop = self.loop = simulated.loop
        self.clock = SimulatedClock(loop)
        self.timer = LoopTimer(loop, self.clock)
        settings = QuorumAccess(
            node_id=OBSERVER.node_id,
            cluster_id="",
            listener=LISTENER,
            bootstrap=[(HOST, PORT)],
            request_timeout_ms=TIMEOUT_MS,
        )
        if simulated.node is not None:
            settings = settings._replace(cluster_id=simulated.node.cluster_id)
        self.channel = QuorumChannel(settings, loop=loop, clock=self.clock, timer=self.timer)

    async def ask(
        self, request: Request, node_id: int = 1, *ends: VoterAddress
    ) -> tuple[Any, Exception | None]:
        """Return the response, or the error."""
        pending = self.channel.send(node_id, ends or (LEADER_END,), request)
        await self.done(pending)
        return (None, pending.error) if pending.error is not None else (pending.value, None)

    async def done(self, pending: Pending[Any]) -> None:
        """Wait for a response or an error."""
        event = asyncio.Event()
        pending.on_done(lambda _: event.set())
        await event.wait()

    def close(self) -> None:
        """Close the connections and timers."""
        self.channel.close()
        self.timer.close()


def _vote(epoch: int) -> Vote:
    return Vote(OBSERVER, epoch, OffsetAndEpoch(0, 0), True, ReplicaKey(1))


async def _wait_ms(duration_ms: int) -> None:
    await asyncio.sleep(duration_ms / 1000)


def test_a_node_answers_over_one_connection() -> None:
    """By its address, or by its number among the bootstrap servers."""
    simulated = SimulatedNode(1)

    async def talk() -> None:
        await simulated.start()
        assert simulated.node is not None
        peer, before = Peer(simulated), simulated.node.connection_count
        epoch = simulated.node.controller.quorum.leader_epoch
        leader = LeaderAndEpoch(1, epoch, (LEADER_END,))
        refused = VoteResponse(ErrorCode.NONE, leader), None
        assert await peer.ask(_vote(epoch)) == refused
        assert await peer.ask(_vote(epoch)) == refused
        assert simulated.node.connection_count == before + 1
        assert await peer.ask(_vote(epoch), BOOTSTRAP) == refused
        versions, _ = await peer.ask(DescribeVersions(epoch))
        assert (versions.error, versions.lowest, versions.highest) == (ErrorCode.NONE, 0, 1)
        refusal, _ = await peer.ask(AddVoter(Voter(9), True, 1))
        assert refusal.error is ErrorCode.INVALID_REQUEST
        peer.close()
        await _wait_ms(100)
        assert simulated.node.connection_count == before
        await simulated.stop()

    simulated.run(talk())


def test_a_node_without_an_address_is_not_asked() -> None:
    """Neither by another listener's address nor by a bootstrap server that is not configured."""
    simulated = SimulatedNode(1)

    async def talk() -> None:
        peer = Peer(simulated)
        other = VoterAddress("ELSEWHERE", HOST, PORT)
        for node_id in (1, BOOTSTRAP - 1):
            _, error = await peer.ask(_vote(1), node_id, other)
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.BROKER_NOT_AVAILABLE
        peer.close()

    simulated.run(talk())


def test_a_node_that_is_down_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """Requests fail meanwhile, with one line for the outage and one for its end."""
    caplog.set_level(logging.INFO, "ottla.network")
    simulated = SimulatedNode(1)

    async def talk() -> None:
        peer = Peer(simulated)
        for pause_ms in (0, 10, 60, 60):
            await _wait_ms(pause_ms)
            _, error = await peer.ask(_vote(1))
            assert isinstance(error, KafkaError)
        await simulated.start()
        await _wait_ms(60)
        answer, _ = await peer.ask(_vote(1))
        assert isinstance(answer, VoteResponse)
        peer.close()
        await simulated.stop()

    simulated.run(talk())
    events = [one.__dict__.get("event", "") for one in caplog.records]
    reported = [event for event in events if event.startswith("quorum.") and "reach" in event]
    assert reported == ["quorum.unreachable", "quorum.reachable"]


def test_a_node_that_does_not_answer_is_given_up() -> None:
    """After controller.quorum.request.timeout.ms; a new connection is made then."""
    simulated = SimulatedNode(1)

    async def talk() -> None:
        peer = Peer(simulated)
        listener = simulated.network.listen(HOST, PORT)  # accepts, reads nothing
        begun_ms = peer.clock.monotonic_ms()
        _, error = await peer.ask(_vote(1))
        waited_ms = peer.clock.monotonic_ms() - begun_ms
        assert isinstance(error, KafkaError)
        assert TIMEOUT_MS <= waited_ms < TIMEOUT_MS + 100
        listener.close()
        await _wait_ms(100)
        await simulated.start()
        answer, _ = await peer.ask(_vote(1))
        assert isinstance(answer, VoteResponse)
        peer.close()
        await simulated.stop()

    simulated.run(talk())


def test_a_request_fails_at_once_with_its_connection() -> None:
    """A node that dies does not hold the others up for the whole time-out."""
    simulated = SimulatedNode(1)

    async def talk() -> None:
        await simulated.start()
        assert simulated.node is not None
        quorum = simulated.node.controller.quorum
        end_offset, epoch = quorum.high_watermark, quorum.leader_epoch
        peer = Peer(simulated)
        await peer.ask(_vote(1))
        fetch = Fetch(OBSERVER, epoch, end_offset, epoch, end_offset, 60_000)
        pending = peer.channel.send(1, (LEADER_END,), fetch)
        await _wait_ms(20)
        assert not pending.done
        simulated.kill(power=False)
        await _wait_ms(100)
        assert pending.error is not None
        peer.close()

    simulated.run(talk())


def test_a_node_that_moved_is_asked_at_its_new_address() -> None:
    """The connection to the old one is closed, and what waits there fails."""
    simulated = SimulatedNode(1)

    async def talk() -> None:
        simulated.network.listen(HOST, 1)
        peer = Peer(simulated)
        lost = peer.channel.send(1, (VoterAddress(LISTENER, HOST, 1),), _vote(1))
        await simulated.start()
        answer, _ = await peer.ask(_vote(1))
        assert isinstance(answer, VoteResponse)
        assert isinstance(lost.error, KafkaError)
        peer.close()
        assert peer.channel.send(1, (LEADER_END,), _vote(1)).error is not None
        await simulated.stop()

    simulated.run(talk())


class Observer:
    """A member without a vote over the channel; its log is on a disk of its own."""

    def __init__(self, peer: Peer) -> None:
        disk, clock = SimulatedDisk(), peer.clock
        log = ReplicatedLog.open(disk, now_ms=clock.now_ms())
        self.timer = peer.timer
        self.high_watermark = -1
        self.driver = RaftDriver(
            RaftNode(
                MemberSettings(OBSERVER, bootstrap_count=1),
                log=log,
                voters=VoterHistory(VoterSet([])),
                election=QuorumStateStore(disk, METADATA_LOG).read_at_start(
                    log_end_offset=0, epoch_at_end=0
                ),
                rng=Random(1),
                now_ms=clock.monotonic_ms(),
                wall_ms=clock.now_ms,
            ),
            log,
            QuorumStateStore(disk, METADATA_LOG),
            clock=clock,
            run_in_worker=_run_now,
            listener=self,
            send=peer.channel.send,
            on_deadline=self._tick_at,
        )

    def _tick_at(self, due_ms: int) -> None:
        if due_ms < 1 << 61:
            self.timer.add(due_ms, lambda _now_ms: self.driver.tick())

    def high_watermark_moved(self, offset: int, /) -> None:
        """Note what is committed."""
        self.high_watermark = offset

    def epoch_changed(self, leader: LeaderAndEpoch, /) -> None:
        """Nothing follows."""

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch, /) -> None:
        """Nothing follows."""

    def became_leader(self, epoch: int, _epoch_start_offset: int, /) -> None:
        """Refuse: an observer leads nothing."""
        raise AssertionError(f"an observer leads epoch {epoch}")

    def batch_appended(self, last_offset: int, _size_bytes: int, /) -> None:
        """Refuse: an observer is offered nothing."""
        raise AssertionError(f"an observer wrote {last_offset}")

    def resigned(self, epoch: int, /) -> None:
        """Refuse: an observer leads nothing."""
        raise AssertionError(f"an observer led epoch {epoch}")

    def failed(self, error: Exception) -> None:
        """No disk fails here."""
        raise error


def _run_now(job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
    done(job(), None)


def test_an_observer_follows_a_node_through_its_restart() -> None:
    """It finds the leader by the bootstrap server, fetches, and fetches on when it is back."""
    simulated = SimulatedNode(3)

    async def follow() -> None:
        await simulated.start()
        peer = Peer(simulated)
        observer = Observer(peer)
        observer.driver.tick()
        admin = simulated.admin()
        await admin.create_topics(["first"])
        await admin.close()
        await _wait_ms(700)
        assert simulated.node is not None
        first_epoch = simulated.node.controller.quorum.leader_epoch
        assert observer.high_watermark == simulated.node.controller.quorum.high_watermark
        await simulated.stop()
        await _wait_ms(500)
        await simulated.start()
        await _wait_ms(5000)
        quorum = simulated.node.controller.quorum
        assert observer.driver.node.epoch == quorum.leader_epoch > first_epoch
        assert observer.high_watermark == quorum.high_watermark
        assert [one.voter_id for one in observer.driver.node.voters] == [1]
        peer.close()
        await simulated.stop()

    simulated.run(follow())
