"""A member of a classic group: join, sync, heartbeat, leave.

Kafka: org.apache.kafka.clients.consumer.internals.{AbstractCoordinator, ConsumerCoordinator}.
KIP-62 (max.poll.interval), KIP-345 (static members), KIP-394, KIP-429 (cooperative).

The machine sends requests on its own, but the assignment changes only inside the user's `poll`:
the façade calls `user_poll`, runs the listener for the returned `Step`, and calls `step_done`.
Partitions are therefore never revoked while the user processes their records.

    UNJOINED --user_poll, revoked--> READY_TO_JOIN --send--> JOINING --answer--> SYNCING
    SYNCING --answer--> ASSIGNED --user_poll, assigned--> STABLE --rebalance--> (as UNJOINED)
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.assignors.interface import (
    Member,
    decode_assignment,
    decode_subscription,
)
from ottla.clients.consumer.assignors.named import make_assignors
from ottla.clients.consumer.group_requests import GroupRequests
from ottla.clients.consumer.membership import NO_MEMBER, REBALANCES_GROUP, ListenerCall
from ottla.clients.coordinator import PURPOSE
from ottla.clients.metric_windows import REBALANCES
from ottla.clients.offsets import CommitIdentity
from ottla.clients.pending_errors import PendingErrors
from ottla.errors import CorruptMessage, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.client import Client
    from ottla.clients.consumer.assignors.interface import Assignment
    from ottla.clients.consumer.subscription import Subscription
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.settings import ValidatedSettings
    from ottla.purgatory.pending import Pending
    from ottla.types import TopicPartition

JOIN_MARGIN_MS = 5_000
MEMBERSHIP_ENDS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
MEMBERSHIP_ERRORS = MEMBERSHIP_ENDS | {ErrorCode.REBALANCE_IN_PROGRESS}
NO_GENERATION = -1
NOT_NOW = "the group is rebalancing: call poll, then commit again"


class GroupState(Enum):
    """The states of a group member."""

    UNJOINED = "unjoined"
    READY_TO_JOIN = "ready to join"
    JOINING = "joining"
    SYNCING = "syncing"
    ASSIGNED = "assigned"
    STABLE = "stable"


HEARTBEAT_STATES = frozenset({GroupState.SYNCING, GroupState.ASSIGNED, GroupState.STABLE})


class ClassicMembership:
    """The state machine of one group member."""

    def __init__(
        self,
        settings: ValidatedSettings,
        client: Client,
        subscription: Subscription,
        coordinator: CoordinatorLookup,
        on_assigned: Callable[[], None],
    ) -> None:
        self.client = client
        self.coordinator = coordinator
        self.subscription = subscription
        self.state = GroupState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol_name: str | None = None
        self.is_leader = False
        self.errors = PendingErrors()
        self._on_assigned = on_assigned
        self._settings = settings
        self._requests = GroupRequests(settings, coordinator.key)
        self._assignors = make_assignors(settings.partition_assignment_strategy)
        # A rebalance is cooperative only if all configured assignors are.
        self.cooperative = all(one.cooperative for one in self._assignors.values())
        self.last_identity = CommitIdentity(instance_id=settings.group_instance_id)
        """The identity at the application's last assignment, also after the membership has ended.

        A former member's transaction must be refused; without an identity it would be accepted.
        """
        self._rejoin_needed = True
        self._reason = ""
        self._steps: list[ListenerCall] = []
        self._lost = False
        self._fenced = False
        self._assigned: list[TopicPartition] = []
        self._last_user_poll_ms = 0
        self._last_heartbeat_ms = 0
        self._last_contact_ms = 0
        self._heartbeating = False
        self._retry_at_ms = 0
        self._failures = 0
        self._join_request: Pending[Any] | None = None
        self._counts_at_join: dict[str, int] = {}
        self._topics_at_join: tuple[str, ...] = ()
        self._left_after_poll_timeout = False
        self._rebalances = client.metrics.window(REBALANCES_GROUP, REBALANCES)
        self._last_rebalance_ms = 0
        self._add_gauges(client.metrics.gauge)

    def _add_gauges(self, gauge: Callable[..., None]) -> None:
        def ago(start_ms: int, now_ms: int) -> float:
            return (now_ms - start_ms) / 1000 if start_ms else -1.0

        partitions = self.subscription
        gauge(REBALANCES_GROUP, "assigned-partitions", lambda _: float(len(partitions.partitions)))
        names: dict[str, Callable[[], int]] = {
            "last-heartbeat-seconds-ago": lambda: self._last_heartbeat_ms,
            "last-rebalance-seconds-ago": lambda: self._last_rebalance_ms,
        }
        for name, start_ms in names.items():
            gauge(REBALANCES_GROUP, name, lambda now_ms, when=start_ms: ago(when(), now_ms))

    # ------------------------------------------------------------ state

    @property
    def identity(self) -> CommitIdentity:
        """The identity that commits are sent with."""
        return CommitIdentity(self.generation, self.member_id, self._settings.group_instance_id)

    @property
    def fetch_identity(self) -> CommitIdentity:
        """The identity that committed offsets are fetched with: none in this protocol."""
        return CommitIdentity()

    @property
    def waits_for(self) -> str | None:
        """Why there may be no partitions yet, for the log."""
        if self.state is GroupState.STABLE:
            return None
        return f"the group rebalances, this member is {self.state.value}"

    @property
    def is_member(self) -> bool:
        """Whether the member belongs to a generation of the group."""
        return self.generation != NO_GENERATION

    @property
    def watched_topics(self) -> set[str]:
        """The topics whose metadata a member needs: its own, or the group's as its leader."""
        watched = set(self._counts_at_join) if self.is_member and self.is_leader else set()
        return watched | {partition.topic for partition in self._assigned}

    def commit_refusal(self) -> KafkaError | None:
        """Return the error of a commit that must not be sent, None for a current member.

        A former member must not commit without a generation: an empty group would accept its old
        positions.
        """
        if self.state in (GroupState.JOINING, GroupState.SYNCING):
            return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, NOT_NOW)
        return None if self.is_member else KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)

    def request_rejoin(self, reason: str) -> None:
        """Request a rejoin in one of the next polls."""
        self._rejoin_needed = True
        self._reason = reason
        self.client.transport.wake()

    # ------------------------------------------------------------ calls of the façade

    def user_poll(self, now_ms: int) -> ListenerCall | None:
        """Record a poll of the user; return the next step for the listener, if any.

        Raises KafkaError(FENCED_INSTANCE_ID) after another member joined with our instance id.
        """
        self._last_user_poll_ms = now_ms
        self._left_after_poll_timeout = False
        if not self._steps:
            self._plan_steps()
        if not self._steps and self._fenced:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        return self._steps[0] if self._steps else None

    def _plan_steps(self) -> None:
        owned = tuple(self.subscription.partitions)
        if self._lost:
            self._lost = False
            self._steps.append(ListenerCall("lost", owned))
        elif self.state is GroupState.ASSIGNED:
            self._plan_assignment(owned)
        elif self._wants_to_join():
            if self.cooperative:
                topics = self.subscription.topics
                gone = tuple(partition for partition in owned if partition.topic not in topics)
            else:
                gone = owned
            self._steps.append(ListenerCall("prepare", gone))

    def _wants_to_join(self) -> bool:
        self._check_topics()
        is_idle = self.state in (GroupState.UNJOINED, GroupState.STABLE)
        return self._rejoin_needed and is_idle and not self._fenced and self.subscription.uses_group

    def _check_topics(self) -> None:
        """Rejoin after a change of the subscription or, as leader, of a partition count."""
        if self.state is not GroupState.STABLE or self._rejoin_needed:
            return
        if self.subscription.topics != self._topics_at_join:
            self.request_rejoin("the subscription changed")
        elif self.is_leader:
            counts = {
                name: self.client.metadata.partition_count(name) for name in self._counts_at_join
            }
            known = {name: count for name, count in counts.items() if count}
            if known != {name: count for name, count in self._counts_at_join.items() if count}:
                self.request_rejoin("the topics' partitions changed")

    def _plan_assignment(self, owned: tuple[TopicPartition, ...]) -> None:
        assigned = set(self._assigned)
        if self.cooperative:
            revoked = tuple(partition for partition in owned if partition not in assigned)
            if revoked:
                self._steps.append(ListenerCall("revoked", revoked))
                self.request_rejoin("gave up partitions for other members")
            added = tuple(partition for partition in self._assigned if partition not in owned)
        else:
            added = tuple(self._assigned)
        self._steps.append(ListenerCall("assigned", added))

    def step_done(self, step: ListenerCall) -> bool:
        """Apply a step that `user_poll` returned; False if the membership has ended since.

        Revoked partitions are removed in that case too, but the step has no further effect.
        """
        is_current = any(step is planned for planned in self._steps)
        if step.kind != "assigned":
            gone = set(step.partitions)
            self.subscription.replace(p for p in self.subscription.partitions if p not in gone)
        if is_current:
            self._steps = [planned for planned in self._steps if planned is not step]
            self._apply_step(step)
        self.client.transport.wake()
        return is_current

    def _apply_step(self, step: ListenerCall) -> None:
        if step.kind == "assigned":
            self.subscription.replace(self._assigned)
            self.state = GroupState.STABLE
            self.last_identity = self.identity
            self._last_rebalance_ms = self.client.now_ms
            self._rebalances.record(1, self.client.now_ms)
            self._on_assigned()
        elif step.kind == "prepare":
            self.state = GroupState.READY_TO_JOIN

    # ------------------------------------------------------------ time

    def poll(self, now_ms: int) -> None:
        """Join, send a heartbeat or leave, whichever is due."""
        if not self.subscription.uses_group and not self.is_member:
            return
        self.coordinator.poll(now_ms)
        if self.coordinator.fatal is not None:
            self.errors.add(self.coordinator.fatal)
            self.coordinator.fatal = None
        if self.state is GroupState.READY_TO_JOIN and self._retry_at_ms <= now_ms:
            if self.coordinator.known and self._topics_are_known():
                self._join()
        elif self.is_member:
            self._keep_alive(now_ms)

    def _topics_are_known(self) -> bool:
        if self.subscription.pattern is not None:
            return self.subscription.pattern_applied
        self.client.metadata.add_topics(self.subscription.topics)
        return self.client.metadata.updated_ms >= 0

    def _keep_alive(self, now_ms: int) -> None:
        if now_ms - self._last_user_poll_ms > self._settings.max_poll_interval_ms:
            if not self._left_after_poll_timeout:
                self._left_after_poll_timeout = True
                self.leave("consumer poll timeout has expired.")
                self._forget(lost=True)
            return
        if self.state not in HEARTBEAT_STATES:
            return
        if now_ms - self._last_contact_ms > self._settings.session_timeout_ms:
            self.coordinator.lost()
            self._last_contact_ms = now_ms
        due_ms = max(self._last_heartbeat_ms + self._settings.heartbeat_interval_ms, 0)
        if due_ms <= now_ms and self._retry_at_ms <= now_ms:
            self._heartbeat(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when a heartbeat, a retry or max.poll.interval.ms is due."""
        deadlines = []
        looking = self.subscription.uses_group or self.is_member
        if looking and (found := self.coordinator.next_deadline_ms()) is not None:
            deadlines.append(found)
        waits = self.state is GroupState.READY_TO_JOIN and self.coordinator.known
        if waits and self._retry_at_ms > self.client.now_ms:  # else it waits for metadata
            deadlines.append(self._retry_at_ms)
        if self.is_member:
            deadlines.append(self._last_user_poll_ms + self._settings.max_poll_interval_ms + 1)
            beats = self.state in HEARTBEAT_STATES and not self._heartbeating
            if beats and self.coordinator.known:
                due_ms = self._last_heartbeat_ms + self._settings.heartbeat_interval_ms
                deadlines.append(max(due_ms, self._retry_at_ms))
        return min(deadlines, default=None)

    # ------------------------------------------------------------ join and sync

    def _join(self) -> None:
        self.state = GroupState.JOINING
        self.client.trace.add("group", "joins the group: %s", self._reason or "it is no member")
        self._rejoin_needed = False
        self._topics_at_join = self.subscription.topics
        owned = tuple(self.subscription.partitions)
        subscriptions = {
            name: Member(
                self.member_id,
                self.subscription.topics,
                self._settings.group_instance_id,
                owned if self.cooperative else (),
                self.generation,
                self._settings.client_rack,
                assignor.user_data(self._assigned, self.generation),
            )
            for name, assignor in self._assignors.items()
        }
        request = self._requests.join(self.member_id, subscriptions, self._reason)
        self._send_join(request, self._joined)

    def _joined(self, done: Pending[Any]) -> None:
        if self.state is not GroupState.JOINING or done is not self._join_request:
            return
        if done.error is not None:
            self._join_failed(done.error)
            return
        response = done.value
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
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
        if self.is_leader:
            self._assign_when_topics_known(response)
        else:
            self._sync({})

    def _assign_when_topics_known(self, response: Any) -> None:
        """As leader: fetch metadata of other members' topics, then assign the partitions.

        With skip_assignment (a static leader that rejoined) the assignment does not change, but the
        topics are watched (KAFKA-13435).
        """
        try:
            members = [
                decode_subscription(one.member_id, one.group_instance_id, one.metadata)
                for one in response.members
            ]
        except CorruptMessage as error:
            self._join_failed(error)
            return
        topics = {topic for member in members for topic in member.topics}
        metadata = self.client.metadata
        missing = [topic for topic in sorted(topics) if not metadata.partition_count(topic)]
        self._counts_at_join = dict.fromkeys(topics, 0)
        generation = self.generation

        def divide(_done: Any = None) -> None:
            if self.state is GroupState.SYNCING and self.generation == generation:
                self._counts_at_join = {
                    topic: metadata.partition_count(topic) for topic in sorted(topics)
                }
                if response.skip_assignment:
                    self._sync({})
                else:
                    self._assign(members)

        if missing:
            metadata.add_topics(missing)
            self.client.refresh().on_done(divide)
        else:
            divide()

    def _assign(self, members: list[Member]) -> None:
        assignor = self._assignors.get(self.protocol_name or "")
        if assignor is None:
            self.errors.add(KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        existing = {topic: count for topic, count in self._counts_at_join.items() if count}
        divided = assignor.assign(existing, members)
        self._sync(divided)

    def _sync(self, assignment: Assignment) -> None:
        request = self._requests.sync(self.identity, self.protocol_name, assignment)
        self._send_join(request, self._synced)

    def _send_join(self, request: Any, handle: Callable[[Pending[Any]], None]) -> None:
        """Send a JoinGroup or SyncGroup; responses to earlier ones are ignored."""
        timeout_ms = self._settings.max_poll_interval_ms + JOIN_MARGIN_MS
        purpose = PURPOSE + "-join"
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
            self._assigned = decode_assignment(done.value.assignment)
        except CorruptMessage as error:
            self._join_failed(error)
            return
        self.client.metadata.add_topics(partition.topic for partition in self._assigned)
        self.state = GroupState.ASSIGNED
        self._last_contact_ms = self.client.now_ms
        names = ", ".join(map(str, self._assigned)) or "no partitions"
        self.client.trace.add("group", "generation %d assigns %s", self.generation, names)

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
        # The partitions are revoked already: no step of the user is needed.
        again = self.state in (GroupState.JOINING, GroupState.SYNCING) and not self._lost
        self.state = GroupState.READY_TO_JOIN if again else GroupState.UNJOINED

    def _membership_over(self, code: int) -> None:
        """End the membership and rejoin as a new member, unless the instance id is fenced."""
        self._fenced = code == ErrorCode.FENCED_INSTANCE_ID
        self._forget(lost=True, keep_id=code != ErrorCode.UNKNOWN_MEMBER_ID)
        self._retry_at_ms = 0

    def _forget(self, *, lost: bool, keep_id: bool = False) -> None:
        """Clear the membership; with lost, the listener is called for the lost partitions."""
        if not keep_id:
            self.member_id = ""
        self.generation = NO_GENERATION
        self._rejoin_needed = True
        self._steps.clear()
        if lost and self.subscription.partitions:
            self._lost = True
        self._assigned = []
        self.state = GroupState.UNJOINED

    # ------------------------------------------------------------ heartbeat and leave

    def _heartbeat(self, now_ms: int) -> None:
        if self._heartbeating or not self.coordinator.known:
            return
        self._heartbeating = True
        self._last_heartbeat_ms = now_ms
        request = self._requests.heartbeat(self.identity)
        generation = self.generation
        timeout_ms = min(self._settings.request_timeout_ms, self._settings.session_timeout_ms)
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
                self.request_rejoin("the group is rebalancing")
        elif code in MEMBERSHIP_ENDS:
            self._join_failed(error)
        else:
            self.coordinator.note_error(code or 0)
            self._retry_at_ms = self.client.now_ms + self._settings.retry_backoff_ms
            if isinstance(error, KafkaError) and not error.is_retriable:
                self.errors.add(error)

    def commit_failed(self, code: int, sent: CommitIdentity) -> bool:
        """Handle the error of a commit; False if it concerns an earlier membership.

        Such an error does not apply to the current generation or member id.
        """
        if sent.generation == NO_GENERATION or code not in MEMBERSHIP_ERRORS:
            return True
        if sent != self.identity:
            return False
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("the group is rebalancing")
        else:
            self._membership_over(code)
        return True

    def leave(self, reason: str) -> Pending[Any] | None:
        """Send LeaveGroup; static members stay in the group (KIP-345)."""
        if self._settings.group_instance_id is not None or not self.member_id:
            return None
        return self.coordinator.send(self._requests.leave(self.member_id, reason))

    def leave_step(self) -> ListenerCall | None:
        """Return the listener's step before the member leaves; None without partitions.

        Without a generation, and during a rebalance, the partitions may be reassigned: "lost".
        """
        owned = tuple(self.subscription.partitions)
        if not owned or not self.subscription.uses_group:
            return None
        rebalancing = self.state in (GroupState.JOINING, GroupState.SYNCING)
        safe = self.is_member and self.member_id and not rebalancing
        return ListenerCall("revoked" if safe else "lost", owned)

    def stop(self) -> None:
        """End the membership without a request (after `leave`, or on unsubscribe)."""
        self._forget(lost=False)
        self._fenced = False
        self.errors.clear()
        if self.subscription.uses_group:
            self.subscription.replace(())
