"""A member of a group of the classic protocol, of any protocol type: join, sync, heartbeat, leave.

Kafka: org.apache.kafka.clients.consumer.internals.AbstractCoordinator, which its consumer and its
Connect workers share. KIP-62 (limit between polls), KIP-345 (static members), KIP-394 (member id
before the first join).

The member sends requests on its own, but it joins, and its assignment counts, only when its owner
says so: work is never taken away from an owner that is busy with it.

    UNJOINED --may_join--> READY_TO_JOIN --send--> JOINING --answer--> SYNCING
    SYNCING --answer--> ASSIGNED --accept--> STABLE --may_join (a rebalance)--> READY_TO_JOIN

An error, or the end of the membership, leads back to UNJOINED or READY_TO_JOIN from anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clients.coordinator import PURPOSE
from ottla.clients.offsets import CommitIdentity
from ottla.clients.pending_errors import PendingErrors
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.heartbeat import HeartbeatRequest
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clients.client import Client
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.protocol.apis.join_group import JoinGroupResponse
    from ottla.purgatory.pending import Pending
    from ottla.types import Buffer

JOIN_MARGIN_MS: Final = 5_000
"""As in Kafka: the coordinator answers a join at the rebalance timeout, and then late."""
MAX_REASON_CHARS: Final = 255
NO_GENERATION: Final = -1
MEMBERSHIP_ENDS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
REBALANCING: Final = "the group is rebalancing"


class GroupState(Enum):
    """The states of a group member."""

    UNJOINED = "unjoined"
    READY_TO_JOIN = "ready to join"
    JOINING = "joining"
    SYNCING = "syncing"
    ASSIGNED = "assigned"
    STABLE = "stable"


HEARTBEAT_STATES: Final = frozenset({GroupState.SYNCING, GroupState.ASSIGNED, GroupState.STABLE})


class GroupMemberSettings(NamedTuple):
    """The settings of a member, by Kafka's names for consumers."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    """Also the limit between two `polled`, after which the member leaves (KIP-62)."""
    request_timeout_ms: int
    retry_backoff_ms: int
    instance_id: str | None = None


