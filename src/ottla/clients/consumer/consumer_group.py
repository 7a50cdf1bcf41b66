"""A member of a consumer group: heartbeats bring the assignment, the listener's steps apply it.

Kafka: org.apache.kafka.clients.consumer.internals.{ConsumerMembershipManager,
ConsumerHeartbeatRequestManager}. KIP-848, KIP-345 (static members), KIP-1082 (member ids).

The coordinator answers with an assignment when it has changed. Inside the user's `poll` the member
revokes the partitions that are not in it and adds the new ones; then it confirms those it owns:

    JOINING --answer, assignment--> RECONCILING --revoked, assigned--> STABLE --assignment--> …
    any --fenced--> JOINING, after the listener was called for the lost partitions
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.consumer.membership import NO_MEMBER, REBALANCES_GROUP, ListenerCall
from ottla.clients.membership.heartbeats import FENCED, JOIN_EPOCH, LEAVE_EPOCH, HeartbeatMember
from ottla.clients.metric_windows import REBALANCES
from ottla.clients.offsets import CommitIdentity
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clients.client import Client
    from ottla.clients.consumer.subscription import Subscription
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.settings import ValidatedSettings
    from ottla.purgatory.pending import Pending
    from ottla.types import Uuid

LEAVE_STATIC_EPOCH = -2


class MembershipState(Enum):
    """The states of a member."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    STABLE = "stable"
    FATAL = "failed"


