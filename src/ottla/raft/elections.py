"""Elections: vote requests, granted votes, and the announcements of leaders.

Kafka: the election methods of org.apache.kafka.raft.KafkaRaftClient (KIP-595, KIP-996).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.raft.messages import Respond
from ottla.raft.requests import (
    NO_LEADER,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochResponse,
    LeaderAndEpoch,
    ReplicaKey,
    Vote,
    VoteResponse,
)
from ottla.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.raft.timeouts import NEVER_MS
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.raft.member import QuorumMember, Role
    from ottla.raft.requests import Request
    from ottla.raft.voter_set import VoterAddress


class Elections:
    """Asks for votes and gives them; the leader-change record is `Leading`'s."""

    __slots__ = ("_member",)

    def __init__(self, member: QuorumMember) -> None:
        self._member = member

    # Polling: each method returns the next deadline

    def poll(self, role: Prospective | Candidate | Resigned, now_ms: int) -> int:
        """Request votes, or announce the resignation."""
        if isinstance(role, Prospective):
            # Request pre-votes; return to the previous role when the majority refuses.
            member = self._member
            if role.ballot.is_won:
                member.become_candidate(now_ms)
            elif role.ballot.is_lost or role.deadline_ms <= now_ms:
                self._end_pre_vote(role, now_ms)
            else:
                return min(role.deadline_ms, self._request_votes(role, now_ms))
            return now_ms
        if isinstance(role, Candidate):
            return self._poll_candidate(role, now_ms)
        return self._poll_resigned(role, now_ms)

    def _end_pre_vote(self, role: Prospective, now_ms: int) -> None:
        leader, member = role.leader, self._member
        if leader.leader_id != NO_LEADER and leader.endpoints:
            member.become_follower(leader, now_ms)
        else:
            member.become_unattached(role.epoch, now_ms, leader_id=leader.leader_id)

    def _poll_candidate(self, role: Candidate, now_ms: int) -> int:
        """Ask for votes until the election is won or its time is over.

        A lost election waits for its end: the next one should not meet the same rival.
        """
        if role.deadline_ms <= now_ms:
            self._member.become_prospective(now_ms)
            return now_ms
        if role.ballot.is_lost:
            return role.deadline_ms
        return min(role.deadline_ms, self._request_votes(role, now_ms))

    def _request_votes(self, role: Prospective | Candidate, now_ms: int) -> int:
        member, due_ms = self._member, NEVER_MS
        log_end = OffsetAndEpoch(member.log.end_offset, member.log.epoch_at_end())
        for voter in role.ballot.unanswered():
            ready_ms = member.in_flight.ready_ms(voter.voter_id, now_ms)
            if ready_ms > now_ms:
                due_ms = min(due_ms, ready_ms)
                continue
            key = ReplicaKey(voter.voter_id, voter.directory_id)
            is_pre_vote = isinstance(role, Prospective)
            request = Vote(member.key, role.epoch, log_end, is_pre_vote, key)
            member.send(voter.voter_id, voter.endpoints, request, now_ms)
        return due_ms

    def _poll_resigned(self, role: Resigned, now_ms: int) -> int:
        """Notify the voters; without a new leader, a voter stands for election again."""
        member, due_ms = self._member, role.deadline_ms
        if role.deadline_ms <= now_ms:
            if not member.is_voter:
                member.become_unattached(role.epoch, now_ms)
            else:
                member.become_prospective(now_ms)
            return now_ms
        for voter_id in sorted(role.unacknowledged):
            voter = member.voters.latest.get(voter_id)
            ready_ms = member.in_flight.ready_ms(voter_id, now_ms)
            if role.awaited and voter_id == role.preferred[0].node_id:
                ready_ms = max(ready_ms, role.successor_due_ms)
            if voter is not None and ready_ms <= now_ms:
                request = EndQuorumEpoch(role.leader, role.preferred)
                member.send(voter_id, voter.endpoints, request, now_ms)
            due_ms = min(due_ms, max(ready_ms, now_ms + 1))
        return due_ms

    # Requests

    def vote(self, request: Vote, token: Pending[Any], now_ms: int) -> None:
        """Give or refuse a vote; the answer leaves when the vote is stored."""
        member = self._member
        error = self._vote_error(request)
        if error is ErrorCode.NONE:
            if request.epoch > member.epoch:
                member.become_unattached(request.epoch, now_ms)
            if not self._is_meant(request.voter):
                error = ErrorCode.INVALID_VOTER_KEY
        if error is not ErrorCode.NONE:
            self._respond(token, VoteResponse(error, member.leader))
            return
        own = OffsetAndEpoch(member.log.end_offset, member.log.epoch_at_end())
        is_granted = member.role.grants(
            request.candidate,
            is_up_to_date=_order(request.log_end) >= _order(own),
            is_pre_vote=request.is_pre_vote,
        )
        if is_granted and not request.is_pre_vote and member.role.voted != request.candidate:
            member.become_unattached(request.epoch, now_ms, voted=request.candidate)
        self._respond(token, VoteResponse(ErrorCode.NONE, member.leader, is_granted))

    def _vote_error(self, request: Vote) -> ErrorCode:
        newest = request.epoch if request.is_pre_vote else request.epoch - 1
        log_end = request.log_end
        if log_end.offset < 0 or not 0 <= log_end.leader_epoch <= newest:
            return ErrorCode.INVALID_REQUEST
        return self._voter_error(request.epoch, request.candidate.node_id)

    def _voter_error(self, epoch: int, node_id: int) -> ErrorCode:
        """Return why a request of a node to a voter is refused."""
        if epoch < self._member.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else ErrorCode.NONE

    def _is_meant(self, voter: ReplicaKey) -> bool:
        """Whether a request to a voter is for this node with this directory."""
        own = self._member.key
        if voter.node_id < 0:  # an old version does not say
            return True
        if voter.node_id != own.node_id:
            return False
        return not voter.directory_id or voter.directory_id == own.directory_id

    def begin_epoch(self, request: BeginQuorumEpoch, token: Pending[Any], now_ms: int) -> None:
        """Follow the leader that announces its election."""
        error = self._voter_error(request.epoch, request.leader.leader_id)
        if error is ErrorCode.NONE:
            self.learn(request.leader, now_ms, is_from_leader=True)
            if not self._is_meant(request.voter):
                error = ErrorCode.INVALID_VOTER_KEY
        self._respond(token, EpochResponse(error, self._member.leader))

    def end_epoch(self, request: EndQuorumEpoch, token: Pending[Any], now_ms: int) -> None:
        """Stand for election after the leader resigned, its preferred successor first."""
        error = self._voter_error(request.epoch, request.leader.leader_id)
        if error is ErrorCode.NONE:
            self.learn(request.leader, now_ms, is_from_leader=True)
            role = self._member.role
            if isinstance(role, Follower) and role.leader.leader_id == request.leader.leader_id:
                role.deadline_ms = now_ms + self._backoff_ms(request.preferred)
                role.has_fetched, role.is_ended = False, True
        self._respond(token, EpochResponse(error, self._member.leader))

    def _backoff_ms(self, preferred: tuple[ReplicaKey, ...]) -> int:
        """Return how long to let the preferred successors go first."""
        timeouts, count = self._member.timeouts, len(preferred)
        ids = [key.node_id for key in preferred]
        place = ids.index(self._member.key.node_id) if self._member.key.node_id in ids else count
        if place == 0:
            return 0
        step = max(1, timeouts.election_backoff_max_ms >> max(count - 1, 0))
        return int(min(step << (place - 1), timeouts.election_backoff_max_ms))

    def _respond(self, token: Pending[Any], response: VoteResponse | EpochResponse) -> None:
        self._member.effects.append(Respond(token, response))

    # Responses

    def voted(self, node_id: int, request: Request, response: VoteResponse) -> None:
        """Count a vote; a refused one ends what a majority cannot grant any more."""
        role = self._member.role
        if not isinstance(request, Vote) or not isinstance(role, Prospective | Candidate):
            return
        if request.epoch == role.epoch and request.is_pre_vote == isinstance(role, Prospective):
            role.ballot.count(node_id, is_granted=response.is_granted)

    def refused(self, request: Request, error: ErrorCode, now_ms: int) -> None:
        """Stand for election at once when a voter knows no pre-votes (before KIP-996)."""
        role = self._member.role
        if error is not ErrorCode.UNSUPPORTED_VERSION or not isinstance(request, Vote):
            return
        if isinstance(role, Prospective) and request.is_pre_vote and request.epoch == role.epoch:
            self._member.become_candidate(now_ms)

    def resignation_acknowledged(self, node_id: int) -> None:
        """Stop notifying this voter."""
        role = self._member.role
        if isinstance(role, Resigned):
            role.unacknowledged -= {node_id}
            role.awaited -= {node_id}

    def unanswered(self, node_id: int) -> None:
        """Notify the successor without waiting for a voter that cannot be reached."""
        role = self._member.role
        if isinstance(role, Resigned):
            role.awaited -= {node_id}

    # Leaders and epochs learned from others

    def learn(self, leader: LeaderAndEpoch, now_ms: int, *, is_from_leader: bool = False) -> bool:
        """Process what another node knows of the leader; return whether the role changed."""
        member = self._member
        role, endpoints = member.role, self._endpoints(leader)
        if leader.epoch < role.epoch or leader.leader_id == member.key.node_id:
            return False
        is_known = leader.leader_id != NO_LEADER
        if is_known and endpoints and _may_follow(role, leader, is_from_leader=is_from_leader):
            member.become_follower(leader._replace(endpoints=endpoints), now_ms)
        elif leader.epoch > role.epoch:
            member.become_unattached(leader.epoch, now_ms, leader_id=leader.leader_id)
        else:
            return False
        return True

    def _endpoints(self, leader: LeaderAndEpoch) -> tuple[VoterAddress, ...]:
        voter = self._member.voters.latest.get(leader.leader_id)
        return leader.endpoints or (voter.endpoints if voter is not None else ())


def _may_follow(role: Role, leader: LeaderAndEpoch, *, is_from_leader: bool) -> bool:
    """Whether a leader is news: of a newer epoch, or the first that is known of this one.

    A prospective candidate that knows the leader returns to it only when the leader itself sends.
    """
    if leader.epoch > role.epoch:
        return True
    if isinstance(role, Prospective):
        return is_from_leader or role.leader.leader_id == NO_LEADER
    return isinstance(role, Unattached | Candidate)


def _order(log_end: OffsetAndEpoch) -> tuple[int, int]:
    """Return what decides which of two logs is newer: the epoch first."""
    return log_end.leader_epoch, log_end.offset