class ClassicGroupMember(ABC):
    """The state machine of one member.

    Subclasses give the protocol by overriding the hooks: its type, the metadata of a join, the
    leader's assignment, and the use of an assignment. `poll` and the responses call them.
    """

    protocol_type: str

    def __init__(
        self, settings: GroupMemberSettings, client: Client, coordinator: CoordinatorLookup
    ) -> None:
        self.client = client
        self.coordinator = coordinator
        self.state = GroupState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol_name: str | None = None
        self.is_leader = False
        self.errors = PendingErrors()
        self._member = settings
        self._rejoin_needed = True
        self._reason = ""
        self._fenced = False
        self._last_polled_ms = 0
        self._last_heartbeat_ms = 0
        self._last_contact_ms = 0
        self._heartbeating = False
        self._retry_at_ms = 0
        self._failures = 0
        self._join_request: Pending[Any] | None = None
        self._left_after_poll_timeout = False

    # ------------------------------------------------------------ hooks for each protocol type

    @property
    def _is_active(self) -> bool:
        """Whether the member may join; without this one that has joined goes on until it leaves."""
        return True

    def _is_prepared(self) -> bool:
        """Whether the metadata of a join can be stated now."""
        return True

    @abstractmethod
    def _join_metadata(self) -> Mapping[str, bytes]:
        """Return the metadata by protocol name, the preferred one first; the join is sent next."""

    @abstractmethod
    def _assign(self, response: JoinGroupResponse) -> Pending[Mapping[str, bytes]]:
        """Return each member's assignment, as leader of the generation.

        With `skip_assignment` (a static leader that rejoined) there is nothing to assign. The
        response's members have the metadata that each stated for the chosen protocol.
        """

    @abstractmethod
    def _take_assignment(self, data: Buffer) -> None:
        """Read an assignment, which `accept` makes the current one; CorruptMessage if invalid."""

    @property
    def _may_rejoin(self) -> bool:
        """Whether the owner has nothing to do before the member joins again after an error."""
        return True

    @abstractmethod
    def _ended(self, *, lost: bool) -> None:
        """Forget the assignment; with `lost`, other members may have it already."""

    # ------------------------------------------------------------ state

    @property
    def identity(self) -> CommitIdentity:
        """The identity that commits are sent with."""
        return CommitIdentity(self.generation, self.member_id, self._member.instance_id)

    @property
    def is_member(self) -> bool:
        """Whether the member belongs to a generation of the group."""
        return self.generation != NO_GENERATION

    @property
    def wants_to_join(self) -> bool:
        """Whether the owner should give up what others may get, and call `may_join`."""
        is_idle = self.state in (GroupState.UNJOINED, GroupState.STABLE)
        return self._rejoin_needed and is_idle and not self._fenced

    def polled(self, now_ms: int) -> None:
        """Note that the owner is alive: without this for the rebalance timeout it leaves."""
        self._last_polled_ms = now_ms
        self._left_after_poll_timeout = False

    def request_rejoin(self, reason: str) -> None:
        """Request a rejoin, which the owner allows by `may_join`; the broker logs the reason."""
        self._rejoin_needed = True
        self._reason = reason
        self.client.transport.wake()

    def may_join(self) -> None:
        """Join with the next poll."""
        self.state = GroupState.READY_TO_JOIN
        self.client.transport.wake()

    def accept(self) -> None:
        """Make the new assignment the current one."""
        self.state = GroupState.STABLE

    # ------------------------------------------------------------ time

    def poll(self, now_ms: int) -> None:
        """Join, send a heartbeat or leave, whichever is due."""
        if not self._is_active and not self.is_member:
            return
        self.coordinator.poll(now_ms)
        if self.coordinator.fatal is not None:
            self.errors.add(self.coordinator.fatal)
            self.coordinator.fatal = None
        if self.state is GroupState.READY_TO_JOIN and self._retry_at_ms <= now_ms:
            if self.coordinator.known and self._is_prepared():
                self._join()
        elif self.is_member:
            self._keep_alive(now_ms)

    def _keep_alive(self, now_ms: int) -> None:
        if now_ms - self._last_polled_ms > self._member.rebalance_timeout_ms:
            if not self._left_after_poll_timeout:
                self._left_after_poll_timeout = True
                self.leave("consumer poll timeout has expired.")
                self._forget(lost=True)
            return
        if self.state not in HEARTBEAT_STATES:
            return
        if now_ms - self._last_contact_ms > self._member.session_timeout_ms:
            self.coordinator.lost()
            self._last_contact_ms = now_ms
        due_ms = max(self._last_heartbeat_ms + self._member.heartbeat_interval_ms, 0)
        if due_ms <= now_ms and self._retry_at_ms <= now_ms:
            self._heartbeat(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when a heartbeat, a retry or the rebalance timeout is due."""
        deadlines = []
        is_looking = self._is_active or self.is_member
        if is_looking and (lookup_ms := self.coordinator.next_deadline_ms()) is not None:
            deadlines.append(lookup_ms)
        waits = self.state is GroupState.READY_TO_JOIN and self.coordinator.known
        if waits and self._retry_at_ms > self.client.now_ms:  # else it waits for metadata
            deadlines.append(self._retry_at_ms)
        if self.is_member:
            deadlines.append(self._last_polled_ms + self._member.rebalance_timeout_ms + 1)
            beats = self.state in HEARTBEAT_STATES and not self._heartbeating
            if beats and self.coordinator.known:
                due_ms = self._last_heartbeat_ms + self._member.heartbeat_interval_ms
                deadlines.append(max(due_ms, self._retry_at_ms))
        return min(deadlines, default=None)

    # ------------------------------------------------------------ join and sync

    def _join(self) -> None:
        self.state = GroupState.JOINING
        self.client.trace.add("group", "joins the group: %s", self._reason or "it is no member")
        self._rejoin_needed = False
        request = JoinGroupRequest(
            group_id=self.coordinator.key,
            session_timeout_ms=self._member.session_timeout_ms,
            rebalance_timeout_ms=self._member.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self._member.instance_id,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self._join_metadata().items()
            ],
            reason=self._reason[:MAX_REASON_CHARS],
        )
        self._send_join(request, self._joined)

    def _joined(self, done: Pending[Any]) -> None:
        if self.state is not GroupState.JOINING or done is not self._join_request:
            return
        if done.error is not None:
            self._join_failed(done.error)
            return
        response = done.value
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:  # KIP-394
            self.member_id = response.member_id
            self.state = GroupState.READY_TO_JOIN
            return
        if response.error_code:
            self._join_failed(KafkaError(response.error_code))
            return
        self._failures = 0
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.protocol_name = response.protocol_name
        self.is_leader = response.leader == response.member_id
        self._last_contact_ms = self._last_heartbeat_ms = self.client.now_ms
        self.state = GroupState.SYNCING
        if not self.is_leader:
            self._sync({})
            return
        generation = self.generation

        def assigned(done: Pending[Mapping[str, bytes]]) -> None:
            if self.state is not GroupState.SYNCING or self.generation != generation:
                return
            if done.error is not None:
                self._join_failed(done.error)
            else:
                self._sync(done.value)

        self._assign(response).on_done(assigned)

    def _sync(self, assignments: Mapping[str, bytes]) -> None:
        request = SyncGroupRequest(
            group_id=self.coordinator.key,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._member.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in assignments.items()
            ],
        )
        self._send_join(request, self._synced)

    def _send_join(self, request: Any, handle: Callable[[Pending[Any]], None]) -> None:
        """Send a JoinGroup or SyncGroup; responses to earlier ones are ignored."""
        timeout_ms = self._member.rebalance_timeout_ms + JOIN_MARGIN_MS
        purpose = PURPOSE + "-join"  # it may wait for minutes, and heartbeats must not
        self._join_request = self.coordinator.send(request, purpose=purpose, timeout_ms=timeout_ms)
        self._join_request.on_done(handle)

    def _synced(self, done: Pending[Any]) -> None:
        if self.state is not GroupState.SYNCING or done is not self._join_request:
            return
        if done.error is not None:
            self._join_failed(done.error)
            return
        if done.value.error_code:
            self._join_failed(KafkaError(done.value.error_code))
            return
        try:
            self._take_assignment(done.value.assignment)
        except KafkaError as error:  # CorruptMessage
            self._join_failed(error)
            return
        self.state = GroupState.ASSIGNED
        self._last_contact_ms = self.client.now_ms

    def _join_failed(self, error: Exception) -> None:
        """Handle an error of join, sync or heartbeat; retry unless it is fatal."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self.client.trace.add("group", "%s: %s", self.state.value, error)
        self.coordinator.note_error(code)
        self._failures += 1
        self._retry_at_ms = self.client.now_ms + self.client.backoff.after(self._failures)
        if code in MEMBERSHIP_ENDS:
            self._membership_over(code)
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._retry_at_ms = 0
        elif not (isinstance(error, KafkaError) and error.is_retriable):
            self.errors.add(KafkaError(code, str(error)))
        self._rejoin_needed = True
        # What others may get is given up already: the owner has nothing to do.
        again = self.state in (GroupState.JOINING, GroupState.SYNCING) and self._may_rejoin
        self.state = GroupState.READY_TO_JOIN if again else GroupState.UNJOINED

    def _membership_over(self, code: int) -> None:
        """End the membership and rejoin as a new member, unless the instance id is fenced."""
        self._fenced = code == ErrorCode.FENCED_INSTANCE_ID
        self._forget(lost=True, keep_id=code != ErrorCode.UNKNOWN_MEMBER_ID)
        self._retry_at_ms = 0

    def _forget(self, *, lost: bool, keep_id: bool = False) -> None:
        """Clear the membership."""
        if not keep_id:
            self.member_id = ""
        self.generation = NO_GENERATION
        self._rejoin_needed = True
        self.state = GroupState.UNJOINED
        self._ended(lost=lost)

    # ------------------------------------------------------------ heartbeat and leave

    def _heartbeat(self, now_ms: int) -> None:
        if self._heartbeating or not self.coordinator.known:
            return
        self._heartbeating = True
        self._last_heartbeat_ms = now_ms
        generation = self.generation
        request = HeartbeatRequest(
            group_id=self.coordinator.key,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self._member.instance_id,
        )
        timeout_ms = min(self._member.request_timeout_ms, self._member.session_timeout_ms)
        self.coordinator.send(request, timeout_ms=timeout_ms).on_done(
            lambda done: self._heartbeat_answered(done, generation)
        )

    def _heartbeat_answered(self, done: Pending[Any], generation: int) -> None:
        self._heartbeating = False
        error = done.error
        if error is None and not done.value.error_code:
            self._last_contact_ms = self.client.now_ms
            return
        if error is None:
            error = KafkaError(done.value.error_code)
        if generation != self.generation:
            return
        code = error.code if isinstance(error, KafkaError) else None
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._last_contact_ms = self.client.now_ms
            if self.state is GroupState.STABLE:
                self.request_rejoin(REBALANCING)
        elif code in MEMBERSHIP_ENDS:
            self._join_failed(error)
        else:
            self.coordinator.note_error(code or 0)
            self._retry_at_ms = self.client.now_ms + self._member.retry_backoff_ms
            if isinstance(error, KafkaError) and not error.is_retriable:
                self.errors.add(error)

    def leave(self, reason: str) -> Pending[Any] | None:
        """Send LeaveGroup; static members stay in the group (KIP-345)."""
        if self._member.instance_id is not None or not self.member_id:
            return None
        leaving = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, reason=reason)
        return self.coordinator.send(
            LeaveGroupRequest(group_id=self.coordinator.key, members=[leaving])
        )

    def stop(self) -> None:
        """End the membership without a request, after `leave` or for a static member."""
        self._forget(lost=False)
        self._fenced = False
        self.errors.clear()
