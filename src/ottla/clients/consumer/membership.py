"""The interface of a consumer to its group, for both group protocols.

Kafka: org.apache.kafka.clients.consumer.internals.ConsumerDelegate, whose two classes choose the
protocol.

The assignment changes only inside the user's `poll`: the façade calls `user_poll`, runs the
listener for the returned `ListenerCall`, and calls `step_done`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.clients.consumer.subscription import Subscription
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.offsets import CommitIdentity
    from ottla.clients.pending_errors import PendingErrors
    from ottla.errors import KafkaError
    from ottla.purgatory.pending import Pending
    from ottla.types import TopicPartition

NO_MEMBER = (
    "this consumer is not a member of its group, and its partitions may be reassigned: call poll"
)
REBALANCES_GROUP = "consumer-coordinator-metrics"


class ListenerCall(NamedTuple):
    """A call of the rebalance listener: "prepare", "revoked", "assigned" or "lost"."""

    kind: str
    partitions: tuple[TopicPartition, ...]


class Membership(Protocol):
    """The membership of one consumer in its group."""

    @property
    def errors(self) -> PendingErrors:
        """Errors for the user's next poll."""

    @property
    def coordinator(self) -> CoordinatorLookup:
        """The group's coordinator."""

    @property
    def subscription(self) -> Subscription:
        """The subscription, whose assignment the membership changes."""

    @property
    def last_identity(self) -> CommitIdentity:
        """The identity at the last assignment that the application got."""

    @property
    def identity(self) -> CommitIdentity:
        """The identity that commits are sent with."""

    @property
    def fetch_identity(self) -> CommitIdentity:
        """The identity that committed offsets are fetched with."""

    @property
    def watched_topics(self) -> set[str]:
        """The topics whose metadata the member needs."""

    @property
    def waits_for(self) -> str | None:
        """Why there may be no partitions yet, for the log; None in a stable group."""

    def commit_refusal(self) -> KafkaError | None:
        """Return the error of a commit that must not be sent, None for a current member."""

    def commit_failed(self, code: int, sent: CommitIdentity) -> bool:
        """Handle the error of a commit; False if it concerns an earlier membership."""

    def request_rejoin(self, reason: str) -> None:
        """Request a rebalance."""

    def user_poll(self, now_ms: int) -> ListenerCall | None:
        """Record a poll of the user; return the next step for the listener, if any."""

    def step_done(self, step: ListenerCall) -> bool:
        """Apply a step that `user_poll` returned; False if the membership has ended since."""

    def poll(self, now_ms: int) -> None:
        """Send what is due."""

    def next_deadline_ms(self) -> int | None:
        """Return when something is due."""

    def leave(self, reason: str) -> Pending[Any] | None:
        """Send the request that leaves the group; None where none is needed."""

    def leave_step(self) -> ListenerCall | None:
        """Return the listener's step before the member leaves; None without partitions."""

    def stop(self) -> None:
        """End the membership without a request (after `leave`, or on unsubscribe)."""
