"""Changes of the voters, one at a time: added, removed, told of new addresses.

A new voter set is in force as soon as it is in the leader's log; the next change waits until it is
committed. Kafka: org.apache.kafka.raft.internals.{AddVoterHandler, RemoveVoterHandler,
UpdateVoterHandler} (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.messages import Respond
from ottla.raft.requests import (
    AddVoter,
    DescribeVersions,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    VersionsResponse,
    VoterChangeResponse,
)
from ottla.raft.timeouts import NEVER_MS
from ottla.raft.voter_set import VoterSet

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.raft.leader import Leader
    from ottla.raft.leading import Leading
    from ottla.raft.member import Member
    from ottla.raft.roles import Follower
    from ottla.raft.voter_set import Voter

FETCHED_WITHIN_MS = 3_600_000
"""A voter that is added has fetched to the end of the log, and lately."""
_BUSY = "Request timed out waiting for leader to handle previous voter change request"


class _Change:
    """An addition or removal under way."""

    __slots__ = ("deadline_ms", "is_asking", "offset", "request", "token")

    def __init__(
        self, request: AddVoter | RemoveVoter, token: Pending[Any], deadline_ms: int
    ) -> None:
        self.request = request
        self.token = token
        self.deadline_ms = deadline_ms
        self.is_asking = isinstance(request, AddVoter)
        """Whether the new voter has yet to say which kraft.version levels it supports."""
        self.offset: int | None = None
        """Of the VotersRecord, once it is written; the change is complete when it is committed."""


class Reconfiguration:
    """The leader's side, and the follower's request to be known by its new address."""

    __slots__ = ("_change", "_leading", "_member")

    def __init__(self, member: Member, leading: Leading) -> None:
        self._member = member
        self._leading = leading
        self._change: _Change | None = None

    # Requests

    def requested(
        self, request: AddVoter | RemoveVoter | UpdateVoter, token: Pending[Any], now_ms: int
    ) -> None:
        """Begin a change of the voters, or refuse it."""
        try:
            role = self._checked(request)
            if isinstance(request, UpdateVoter):
                self._update(role, request.voter)
                self._respond(token)
                return
            self._check_voter(request)
        except KafkaError as error:
            self._respond(token, error)
            return
        self._change = _Change(request, token, now_ms + request.timeout_ms)
        if isinstance(request, RemoveVoter):
            left = [one for one in role.voters if one.voter_id != request.key.node_id]
            self._append(role, VoterSet(left))

    def _checked(self, request: AddVoter | RemoveVoter | UpdateVoter) -> Leader:
        """Return the leader's role; raise why the voters cannot be changed now."""
        member = self._member
        role = self._leading.leader_role()
        if isinstance(request, UpdateVoter):
            error = member.leader_only_error(request.epoch)
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
        if role is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if role.high_watermark is None:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for leader to establish HWM and fence previous voter "
                "changes",
            )
        is_committed = member.voters.latest_offset < role.high_watermark
        if self._change is not None or not is_committed:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, _BUSY)
        if member.voters.kraft_version < 1:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Cluster doesn't support changing voters because the kraft.version feature is "
                f"{member.voters.kraft_version}",
            )
        return role

    def _check_voter(self, request: AddVoter | RemoveVoter) -> None:
        voters = self._member.voters.latest
        if isinstance(request, AddVoter):
            if voters.get(request.voter.voter_id) is not None:
                raise KafkaError(ErrorCode.DUPLICATE_VOTER)
            return
        known = voters.get(request.key.node_id)
        if known is None or known.directory_id != request.key.directory_id or len(voters) == 1:
            raise KafkaError(ErrorCode.VOTER_NOT_FOUND)

    def _update(self, role: Leader, voter: Voter) -> None:
        known = role.voters.get(voter.voter_id)
        if known is None or known.directory_id != voter.directory_id:
            raise KafkaError(ErrorCode.VOTER_NOT_FOUND)
        self._check_level(voter.lowest_kraft_version, voter.highest_kraft_version)
        if known != voter:
            changed = [voter if one is known else one for one in role.voters]
            self._append(role, VoterSet(changed))

    def _check_level(self, lowest: int, highest: int) -> None:
        level = self._member.voters.kraft_version
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The voter supports kraft.version {lowest} to {highest}, the cluster is at "
                f"{level}",
            )

    def _append(self, role: Leader, voters: VoterSet) -> None:
        self._leading.append_control(role, [voters.to_record()])
        if self._change is not None:
            self._change.offset = self._member.voters.latest_offset

    def described(self, response: VersionsResponse, now_ms: int) -> None:
        """Add the voter that said which levels it supports, if it has the log."""
        change, role = self._change, self._leading.leader_role()
        if change is None or role is None or not isinstance(change.request, AddVoter):
            return
        if not change.is_asking:
            return
        change.is_asking = False
        voter = change.request.voter._replace(
            lowest_kraft_version=response.lowest, highest_kraft_version=response.highest
        )
        try:
            self._check_level(response.lowest, response.highest)
            self._check_caught_up(role, ReplicaKey(voter.voter_id, voter.directory_id), now_ms)
        except KafkaError as error:
            self._end(error)
            return
        self._append(role, VoterSet([*role.voters, voter]))
        if not change.request.ack_when_committed:
            self._end()

    def _check_caught_up(self, role: Leader, key: ReplicaKey, now_ms: int) -> None:
        replica = role.observers.get(key)
        since_ms = now_ms - FETCHED_WITHIN_MS
        if replica is None or replica.last_caught_up_ms < 0 or replica.last_fetch_ms <= since_ms:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Aborted add voter operation for since {key} is lagging behind",
            )

    # What is due

    def poll(self, role: Leader, now_ms: int) -> int:
        """Go on with the change; a leader that is no voter any more resigns. When to look again."""
        committed = role.high_watermark or 0
        change = self._change
        if change is not None and change.offset is not None and change.offset < committed:
            self._end()
        is_gone = role.voters.get(self._member.key.node_id) is None
        if is_gone and self._member.voters.latest_offset < committed:
            self._leading.resign(now_ms)
            return now_ms
        change = self._change
        if change is None:
            return NEVER_MS
        if change.deadline_ms <= now_ms:
            self._end(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            return NEVER_MS
        if change.is_asking and isinstance(change.request, AddVoter):
            return min(change.deadline_ms, self._ask(change.request.voter, now_ms))
        return change.deadline_ms

    def _ask(self, voter: Voter, now_ms: int) -> int:
        member = self._member
        ready_ms = member.in_flight.ready_ms(voter.voter_id, now_ms)
        if ready_ms > now_ms:
            return ready_ms
        member.send(voter.voter_id, voter.endpoints, DescribeVersions(member.epoch), now_ms)
        return now_ms + member.timeouts.request_ms

    def end(self) -> None:
        """Refuse the change under way: this node leads no more."""
        if self._change is not None:
            self._end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _end(self, error: KafkaError | None = None) -> None:
        change, self._change = self._change, None
        if change is not None:
            self._respond(change.token, error)

    def _respond(self, token: Pending[Any], error: KafkaError | None = None) -> None:
        leader, code = self._member.leader, ErrorCode.NONE
        if error is not None:
            code = error.code
        text = "" if error is None else error.message
        self._member.effects.append(Respond(token, VoterChangeResponse(code, leader, text)))

    # The follower's side

    def poll_follower(self, role: Follower, now_ms: int) -> int:
        """Tell the leader this voter's addresses when the voter set has others."""
        member = self._member
        known = member.voters.latest.get(member.key.node_id)
        if member.voters.kraft_version < 1 or known is None or not member.is_voter:
            return NEVER_MS
        own = known._replace(endpoints=member.endpoints)
        if not member.endpoints or own == known:
            return NEVER_MS
        leader_id = role.leader.leader_id
        due_ms = max(role.update_due_ms, member.in_flight.ready_ms(leader_id, now_ms))
        if due_ms <= now_ms:
            role.update_due_ms = now_ms + member.timeouts.update_voter_ms
            request = UpdateVoter(own, role.epoch)
            member.send(leader_id, role.leader.endpoints, request, now_ms)
        return max(due_ms, now_ms + 1)
