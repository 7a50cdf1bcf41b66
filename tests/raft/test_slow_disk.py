"""A leader whose disk hangs or is slow: when it resigns, and what it forgets."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.purgatory.pending import Pending
from ottla.raft.member import MemberSettings
from ottla.raft.messages import FlushLog, LogFlushed, RequestReceived, ResponseReceived, Send
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import ElectionState
from ottla.raft.requests import Fetch, LeaderAndEpoch, ReplicaKey, Vote, VoteResponse
from ottla.raft.roles import Resigned, Unattached
from ottla.raft.timeouts import QuorumTimeouts
from ottla.raft.voter_set import Voter, VoterAddress, VoterHistory, VoterSet
from ottla.types import OffsetAndEpoch, Uuid
from tests.raft.test_node import Log

if TYPE_CHECKING:
    from ottla.raft.messages import Effect

FETCH_MS = QuorumTimeouts().fetch_ms
KEYS = [ReplicaKey(number, Uuid(bytes([number]) * 16)) for number in (1, 2, 3)]
VOTERS = VoterSet(Voter(*key, (VoterAddress("C", f"h{key.node_id}", 1),)) for key in KEYS)


class Quorum:
    """Node 1 of three voters; its address has changed, so that it writes the voters again."""

    def __init__(self) -> None:
        self.history = VoterHistory(VOTERS, 1)
        self.history.restart(10, VOTERS, 1)
        self.log = Log(100)
        self.now_ms = 5000
        self.node = RaftNode(
            MemberSettings(KEYS[0], (VoterAddress("C", "h1", 2),)),
            log=self.log,
            voters=self.history,
            election=ElectionState(leader_epoch=3),
            rng=Random(1),
            now_ms=self.now_ms,
            wall_ms=lambda: 99,
        )
        self.flushes: list[FlushLog] = []

    def poll(self) -> None:
        """Let 10 ms pass; the other voters grant each vote."""
        self.now_ms += 10
        self._carry_out(self.node.poll(self.now_ms))

    def _carry_out(self, effects: list[Effect]) -> None:
        self.log.carry_out(effects)
        for effect in effects:
            if isinstance(effect, FlushLog):
                self.flushes.append(effect)
            elif isinstance(effect, Send) and isinstance(effect.request, Vote):
                vote = VoteResponse(ErrorCode.NONE, LeaderAndEpoch(-1, self.node.epoch), True)
                self.node.handle(ResponseReceived(effect.correlation_id, vote), self.now_ms)

    def lead(self, *, is_flushing: bool = False) -> None:
        """Win the election."""
        if is_flushing:
            self.node._member.flush(self.now_ms)
        while not self.node._leading.leader_role():
            self.poll()

    def fetch(self) -> None:
        """Let voter 2 fetch, so that the leader has its majority."""
        request = Fetch(KEYS[1], self.node.epoch, self.log.end_offset, self.node.epoch, -1, 0)
        self.node.handle(RequestReceived(request, Pending()), self.now_ms)

    def lead_with_fetches_for(self, ms: int) -> None:
        """Let time pass while voter 2 fetches."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms and self.node._leading.leader_role():
            self.fetch()
            self.poll()


def test_a_leader_whose_flush_hangs_resigns_after_the_fetch_timeout() -> None:
    """It answers fetches, so that no voter would start an election; and commits nothing."""
    quorum = Quorum()
    quorum.lead()
    assert quorum.flushes
    quorum.lead_with_fetches_for(FETCH_MS - 100)
    assert quorum.node._leading.leader_role() is not None
    quorum.lead_with_fetches_for(200)
    assert isinstance(quorum.node.role, Resigned)


def test_a_leader_whose_flushes_end_in_time_goes_on() -> None:
    """Each flush has the whole time."""
    quorum = Quorum()
    quorum.lead()
    for _ in range(3):
        quorum.lead_with_fetches_for(FETCH_MS - 100)
        quorum.node.handle(LogFlushed(quorum.log.end_offset, 0), quorum.now_ms)
    assert quorum.node._leading.leader_role() is not None


def test_a_leader_that_is_replaced_before_it_wrote_its_voters_forgets_them() -> None:
    """The records that it offered are never written: the next leader's stand at their offsets."""
    quorum = Quorum()
    quorum.lead(is_flushing=True)
    assert quorum.history.latest_offset > quorum.log.end_offset - 1
    vote = Vote(KEYS[1], quorum.node.epoch + 1, OffsetAndEpoch(101, 4), False, KEYS[0])
    quorum.node.handle(RequestReceived(vote, Pending()), quorum.now_ms)
    assert isinstance(quorum.node.role, Unattached)
    assert quorum.history.latest_offset == 9
    quorum.history.apply(quorum.log.end_offset, VOTERS.to_record())