class ConsumerMembership(HeartbeatMember):
    """The state machine of one member; `epoch` is 0 outside the group."""

    def __init__(
        self,
        settings: ValidatedSettings,
        client: Client,
        subscription: Subscription,
        coordinator: CoordinatorLookup,
        on_assigned: Callable[[], None],
    ) -> None:
        super().__init__(settings, client, coordinator)
        self.subscription = subscription
        self.state = MembershipState.UNSUBSCRIBED
        self.last_identity = CommitIdentity(instance_id=settings.group_instance_id)
        self._on_assigned = on_assigned
        self._fields = _HeartbeatFields(settings, coordinator.key, subscription)
        self._planned: list[TopicPartition] = []
        self._steps: list[ListenerCall] = []
        self._lost = False
        self._must_confirm = False
        self._beats_at_once = False
        self._names_retry_at_ms = 0
        self._rebalances = client.metrics.window(REBALANCES_GROUP, REBALANCES)
        client.metrics.gauge(
            REBALANCES_GROUP,
            "assigned-partitions",
            lambda _now_ms: float(len(subscription.partitions)),
        )

    # ------------------------------------------------------------ state

    @property
    def identity(self) -> CommitIdentity:
        """The identity that commits are sent with."""
        epoch = self.epoch if self.is_member else -1
        return CommitIdentity(epoch, self.member_id, self._settings.group_instance_id)

    @property
    def fetch_identity(self) -> CommitIdentity:
        """The identity that committed offsets are fetched with; only members have one."""
        return self.identity if self.is_member else CommitIdentity()

    @property
    def watched_topics(self) -> set[str]:
        """The topics of the assignment."""
        names = self.client.metadata.topic_names
        return {names[topic_id] for topic_id in self._target if topic_id in names}

    @property
    def waits_for(self) -> str | None:
        """Why there may be no partitions yet, for the log."""
        if self.state is MembershipState.STABLE:
            return None
        return f"the group rebalances, this member is {self.state.value}"

    def commit_refusal(self) -> KafkaError | None:
        """Refuse commits of former members: an empty group would accept their old positions."""
        return None if self.is_member else KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)

    def request_rejoin(self, reason: str) -> None:
        """Send a heartbeat: this protocol has no rebalance on request."""
        self.client.trace.add("group", "consumer groups have no rebalance on request: %s", reason)
        self._beats_at_once = True
        self.client.transport.wake()

    # ------------------------------------------------------------ calls of the façade

    def user_poll(self, now_ms: int) -> ListenerCall | None:
        """Record a poll of the user; return the next step for the listener, if any."""
        self._last_user_poll_ms = now_ms
        if self.state is MembershipState.UNSUBSCRIBED and self.subscription.uses_group:
            self.state = MembershipState.JOINING
            self.client.transport.wake()
        if not self._steps:
            self._plan_steps()
        return self._steps[0] if self._steps else None

    def _plan_steps(self) -> None:
        owned = tuple(self.subscription.partitions)
        if self._lost:
            self._lost = False
            self._steps.append(ListenerCall("lost", owned))
        elif self.state is MembershipState.RECONCILING and self._has_names():
            self._planned = self._resolved()
            target = set(self._planned)
            revoked = tuple(partition for partition in owned if partition not in target)
            if revoked:
                self._steps.append(ListenerCall("revoked", revoked))
            added = tuple(partition for partition in self._planned if partition not in owned)
            self._steps.append(ListenerCall("assigned", added))

    def _has_names(self) -> bool:
        """Whether an assignment can be applied: topics without a known name wait for metadata."""
        metadata = self.client.metadata
        if all(topic_id in metadata.topic_names for topic_id in self._target):
            return True
        if self._names_retry_at_ms <= self.client.now_ms:
            self._names_retry_at_ms = self.client.now_ms + self._settings.retry_backoff_max_ms
            metadata.mark_stale()
        return set(self._resolved()) != set(self.subscription.partitions)

    def _resolved(self) -> list[TopicPartition]:
        """Return the assigned partitions of the topics whose names are known."""
        names = self.client.metadata.topic_names
        return [
            TopicPartition(names[topic_id], index)
            for topic_id, indexes in self._target.items()
            if topic_id in names
            for index in indexes
        ]

    def step_done(self, step: ListenerCall) -> bool:
        """Apply a step that `user_poll` returned; False if the membership has ended since."""
        is_current = any(step is planned for planned in self._steps)
        if step.kind != "assigned":
            gone = set(step.partitions)
            self.subscription.replace(p for p in self.subscription.partitions if p not in gone)
        if is_current:
            self._steps = [planned for planned in self._steps if planned is not step]
            if step.kind == "assigned":
                self._apply_assignment()
        self.client.transport.wake()
        return is_current

    def _apply_assignment(self) -> None:
        self.subscription.replace(self._planned)
        self._must_confirm = True
        self.last_identity = self.identity
        self._rebalances.record(1, self.client.now_ms)
        self._on_assigned()
        count = sum(len(indexes) for indexes in self._target.values())
        if count == len(self._planned) and set(self._resolved()) == set(self._planned):
            self.state = MembershipState.STABLE

    # ------------------------------------------------------------ heartbeats

    @property
    def _is_active(self) -> bool:
        return self.state not in (MembershipState.UNSUBSCRIBED, MembershipState.FATAL)

    def _has_news(self, now_ms: int) -> bool:
        if not self.is_member:
            return not self.subscription.partitions and (
                self.subscription.pattern is None or self.subscription.pattern_applied
            )
        return (
            self._must_confirm
            or self._beats_at_once
            or self._fields.has_new_subscription()
            or self._interval_has_passed(now_ms)
        )

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        owned = None
        if self._must_confirm or self._fields.is_complete:
            metadata = self.client.metadata
            owned = [
                (metadata.topic_id(partition.topic), partition)
                for partition in self.subscription.partitions
            ]
        request = self._fields.request(self.member_id, self.epoch, owned)
        self._must_confirm = self._beats_at_once = False
        return request

    def _confirmed(self) -> None:
        self._fields.sent()

    def _take_assignment(self, target: dict[Uuid, list[int]]) -> None:
        if self.state is MembershipState.STABLE and target == self._target:
            return
        self._target = target
        self._trace_assignment()
        self._names_retry_at_ms = 0
        self._steps = [step for step in self._steps if step.kind == "lost"]
        self.state = MembershipState.RECONCILING
        self.client.transport.wake()

    def _leave_after_timeout(self) -> None:
        self.leave("consumer poll timeout has expired.")
        self._forget(MembershipState.UNSUBSCRIBED)

    def _send_all_again(self) -> None:
        self._fields.reset()
        self._must_confirm = self.is_member

    def _end(self, *, may_rejoin: bool) -> None:
        self._forget(MembershipState.JOINING if may_rejoin else MembershipState.FATAL)

    def _forget(self, state: MembershipState) -> None:
        """End the membership; the listener is called for the lost partitions."""
        self.epoch = JOIN_EPOCH
        self.state = state
        self._steps.clear()
        self._target = {}
        self._lost = bool(self.subscription.partitions)
        self._in_flight = None
        self._must_confirm = False
        self._fields.reset()

    # ------------------------------------------------------------ commits, leaving

    def commit_failed(self, code: int, sent: CommitIdentity) -> bool:
        """Handle the error of a commit; False if it concerns an earlier membership."""
        if sent.generation < 0 or code not in FENCED | {ErrorCode.STALE_MEMBER_EPOCH}:
            return True
        if sent != self.identity:
            return False
        if code in FENCED:
            self._forget(MembershipState.JOINING)
        else:
            self._beats_at_once = True
        return True

    def leave(self, reason: str) -> Pending[Any] | None:
        """Send the last heartbeat; static members leave for the time of their session."""
        if not self.is_member:
            return None
        self.client.trace.add("group", "the member leaves: %s", reason)
        is_static = self._settings.group_instance_id is not None
        epoch = LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH
        self.state = MembershipState.UNSUBSCRIBED  # no further heartbeat
        return self.coordinator.send(self._fields.leave(self.member_id, epoch))

    def leave_step(self) -> ListenerCall | None:
        """Return the listener's step before the member leaves; None without partitions."""
        owned = tuple(self.subscription.partitions)
        if not owned or not self.subscription.uses_group:
            return None
        return ListenerCall("revoked" if self.is_member else "lost", owned)

    def stop(self) -> None:
        """End the membership without a request (after `leave`, or on unsubscribe)."""
        self._forget(MembershipState.UNSUBSCRIBED)
        self._lost = False
        self.errors.clear()
        if self.subscription.uses_group:
            self.subscription.replace(())


