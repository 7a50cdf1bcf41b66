"""The leader's side: announces its election, answers fetches and commits records.

Kafka: the leader methods of org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.raft import KRaftVersionRecord
from ottla.raft.leader import Leader
from ottla.raft.messages import AnnounceLeader, AppendBatch, Respond
from ottla.raft.requests import (
    BeginQuorumEpoch,
    EpochResponse,
    Fetch,
    FetchResponse,
    FetchSnapshotResponse,
    ReplicaKey,
)
from ottla.raft.timeouts import FETCH_MAX_WAIT_MS, NEVER_MS
from ottla.raft.voter_set import VoterSet, encode_control_messages, leader_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.purgatory.pending import Pending
    from ottla.raft.member import QuorumMember
    from ottla.raft.requests import FetchSnapshot
    from ottla.raft.voter_set import ControlMessage
    from ottla.types import Buffer


class _Waiting(NamedTuple):
    """A fetch that waits for records or for the high watermark."""

    token: Pending[Any]
    request: Fetch
    deadline_ms: int


class Leading:
    """Serves the other replicas while this node leads."""

    __slots__ = ("_member", "_waiting")

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._waiting: list[_Waiting] = []

    @property
    def has_waiting(self) -> bool:
        """Whether fetches wait for records."""
        return bool(self._waiting)

    # The epoch's beginning and end

    def begin(self, granting: frozenset[int], now_ms: int) -> None:
        """Lead: write the epoch's first records, among them the voters if the log lacks them."""
        member = self._member
        role = member.become_leader(now_ms)
        messages: list[ControlMessage] = [leader_change(member.key.node_id, role.voters, granting)]
        voters = self._with_own_endpoints()
        if member.voters.kraft_version > 0 and not member.voters.is_in_log:
            version = member.voters.kraft_version
            messages.append(KRaftVersionRecord(version=0, kraft_version=version))
            messages.append(voters.to_record())
        elif member.voters.kraft_version > 0 and voters != role.voters:
            messages.append(voters.to_record())
        elif member.voters.kraft_version == 0:
            role.reported_voters = self._before_reports()
        self.append_control(role, messages, now_ms)

    def _before_reports(self) -> VoterSet:
        """Return the static voters; only of itself a leader knows directory and levels."""
        member = self._member
        return VoterSet(
            one._replace(directory_id=member.key.directory_id, endpoints=member.endpoints)
            if one.voter_id == member.key.node_id
            else one._replace(highest_kraft_version=0)
            for one in member.voters.latest
        )

    def _with_own_endpoints(self) -> VoterSet:
        """Return the voters with the addresses at which this leader serves now."""
        member, voters = self._member, self._member.voters.latest
        own = voters.get(member.key.node_id)
        if own is None or not member.endpoints:
            return voters
        moved = own._replace(endpoints=member.endpoints)
        return VoterSet(moved if voter is own else voter for voter in voters)

    def append_control(self, role: Leader, messages: Sequence[ControlMessage], now_ms: int) -> None:
        """Write control records in a batch of their own, after what was offered before them."""
        base = role.accumulator.next_offset
        control = encode_control_messages(
            messages, base_offset=base, leader_epoch=role.epoch, timestamp=self._member.wall_ms()
        )
        role.accumulator.append_control(control, len(messages))
        for number, message in enumerate(messages):
            self._member.voters.apply(base + number, message)
        if self._member.voters.latest != role.voters:
            role.change_voters(self._member.voters.latest, now_ms)

    def leader_role(self) -> Leader | None:
        """Return the leader's role, None where this node does not lead."""
        role = self._member.role
        return role if isinstance(role, Leader) else None

    def resign(self, now_ms: int) -> None:
        """Resign; the preferred successor is the voter with the longest log that still fetches.

        Kafka compares the logs only: a successor that is down delays the election.
        """
        member, role = self._member, self._member.role
        assert isinstance(role, Leader)
        own_id = member.key.node_id
        others = [replica for replica in role.replicas.values() if replica.key.node_id != own_id]
        silent_ms = now_ms - 2 * FETCH_MAX_WAIT_MS
        others.sort(
            key=lambda follower: (
                follower.last_fetch_ms < silent_ms,
                -follower.end_offset,
                follower.key.node_id,
            )
        )
        member.become_resigned(
            now_ms,
            preferred=tuple(follower.key for follower in others),
            unacknowledged=frozenset(follower.key.node_id for follower in others),
        )

    def poll(self, role: Leader, now_ms: int) -> int:
        """Announce the election, flush, end long polls; resign when it is due."""
        self._flush(role, now_ms)
        due_ms = self._resignation_due_ms(role)
        if due_ms <= now_ms:
            self.resign(now_ms)
            return now_ms
        due_ms = min(due_ms, self._announce(role, now_ms))
        self._answer_waiting(role, now_ms)
        return min([due_ms, *(request.deadline_ms for request in self._waiting)])

    def _resignation_due_ms(self, role: Leader) -> int:
        """Return when this leader resigns: without a majority's fetches, or when its disk hangs.

        A leader that cannot flush commits nothing but answers fetches, so no voter would start an
        election. Kafka's flush blocks its thread, which ends the answers.
        """
        if len(role.voters) <= 1:
            return NEVER_MS
        member = self._member
        if not member.is_flushing:
            return role.deadline_ms
        return min(role.deadline_ms, member.flush_started_ms + member.timeouts.fetch_ms)

    def _announce(self, role: Leader, now_ms: int) -> int:
        """Send BeginQuorumEpoch to voters that do not fetch, each time half a fetch timeout later.

        Kafka: LeaderState.needToSendBeginQuorumRequests.
        """
        member, due_ms = self._member, NEVER_MS
        interval_ms = member.timeouts.begin_epoch_ms
        for voter in role.voters:
            replica = role.replicas[voter.voter_id]
            if voter.voter_id == member.key.node_id:
                continue
            fetched_ms = replica.last_fetch_ms + interval_ms if replica.last_fetch_ms >= 0 else 0
            told_ms = max(fetched_ms, replica.begin_epoch_due_ms)
            ready_ms = max(told_ms, member.in_flight.ready_ms(voter.voter_id, now_ms))
            if ready_ms <= now_ms:
                key = ReplicaKey(voter.voter_id, voter.directory_id)
                request = BeginQuorumEpoch(role.leader, key)
                member.send(voter.voter_id, voter.endpoints, request, now_ms)
                ready_ms = replica.begin_epoch_due_ms = now_ms + interval_ms
            due_ms = min(due_ms, ready_ms)
        return due_ms

    # Records

    def offer(self, values: Sequence[Buffer], timestamp_ms: int) -> None:
        """Accept the controller's records; NOT_CONTROLLER where this node does not lead."""
        role = self.leader_role()
        if role is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        role.accumulator.append(list(values), timestamp_ms)

    def flushed(self, role: Leader) -> None:
        """Count this node's own copy."""
        if role.flushed(self._member.durable_end_offset):
            self._committed(role)

    def _flush(self, role: Leader, now_ms: int) -> None:
        """Write what was offered, one batch for each flush, and make it durable."""
        member = self._member
        if member.is_flushing:
            return
        if member.durable_end_offset < member.log.end_offset:
            member.flush(now_ms)
        elif not role.accumulator.is_empty:
            member.effects.append(AppendBatch(*role.accumulator.next_batch()))
            member.flush(now_ms)

    def _committed(self, role: Leader) -> None:
        """Announce what is committed; the first time also that this node leads.

        Only then is every record before the epoch known to be committed.
        """
        assert role.high_watermark is not None
        self._member.raise_high_watermark(role.high_watermark)
        if not role.is_announced:
            role.is_announced = True
            announced = AnnounceLeader(role.epoch, role.epoch_start_offset)
            self._member.effects.append(announced)

    # Fetches

    def fetch(self, request: Fetch, token: Pending[Any], now_ms: int) -> None:
        """Answer with records, with where the logs diverge or with a snapshot's id; or wait."""
        member, role = self._member, self._member.role
        error = member.leader_only_error(request.epoch)
        if request.max_wait_ms < 0 or request.offset < 0:
            error = ErrorCode.INVALID_REQUEST
        if request.last_epoch < 0 or request.last_epoch > request.epoch:
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            self._respond(token, self._refused(error))
            return
        mismatch = self._mismatch(role, request)
        if mismatch is not None:
            self._respond(token, mismatch)
            return
        end_offset = member.log.end_offset
        is_replica = request.replica.node_id >= 0  # a consumer has no id
        if is_replica and role.fetched_by(request.replica, request.offset, end_offset, now_ms):
            self._committed(role)
        self._waiting.append(_Waiting(token, request, now_ms + request.max_wait_ms))

    def _refused(self, error: ErrorCode) -> FetchResponse:
        member = self._member
        return FetchResponse(error, member.leader, log_start_offset=member.log.start_offset)

    def _mismatch(self, role: Leader, request: Fetch) -> FetchResponse | None:
        """Return the response for a replica whose log diverges or needs a snapshot."""
        log = self._member.log
        offset, epoch = request.offset, request.last_epoch
        if log.latest_snapshot is not None and log.needs_snapshot(offset, epoch):
            return self._empty_response(role)._replace(snapshot_id=log.latest_snapshot)
        diverging = log.divergence(offset, epoch)
        if diverging is not None:
            return self._empty_response(role)._replace(diverging=diverging)
        return None

    def _empty_response(self, role: Leader) -> FetchResponse:
        committed = -1 if role.high_watermark is None else role.high_watermark
        start = self._member.log.start_offset
        return FetchResponse(ErrorCode.NONE, role.leader, committed, start)

    def _answer_waiting(self, role: Leader, now_ms: int) -> None:
        """Answer the fetches that have something to read or a higher watermark to learn."""
        end_offset, committed = self._member.log.end_offset, role.high_watermark
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            request = one.request
            is_new = committed is not None and request.high_watermark < committed
            has_records = request.offset < end_offset
            if has_records or is_new or one.deadline_ms <= now_ms:
                offset = request.offset if has_records else -1
                self._respond(one.token, self._empty_response(role)._replace(read_offset=offset))
            else:
                self._waiting.append(one)

    def end_waiting(self) -> None:
        """Answer every waiting fetch: this node no longer leads."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._respond(request.token, self._refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def fetch_snapshot(self, request: FetchSnapshot, token: Pending[Any], now_ms: int) -> None:
        """Answer with a part of a snapshot."""
        member = self._member
        error = member.leader_only_error(request.epoch)
        if error is ErrorCode.NONE:
            size = member.log.snapshot_size(request.snapshot_id)
            if size is None or request.snapshot_id.offset == 0:  # that is each node's own
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < size:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        if error is not ErrorCode.NONE:
            size = 0
        elif isinstance(member.role, Leader):
            member.role.followed_by(request.replica, now_ms)
        self._respond(
            token,
            FetchSnapshotResponse(
                error, member.leader, request.snapshot_id, size or 0, request.position
            ),
        )

    def _respond(
        self, token: Pending[Any], response: FetchResponse | FetchSnapshotResponse | EpochResponse
    ) -> None:
        self._member.effects.append(Respond(token, response))
