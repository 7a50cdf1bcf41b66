"""Changes of the voters, one at a time: added, removed, sent with new addresses.

A new voter set is in force as soon as it is in the leader's log; the next change waits until it is
committed. A controller that joins by itself (KIP-1186) sends these requests as an observer.

Kafka: org.apache.kafka.raft.internals.{AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler}
(KIP-853), KafkaRaftClient.pollFollowerAsObserver, handleAddVoterRequest and its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.raft import KRaftVersionRecord
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
from ottla.raft.roles import Follower
from ottla.raft.timeouts import NEVER_MS
from ottla.raft.voter_set import Voter, VoterSet

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from ottla.raft.leader import Leader
    from ottla.raft.leading import Leading
    from ottla.raft.member import QuorumMember
    from ottla.raft.voter_set import ControlMessage, VoterAddress


_BUSY = "Request timed out waiting for leader to handle previous voter change request"
_NO_HIGH_WATERMARK = (
    "Request timed out waiting for leader to establish HWM and fence previous voter changes"
)


def _check_request(request: AddVoter | RemoveVoter | UpdateVoter, listener: str) -> None:
    """Raise INVALID_REQUEST for a change that names no voter, or no address on the listener.

    listener is the controllers' own, the first of controller.listener.names.
    """
    match request:
        case RemoveVoter(key):
            _check_key(key, "Remove voter request didn't include a valid voter")
        case AddVoter(voter):
            _check_key(_replica_key(voter), "Add voter request didn't include a valid voter")
            if not _has_listener(voter, listener):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Add voter request didn't include the endpoint "
                    f"({_endpoints_text(voter.endpoints)}) for the default listener "
                    f"ListenerName({listener})",
                )
        case UpdateVoter(voter):
            _check_key(_replica_key(voter), None)
            lowest, highest = voter.lowest_kraft_version, voter.highest_kraft_version
            if not _has_listener(voter, listener) or not 0 <= lowest <= highest:
                raise KafkaError(ErrorCode.INVALID_REQUEST)


def _check_key(key: ReplicaKey, text: str | None) -> None:
    if key.node_id < 0 or not key.directory_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _has_listener(voter: Voter, listener: str) -> bool:
    return any(end.listener_name == listener for end in voter.endpoints)


def _check_voter(request: AddVoter | RemoveVoter, voters: VoterSet) -> None:
    """Raise for a voter that is already one, or is none and cannot be removed."""
    if isinstance(request, AddVoter):
        if voters.get(request.voter.voter_id) is not None:
            raise KafkaError(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {_key_text(_replica_key(request.voter))} is already part of the "
                f"set of voters {_voters_text(voters)}.",
            )
        return
    known = voters.get(request.key.node_id)
    if known is None or known.directory_id != request.key.directory_id or len(voters) == 1:
        raise KafkaError(
            ErrorCode.VOTER_NOT_FOUND,
            f"Cannot remove voter {_key_text(request.key)} from the set of voters "
            f"{_voters_text(voters)}",
        )


def _check_upgrade(level: int, current: int, voters: VoterSet) -> None:
    """Raise INVALID_UPDATE_VERSION for a kraft.version that not every voter supports."""
    reason = None
    if level < current:
        reason = (
            f"from version {_version_name(current)} to {_version_name(level)} because the new "
            "version is a downgrade"
        )
    elif level > current and not all(
        voter.lowest_kraft_version <= level <= voter.highest_kraft_version for voter in voters
    ):
        reason = f"to {_version_name(level)} because not all of the voters support it"
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid upgrade of kraft.version {reason}"
        )


def _version_name(level: int) -> str:
    return f"KRAFT_VERSION_{level}"


def _updated(voters: VoterSet, voter: Voter, kraft_version: int) -> VoterSet:
    """Return the voters with one replaced; raise for one that is unknown or not compatible.

    Static voters have no directory id.
    """
    if not voter.lowest_kraft_version <= kraft_version <= voter.highest_kraft_version:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    known = voters.get(voter.voter_id)
    if known is None or (kraft_version > 0 and known.directory_id != voter.directory_id):
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND)
    return VoterSet(voter if other is known else other for other in voters)


def _replica_key(voter: Voter) -> ReplicaKey:
    return ReplicaKey(voter.voter_id, voter.directory_id)


def _key_text(key: ReplicaKey) -> str:
    """Return a replica as Kafka's ReplicaKey writes itself."""
    directory = str(key.directory_id) if key.directory_id else "<undefined>"
    return f"ReplicaKey(id={key.node_id}, directoryId={directory})"


