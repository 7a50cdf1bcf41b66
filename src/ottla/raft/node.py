"""The state machine of one quorum member: events in, effects out.

`handle` takes an event; after its effects on the log are executed, `poll` returns what is due:
requests, flushes, elections. Kafka: org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.raft.elections import Elections
from ottla.raft.following import Following
from ottla.raft.leader import Leader
from ottla.raft.leading import Leading
from ottla.raft.member import QuorumMember
from ottla.raft.messages import (
    KRaftVersionOffered,
    LogFlushed,
    RecordsOffered,
    RequestReceived,
    Respond,
    ResponseReceived,
    ShutdownRequested,
)
from ottla.raft.reconfiguration import Reconfiguration
from ottla.raft.requests import (
    BeginQuorumEpoch,
    DescribeVersions,
    EndQuorumEpoch,
    EpochResponse,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    VersionsResponse,
    Vote,
    VoterChangeResponse,
    VoteResponse,
)
from ottla.raft.roles import Candidate, Follower, Resigned, Unattached
from ottla.raft.timeouts import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from ottla.purgatory.pending import Pending
    from ottla.raft.member import LogView, MemberSettings, Role, Sent
    from ottla.raft.messages import Effect, Event
    from ottla.raft.quorum_state import ElectionState
    from ottla.raft.requests import Request, Response
    from ottla.raft.voter_set import QuorumDescription, VoterHistory, VoterSet
    from ottla.types import Uuid

log = logging.getLogger("ottla.raft")
_OWN_ID_LOG_INTERVAL_MS: Final = 60_000
"""The other process repeats its requests several times a second."""


class RaftNode:
    """A deterministic state machine: the same events give the same effects."""

    __slots__ = (
        "_elections",
        "_following",
        "_is_stopping",
        "_leading",
        "_member",
        "_own_id_logged_ms",
        "_reconfiguration",
        "deadline_ms",
    )

    def __init__(
        self,
        settings: MemberSettings,
        *,
        log: LogView,
        voters: VoterHistory,
        election: ElectionState,
        rng: Random,
        now_ms: int,
        wall_ms: Callable[[], int],
    ) -> None:
        """Begin with the stored state.

        Times are monotonic ms; wall_ms gives the timestamps of control records.
        """
        self._member = QuorumMember(
            settings,
            log=log,
            voters=voters,
            election=election,
            rng=rng,
            now_ms=now_ms,
            wall_ms=wall_ms,
        )
        self._elections = Elections(self._member)
        self._following = Following(self._member)
        self._leading = Leading(self._member)
        self._reconfiguration = Reconfiguration(self._member, self._leading)
        self._is_stopping = False
        self._own_id_logged_ms = now_ms - _OWN_ID_LOG_INTERVAL_MS
        self.deadline_ms = now_ms
        """When to poll again."""

    # Questions

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self._member.key.node_id

    @property
    def directory_id(self) -> Uuid:
        """The id of the metadata log's directory."""
        return self._member.key.directory_id

    @property
    def role(self) -> Role:
        """The role with its state."""
        return self._member.role

    @property
    def epoch(self) -> int:
        """The newest epoch this node knows."""
        return self._member.epoch

    @property
    def leader_id(self) -> int:
        """The leader's id, -1 when it is unknown; also after it has resigned."""
        role = self._member.role
        return -1 if isinstance(role, Resigned) else role.leader.leader_id

    @property
    def voters(self) -> VoterSet:
        """The voters that are in force."""
        return self._member.voters.latest

    @property
    def kraft_version(self) -> int:
        """The quorum's own feature level."""
        return self._member.voters.kraft_version

    def quorum_at(self, end_offset: int) -> QuorumDescription:
        """Return the voters and the kraft.version that the records below an offset name."""
        return self._member.voters.at(end_offset)

    @property
    def next_offset(self) -> int:
        """The offset that the next offered record will get; only a leader has one."""
        role = self._member.role
        if not isinstance(role, Leader):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return role.accumulator.next_offset

    @property
    def high_watermark(self) -> int:
        """The committed end of the log as far as this node knows, -1 when it does not."""
        return self._member.high_watermark

    @property
    def truncation_count(self) -> int:
        """How often the log was cut; a flush of an earlier count confirms nothing."""
        return self._member.truncation_count

    def check_kraft_version(self, level: int) -> None:
        """Raise KafkaError INVALID_UPDATE_VERSION for a level that the quorum cannot have."""
        self._reconfiguration.check_kraft_version(level)

    # Events

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Process one event.

        KafkaError NOT_CONTROLLER when records are offered to a node that does not lead.
        """
        match event:
            case RequestReceived(request, token):
                self._requested(request, token, now_ms)
            case ResponseReceived(correlation_id, response, is_refused):
                sent = self._member.in_flight.completed(correlation_id)
                if sent is not None:
                    self._answered(sent, response, now_ms)
                    if is_refused:
                        self._following.refused(sent.node_id, now_ms)
            case RecordsOffered(values, timestamp_ms):
                self._leading.offer(values, timestamp_ms)
            case KRaftVersionOffered(level):
                self._reconfiguration.raise_kraft_version(level, now_ms)
            case LogFlushed(end_offset, truncation_count):
                self._flushed(end_offset, truncation_count, now_ms)
            case ShutdownRequested():
                self._is_stopping = True
                if isinstance(self._member.role, Leader):
                    self._leading.resign(now_ms)
            case _:
                self._following.stored(event, now_ms)
        return self._take_effects()

    def _take_effects(self) -> list[Effect]:
        member = self._member
        if not isinstance(member.role, Leader):
            self._leading.end_waiting()
            self._reconfiguration.end()
        effects, member.effects = member.effects, []
        return effects

    def _requested(self, request: Request, token: Pending[Any], now_ms: int) -> None:
        match request:
            case Vote() | Fetch() | FetchSnapshot() if request.sender_id == self.node_id:
                self._refuse_own_id(request, token, now_ms)
            case Vote():
                self._elections.vote(request, token, now_ms)
            case BeginQuorumEpoch():
                self._elections.begin_epoch(request, token, now_ms)
            case EndQuorumEpoch():
                self._elections.end_epoch(request, token, now_ms)
            case Fetch():
                self._leading.fetch(request, token, now_ms)
            case FetchSnapshot():
                self._leading.fetch_snapshot(request, token, now_ms)
            case DescribeVersions():
                response = VersionsResponse(ErrorCode.NONE, self._member.leader)
                self._member.effects.append(Respond(token, response))
            case _:
                self._reconfiguration.requested(request, token, now_ms)

    def _refuse_own_id(
        self, request: Vote | Fetch | FetchSnapshot, token: Pending[Any], now_ms: int
    ) -> None:
        """Refuse a request of another process under this node's id: its copy of a log is none.

        A node sends itself nothing; the other one runs on a copy of its directory, or is set up
        with its id. Kafka answers a Fetch with UNKNOWN_SERVER_ERROR ("Remote replica ID matches the
        local leader ID"), and raises at FetchSnapshot.
        """
        member, name = self._member, type(request).__name__
        if now_ms >= self._own_id_logged_ms + _OWN_ID_LOG_INTERVAL_MS:
            self._own_id_logged_ms = now_ms
            text = "%s from another process with the node id %d; give one of the two another id"
            log.warning(text, name, self.node_id)
        response: Response
        if isinstance(request, Vote):
            response = VoteResponse(ErrorCode.INVALID_REQUEST, member.leader)
        else:
            refused = member.leader_only_error(request.epoch) or ErrorCode.UNKNOWN_SERVER_ERROR
            response = FetchResponse(refused, member.leader)
            if isinstance(request, FetchSnapshot):
                response = FetchSnapshotResponse(refused, member.leader, request.snapshot_id)
        member.effects.append(Respond(token, response))

    def _answered(self, sent: Sent, response: Response | None, now_ms: int) -> None:
        """Take a response: first what it says of the epoch, then what it answers."""
        in_flight = self._member.in_flight
        if isinstance(sent.request, DescribeVersions):
            described = response if isinstance(response, VersionsResponse) else None
            self._reconfiguration.described(sent.node_id, described, now_ms)
            return
        if response is None:
            in_flight.pause(sent.node_id, now_ms)
            self._elections.unanswered(sent.node_id)
            return
        if self._elections.learn(response.leader, now_ms):
            return
        if isinstance(response, VoterChangeResponse):
            self._reconfiguration.answered(sent.node_id, response, now_ms)
        elif isinstance(response, FetchSnapshotResponse) and isinstance(
            sent.request, FetchSnapshot
        ):
            self._following.snapshot_fetched(sent.request, response, now_ms)
        elif response.error is not ErrorCode.NONE or response.leader.epoch < self.epoch:
            in_flight.pause(sent.node_id, now_ms)
            self._elections.refused(sent.request, response.error, now_ms)
        elif isinstance(response, FetchResponse) and isinstance(sent.request, Fetch):
            self._following.fetched(sent.request, response, now_ms)
        elif isinstance(response, VoteResponse):
            self._elections.voted(sent.node_id, sent.request, response)
        elif isinstance(response, EpochResponse):
            self._elections.resignation_acknowledged(sent.node_id)

    def _flushed(self, end_offset: int, truncation_count: int, now_ms: int) -> None:
        """Record what is durable; a flush from before a truncation does not count."""
        member = self._member
        member.is_flushing = False
        if isinstance(member.role, Follower):
            self._following.flushed(member.role, now_ms)
        if truncation_count != member.truncation_count:
            return
        member.durable_end_offset = max(member.durable_end_offset, end_offset)
        if isinstance(member.role, Leader):
            self._leading.flushed(member.role)

    # What is due

    def poll(self, now_ms: int) -> list[Effect]:
        """Return what is to be done now; `deadline_ms` says when to ask again."""
        role = None
        while role is not self._member.role:
            role = self._member.role
            self.deadline_ms = self._poll_role(role, now_ms)
        return self._take_effects()

    def stalls(self) -> Iterator[str]:
        """Yield what waits in a polled machine although nothing that is to come ends it."""
        member, role = self._member, self._member.role
        if not isinstance(role, Leader):
            if self._leading.has_waiting:
                yield f"fetches of the quorum wait at a {type(role).__name__}"
        elif not member.is_flushing:
            if member.durable_end_offset < member.log.end_offset:
                yield "the leader of the quorum does not flush its log"
            elif not role.accumulator.is_empty:
                yield "the leader of the quorum does not write what was offered"
        waits_for_time = self.deadline_ms < NEVER_MS or self._is_stopping
        is_alone = isinstance(role, Leader) and len(role.voters) <= 1
        waits_for_disk = member.is_flushing or member.is_storing
        if not waits_for_time and not is_alone and not waits_for_disk:
            yield f"the {type(role).__name__} of the quorum waits for nothing"

    def _poll_role(self, role: Role, now_ms: int) -> int:
        if self._is_stopping and not isinstance(role, Resigned):
            return NEVER_MS
        if isinstance(role, Leader):
            due_ms = self._leading.poll(role, now_ms)
            if self._member.role is role:
                due_ms = min(due_ms, self._reconfiguration.poll(role, now_ms))
            return due_ms
        if isinstance(role, Follower):
            update_ms = self._reconfiguration.poll_follower(role, now_ms)
            return min(update_ms, self._following.poll(role, now_ms))
        if isinstance(role, Unattached):
            return self._following.poll(role, now_ms)
        if isinstance(role, Candidate) and role.ballot.is_won:
            self._leading.begin(frozenset(role.ballot.granted), now_ms)
            return now_ms
        return self._elections.poll(role, now_ms)