class _Subscribed(NamedTuple):
    """A subscription as sent to the coordinator."""

    topics: tuple[str, ...]
    pattern: str


class _HeartbeatFields:
    """Builds heartbeats; tracks what the coordinator has received."""

    def __init__(
        self, settings: ValidatedSettings, group_id: str, subscription: Subscription
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._subscription = subscription
        self._sending: _Subscribed | None = None
        self._known: _Subscribed | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the next heartbeat has all fields."""
        return self._known is None

    def has_new_subscription(self) -> bool:
        """Whether the subscription has changed since the coordinator received it."""
        return self._known is not None and self._current() != self._known

    def _current(self) -> _Subscribed:
        remote = self._subscription.remote_pattern
        topics = () if remote is not None else tuple(sorted(self._subscription.topics))
        return _Subscribed(topics, remote or "")

    def request(
        self, member_id: str, epoch: int, owned: Iterable[tuple[Uuid, TopicPartition]] | None
    ) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat; owned is None where the coordinator knows it."""
        current = self._sending = self._current()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
            topic_partitions=None if owned is None else _by_topic(owned),
        )
        if self._known is None:
            request.rebalance_timeout_ms = self._settings.max_poll_interval_ms
            request.rack_id = self._settings.client_rack or None
            request.server_assignor = self._settings.group_remote_assignor
            request.subscribed_topic_names = list(current.topics)
            request.subscribed_topic_regex = current.pattern or None
            return request
        if current.topics != self._known.topics:
            request.subscribed_topic_names = list(current.topics)
        if current.pattern != self._known.pattern:
            request.subscribed_topic_regex = current.pattern
        return request

    def leave(self, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """Return the last heartbeat."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=self._settings.group_instance_id,
        )

    def sent(self) -> None:
        """Note that the coordinator has received the last heartbeat."""
        self._known = self._sending

    def reset(self) -> None:
        """Send all fields with the next heartbeat."""
        self._known = self._sending = None


def _by_topic(
    owned: Iterable[tuple[Uuid, TopicPartition]],
) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    found: dict[Uuid, list[int]] = {}
    for topic_id, partition in owned:
        found.setdefault(topic_id, []).append(partition.partition)
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in found.items()
    ]