def _voters_text(voters: VoterSet) -> str:
    return "[" + ", ".join(_key_text(_replica_key(voter)) for voter in voters) + "]"


def _endpoints_text(endpoints: tuple[VoterAddress, ...]) -> str:
    shown = ", ".join(
        f"ListenerName({endpoint.listener_name})={endpoint.host}/<unresolved>:{endpoint.port}"
        for endpoint in endpoints
    )
    return f"Endpoints(endpoints={{{shown}}})"


FETCHED_WITHIN_MS = 3_600_000
"""A voter that is added has fetched to the end of the log, and lately."""
_EXPECTED_OF_JOINING = (
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
)


class _Change:
    """An addition or removal under way."""

    __slots__ = ("added", "deadline_ms", "is_acknowledged", "offset", "token")

    def __init__(self, added: AddVoter | None, token: Pending[Any], deadline_ms: int) -> None:
        self.added = added
        """The request for a new voter, which has yet to say what levels it supports."""
        self.token = token
        self.is_acknowledged = False
        self.deadline_ms = deadline_ms
        self.offset: int | None = None
        """Of the VotersRecord, once it is written; the change is complete when it is committed."""


class Reconfiguration:
    """The leader's side, and a follower's reports of its own addresses."""

    __slots__ = ("_change", "_leading", "_member")

    def __init__(self, member: QuorumMember, leading: Leading) -> None:
        self._member = member
        self._leading = leading
        self._change: _Change | None = None

    # Requests

    def requested(
        self, request: AddVoter | RemoveVoter | UpdateVoter, token: Pending[Any], now_ms: int
    ) -> None:
        """Begin a change of the voters, or refuse it."""
        member, role = self._member, self._leading.leader_role()
        epoch = request.epoch if isinstance(request, UpdateVoter) else member.epoch
        error = member.leader_only_error(epoch)
        if error is not ErrorCode.NONE or role is None:
            self._respond(token, VoterChangeResponse(error, member.leader))
            return
        try:
            _check_request(request, member.listener)
            change = self._change
            if change is not None and change.deadline_ms <= now_ms:
                self._end(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            if self._change is not None:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, _BUSY)
            if role.high_watermark is None:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, _NO_HIGH_WATERMARK)
            if isinstance(request, UpdateVoter):
                self._update(role, request.voter, now_ms)
                self._respond(token, VoterChangeResponse(ErrorCode.NONE, member.leader))
                return
            self._check_change(role, request)
            self._begin(role, request, token, now_ms)
        except KafkaError as refused:
            self._refuse(token, refused)

    def _check_change(self, role: Leader, request: AddVoter | RemoveVoter) -> None:
        voters = self._member.voters
        if voters.kraft_version < 1:
            doing = "adding" if isinstance(request, AddVoter) else "removing"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Cluster doesn't support {doing} voter because the kraft.version feature is "
                f"{voters.kraft_version}",
            )
        high_watermark = role.high_watermark or 0
        if voters.latest_offset >= high_watermark:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for voters to commit the latest voter change at "
                f"Optional[{voters.latest_offset}] with HWM {high_watermark}",
            )
        _check_voter(request, voters.latest)

    def _begin(
        self, role: Leader, request: AddVoter | RemoveVoter, token: Pending[Any], now_ms: int
    ) -> None:
        member = self._member
        deadline_ms = now_ms + member.timeouts.request_ms
        if isinstance(request, RemoveVoter):
            self._change = _Change(None, token, deadline_ms)
            remaining = [other for other in role.voters if other.voter_id != request.key.node_id]
            self._append(role, VoterSet(remaining), now_ms)
            return
        voter = request.voter
        if member.in_flight.ready_ms(voter.voter_id, now_ms) > now_ms:
            shown = _key_text(_replica_key(voter))
            text = f"New voter {shown} is not ready to receive requests"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
        self._change = _Change(request, token, deadline_ms)
        member.send(voter.voter_id, voter.endpoints, DescribeVersions(member.epoch), now_ms)

    def _update(self, role: Leader, voter: Voter, now_ms: int) -> None:
        """Store a voter's new addresses; those of static voters only until the epoch ends."""
        voters, level = self._member.voters, self._member.voters.kraft_version
        if level > 0 and voters.latest_offset >= (role.high_watermark or 0):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        known = role.voters if role.reported_voters is None else role.reported_voters
        changed = _updated(known, voter, level)
        if voter.voter_id == self._member.key.node_id:  # Kafka raises
            text = f"Node {voter.voter_id} leads the quorum and does not send itself its addresses"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if role.reported_voters is not None:
            role.reported_voters = changed
        elif changed != role.voters:
            self._append(role, changed, now_ms)
        role.followed_by(_replica_key(voter), now_ms)

    def check_kraft_version(self, level: int) -> None:
        """Raise INVALID_UPDATE_VERSION for a level that some voter does not support."""
        role, current = self._leading.leader_role(), self._member.voters.kraft_version
        if role is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        voters = role.voters if role.reported_voters is None else role.reported_voters
        _check_upgrade(level, current, voters)

    def raise_kraft_version(self, level: int, now_ms: int) -> None:
        """Write the level and the voters as they described themselves, as one batch."""
        role, member = self._leading.leader_role(), self._member
        if role is None or role.reported_voters is None or level == member.voters.kraft_version:
            return
        records: list[ControlMessage] = [
            KRaftVersionRecord(version=0, kraft_version=level),
            role.reported_voters.to_record(),
        ]
        role.reported_voters = None
        self._leading.append_control(role, records, now_ms)

    def _append(self, role: Leader, voters: VoterSet, now_ms: int) -> None:
        self._leading.append_control(role, [voters.to_record()], now_ms)
        if self._change is not None:
            self._change.offset = self._member.voters.latest_offset

    def described(self, node_id: int, response: VersionsResponse | None, now_ms: int) -> None:
        """Add the voter that said which levels it supports, if it has the log; None: no answer."""
        if response is None or response.error is not ErrorCode.NONE:
            self._member.in_flight.pause(node_id, now_ms)
        change, role = self._change, self._leading.leader_role()
        if change is None or role is None or change.added is None:
            return
        if change.offset is not None or change.added.voter.voter_id != node_id:
            return
        voter = change.added.voter
        try:
            _check_answer(response)
            assert response is not None
            level = self._member.voters.kraft_version
            if not response.lowest <= level <= response.highest:
                levels = "(min: 0, max: 0)"
                if response.highest > 0:  # without the closing parenthesis, as Kafka writes it
                    levels = f"(min: {response.lowest}, max: {response.highest}"
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Aborted add voter operation for {_key_text(_replica_key(voter))} since the "
                    f"kraft.version range {levels} doesn't support "
                    f"the finalized version {level}",
                )
            key = _replica_key(voter)
            replica = role.observers.get(key)
            since_ms = now_ms - FETCHED_WITHIN_MS
            if (
                replica is None
                or replica.last_caught_up_ms < 0
                or replica.last_fetch_ms <= since_ms
            ):
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"Aborted add voter operation for {_key_text(key)} since it is lagging behind",
                )
        except KafkaError as error:
            self._end(error)
            return
        voter = voter._replace(
            lowest_kraft_version=response.lowest, highest_kraft_version=response.highest
        )
        self._append(role, VoterSet([*role.voters, voter]), now_ms)
        if not change.added.ack_when_committed:
            self._acknowledge(change)

    # What is due

    def poll(self, role: Leader, now_ms: int) -> int:
        """Continue the change; a leader that is not a voter resigns. Return the next deadline."""
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
        return change.deadline_ms

    def end(self) -> None:
        """Refuse the change under way: this node no longer leads."""
        if self._change is not None:
            self._end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _end(self, error: KafkaError | None = None) -> None:
        change, self._change = self._change, None
        if change is None or change.is_acknowledged:
            return
        if error is None:
            self._acknowledge(change)
        else:
            self._refuse(change.token, error)

    def _acknowledge(self, change: _Change) -> None:
        change.is_acknowledged = True
        self._respond(change.token, VoterChangeResponse(ErrorCode.NONE, self._member.leader))

    def _refuse(self, token: Pending[Any], error: KafkaError) -> None:
        self._respond(token, VoterChangeResponse(error.code, self._member.leader, error.message))

    def _respond(self, token: Pending[Any], response: VoterChangeResponse) -> None:
        self._member.effects.append(Respond(token, response))

    # The follower's side

    def poll_follower(self, role: Follower, now_ms: int) -> int:
        """Send this node's addresses to the leader; return the next deadline."""
        member = self._member
        if not member.endpoints:
            return NEVER_MS
        request: AddVoter | RemoveVoter | UpdateVoter | None
        if member.voters.kraft_version < 1:
            request = self._own_report(role)
        else:
            request = self._own_update(role) if member.is_voter else self._own_joining()
        if request is None:
            return NEVER_MS
        leader_id = role.leader.leader_id
        due_ms = max(role.update_due_ms, member.in_flight.ready_ms(leader_id, now_ms))
        if due_ms <= now_ms:
            role.update_due_ms = now_ms + member.timeouts.update_voter_ms
            member.send(leader_id, role.leader.endpoints, request, now_ms)
        return max(due_ms, now_ms + 1)

    def _own_report(self, role: Follower) -> UpdateVoter | None:
        """Return what each leader needs to know of a static voter, for an upgrade."""
        member = self._member
        if not member.is_voter or role.has_reported:
            return None
        return UpdateVoter(Voter(*member.key, member.endpoints), role.epoch)

    def _own_update(self, role: Follower) -> UpdateVoter | None:
        """Return this voter's addresses when the voter set has others."""
        member = self._member
        known = member.voters.latest.get(member.key.node_id)
        assert known is not None
        own = known._replace(endpoints=member.endpoints)
        return None if own == known else UpdateVoter(own, role.epoch)

    def _own_joining(self) -> AddVoter | RemoveVoter | None:
        """Return how this observer becomes a voter: its former directory goes first (KIP-1186)."""
        member = self._member
        if not member.joins_by_itself:
            return None
        node_id, directory_id = member.key
        former = member.voters.latest.get(node_id)
        if former is not None:
            return RemoveVoter(_replica_key(former))
        own = Voter(node_id, directory_id, member.endpoints)
        return AddVoter(own, ack_when_committed=False, timeout_ms=member.timeouts.request_ms)

    def answered(self, node_id: int, response: VoterChangeResponse, now_ms: int) -> None:
        """Delay the next request; an unexpected error pauses all requests to the leader."""
        member = self._member
        role = member.role
        if response.error is ErrorCode.NONE and isinstance(role, Follower):
            role.has_reported = True
        if response.error in _EXPECTED_OF_JOINING and isinstance(role, Follower):
            role.update_due_ms = now_ms + member.timeouts.update_voter_ms
        elif response.error is not ErrorCode.NONE:
            member.in_flight.pause(node_id, now_ms)


def _check_answer(response: VersionsResponse | None) -> None:
    """Raise when the new voter did not answer the request for its versions."""
    error = ErrorCode.BROKER_NOT_AVAILABLE if response is None else response.error
    if error is not ErrorCode.NONE:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Aborted add voter operation for since API_VERSIONS returned an error {error.name}",
        )
