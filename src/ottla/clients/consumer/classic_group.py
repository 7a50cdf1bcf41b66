"""A consumer in a group of the classic protocol: its assignors, its listener, its partitions.

Kafka: org.apache.kafka.clients.consumer.internals.ConsumerCoordinator. KIP-429 (cooperative).

The assignment changes only inside the user's `poll`: the façade calls `user_poll`, runs the
listener for the returned `ListenerCall`, and calls `step_done`. Partitions are therefore never
revoked while the user processes their records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.assignors import (
    PROTOCOL_TYPE,
    Member,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    make_assignors,
)
from ottla.clients.consumer.membership import NO_MEMBER, REBALANCES_GROUP, ListenerCall
from ottla.clients.membership.classic import (
    MEMBERSHIP_ENDS,
    NO_GENERATION,
    REBALANCING,
    ClassicGroupMember,
    GroupMemberSettings,
    GroupState,
)
from ottla.clients.metric_windows import REBALANCES
from ottla.clients.offsets import CommitIdentity
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.clients.client import Client
    from ottla.clients.consumer.subscription import Subscription
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.settings import ValidatedSettings
    from ottla.protocol.apis.join_group import JoinGroupResponse
    from ottla.types import Buffer, TopicPartition

MEMBERSHIP_ERRORS = MEMBERSHIP_ENDS | {ErrorCode.REBALANCE_IN_PROGRESS}
NOT_NOW = "the group is rebalancing: call poll, then commit again"


class ClassicMembership(ClassicGroupMember):
    """The membership of one consumer."""

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        settings: ValidatedSettings,
        client: Client,
        subscription: Subscription,
        coordinator: CoordinatorLookup,
        on_assigned: Callable[[], None],
    ) -> None:
        member = GroupMemberSettings(
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            instance_id=settings.group_instance_id,
        )
        super().__init__(member, client, coordinator)
        self.subscription = subscription
        self._on_assigned = on_assigned
        self._settings = settings
        self._assignors = make_assignors(settings.partition_assignment_strategy)
        # A rebalance is cooperative only if all configured assignors are.
        self.cooperative = all(assignor.cooperative for assignor in self._assignors.values())
        self.last_identity = CommitIdentity(instance_id=settings.group_instance_id)
        """The identity at the application's last assignment, also after the membership has ended.

        A former member's transaction must be refused; without an identity it would be accepted.
        """
        self._steps: list[ListenerCall] = []
        self._lost = False
        self._assigned: list[TopicPartition] = []
        self._counts_at_join: dict[str, int] = {}
        self._topics_at_join: tuple[str, ...] = ()
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

    # ------------------------------------------------------------ calls of the façade

    def user_poll(self, now_ms: int) -> ListenerCall | None:
        """Record a poll of the user; return the next step for the listener, if any.

        Raises KafkaError(FENCED_INSTANCE_ID) after another member joined with our instance id.
        """
        self.polled(now_ms)
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
            return
        if self.state is GroupState.ASSIGNED:
            self._plan_assignment(owned)
            return
        self._check_topics()
        if self.wants_to_join and self.subscription.uses_group:
            gone = owned
            if self.cooperative:
                topics = self.subscription.topics
                gone = tuple(partition for partition in owned if partition.topic not in topics)
            self._steps.append(ListenerCall("prepare", gone))

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
            if step.kind == "assigned":
                self.subscription.replace(self._assigned)
                self.accept()
                self.last_identity = self.identity
                self._last_rebalance_ms = self.client.now_ms
                self._rebalances.record(1, self.client.now_ms)
                self._on_assigned()
            elif step.kind == "prepare":
                self.may_join()
        self.client.transport.wake()
        return is_current

    # ------------------------------------------------------------ hooks of the member

    @property
    def _is_active(self) -> bool:
        return self.subscription.uses_group

    def _is_prepared(self) -> bool:
        if self.subscription.pattern is not None:
            return self.subscription.pattern_applied
        self.client.metadata.add_topics(self.subscription.topics)
        return self.client.metadata.updated_ms >= 0

    def _join_metadata(self) -> Mapping[str, bytes]:
        self._topics_at_join = self.subscription.topics
        owned = tuple(self.subscription.partitions)
        return {
            name: encode_subscription(
                Member(
                    self.member_id,
                    self.subscription.topics,
                    self._settings.group_instance_id,
                    owned if self.cooperative else (),
                    self.generation,
                    self._settings.client_rack,
                    assignor.user_data(self._assigned, self.generation),
                )
            )
            for name, assignor in self._assignors.items()
        }

    def _assign(self, response: JoinGroupResponse) -> Pending[Mapping[str, bytes]]:
        """Fetch metadata of other members' topics, then assign the partitions.

        Without anything to assign the topics are watched nevertheless (KAFKA-13435).
        """
        result: Pending[Mapping[str, bytes]] = Pending()
        try:
            members = [
                decode_subscription(one.member_id, one.group_instance_id, one.metadata)
                for one in response.members
            ]
        except CorruptMessage as error:
            result.fail(error)
            return result
        topics = {topic for member in members for topic in member.topics}
        metadata = self.client.metadata
        missing = [topic for topic in sorted(topics) if not metadata.partition_count(topic)]
        self._counts_at_join = dict.fromkeys(topics, 0)
        generation = self.generation

        def divide(_done: Any = None) -> None:
            if self.state is not GroupState.SYNCING or self.generation != generation:
                return
            counts = {topic: metadata.partition_count(topic) for topic in sorted(topics)}
            self._counts_at_join = counts
            assignor = self._assignors.get(self.protocol_name or "")
            if response.skip_assignment:
                result.complete({})
            elif assignor is None:
                result.fail(KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            else:
                existing = {topic: count for topic, count in counts.items() if count}
                assignment = assignor.assign(existing, members)
                result.complete(
                    {name: encode_assignment(parts) for name, parts in assignment.items()}
                )

        if missing:
            metadata.add_topics(missing)
            self.client.refresh().on_done(divide)
        else:
            divide()
        return result

    def _take_assignment(self, data: Buffer) -> None:
        self._assigned = decode_assignment(data)
        self.client.metadata.add_topics(partition.topic for partition in self._assigned)
        names = ", ".join(map(str, self._assigned)) or "no partitions"
        self.client.trace.add("group", "generation %d assigns %s", self.generation, names)

    @property
    def _may_rejoin(self) -> bool:
        return not self._lost

    def _ended(self, *, lost: bool) -> None:
        """Forget the assignment; with `lost`, the listener is called for the lost partitions."""
        self._steps.clear()
        if lost and self.subscription.partitions:
            self._lost = True
        self._assigned = []

    # ------------------------------------------------------------ commits and leaving

    def commit_failed(self, code: int, sent: CommitIdentity) -> bool:
        """Handle the error of a commit; False if it concerns an earlier membership.

        Such an error does not apply to the current generation or member id.
        """
        if sent.generation == NO_GENERATION or code not in MEMBERSHIP_ERRORS:
            return True
        if sent != self.identity:
            return False
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin(REBALANCING)
        else:
            self._membership_over(code)
        return True

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
        """End the membership without a request, after `leave` or on unsubscribe."""
        super().stop()
        if self.subscription.uses_group:
            self.subscription.replace(())
