"""The sans-IO core of the asyncio and the blocking consumer: settings, polls, commits.

Kafka: org.apache.kafka.clients.consumer.internals.ClassicKafkaConsumer.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.arguments import as_partition, topic_names
from ottla.clients.consumer.classic_group import ClassicMembership
from ottla.clients.consumer.consumer_group import ConsumerMembership
from ottla.clients.consumer.deserializing import Deserializers
from ottla.clients.consumer.explanation import why_no_records
from ottla.clients.consumer.fetcher import Fetcher
from ottla.clients.consumer.positions import Positions
from ottla.clients.consumer.reading import RecordIteration
from ottla.clients.consumer.subscription import Subscription, SubscriptionPattern
from ottla.clients.coordinator import CoordinatorLookup
from ottla.clients.interceptors import Interceptors
from ottla.clients.offsets import (
    CommitIdentity,
    OffsetAndMetadata,
    first_commit_error,
    offset_commit_request,
    replace_commit_errors,
)
from ottla.clients.serdes import deserializer
from ottla.clients.settings import CONSUMER, read_settings
from ottla.clients.transport import Runtime
from ottla.errors import ConfigError, ErrorCode, IllegalStateError, KafkaError, WakeupError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

    from ottla.clients.consumer.membership import ListenerCall, Membership
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.consumer.subscription import PartitionState
    from ottla.clients.environment import ClientEnvironment
    from ottla.clients.settings import ValidatedSettings
    from ottla.records.record import Record
    from ottla.types import TopicPartition

    Batches = list[tuple[TopicPartition, list[Record]]]


NO_GROUP_ID = (
    "To use the group management or offset commit APIs, you must provide a valid group.id in the"
    " consumer configuration."
)
NO_REMOTE_PATTERN = (
    "Subscribe to RE2/J pattern is not supported when using the classic protocol defined in config"
    " group.protocol"
)
CLASSIC = "classic"
_OTHER_PROTOCOLS = {
    "classic": ("group_remote_assignor",),
    "consumer": ("partition_assignment_strategy", "heartbeat_interval_ms", "session_timeout_ms"),
}
"""Settings that belong to the other protocol, by group.protocol."""
NO_SUBSCRIPTION = "Consumer is not subscribed to any topics or assigned any partitions"


class RebalanceListener:
    """Base class of the listeners that `subscribe` takes.

    The methods run inside `poll`, `unsubscribe` and `close`. With AsyncConsumer they may be
    coroutines.
    """

    def on_partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """Handle the revocation of partitions; the last opportunity to commit their offsets."""

    def on_partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """Handle newly assigned partitions."""

    def on_partitions_lost(self, partitions: tuple[TopicPartition, ...]) -> Any:
        """Handle lost partitions: they may be reassigned already, commits would fail."""
        return self.on_partitions_revoked(partitions)


def check_listener(listener: object) -> None:
    """Raise TypeError for a listener that has not the methods of RebalanceListener."""
    names = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")
    if listener is not None and not all(callable(getattr(listener, name, None)) for name in names):
        raise TypeError(f"listener must be a RebalanceListener, not {type(listener).__name__}")


class GroupMetadata(NamedTuple):
    """A consumer's group membership; generation -1 outside a group."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class ConsumerCore:
    """The settings, client and state machines of one consumer."""

    def __init__(
        self,
        config: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
        environment: ClientEnvironment | None = None,
    ) -> None:
        self.settings = settings = read_settings(CONSUMER, config, keywords)
        _check_protocol(settings, {**dict(config or {}), **keywords})
        settings.client_id = settings.client_id or "ottla-consumer"
        self.runtime = Runtime(settings, environment)
        self.client = client = self.runtime.client
        self.subscription = Subscription(exclude_internal=settings.exclude_internal_topics)
        self.coordinator = (
            CoordinatorLookup(client, settings.group_id) if settings.group_id else None
        )
        self.group = self._membership()
        wall_ns = self.runtime.environment.wall_ns
        self.positions = Positions(
            settings,
            client,
            self.subscription,
            self.coordinator,
            wall_ms=lambda: wall_ns() // 1_000_000,
            member=lambda: CommitIdentity() if self.group is None else self.group.fetch_identity,
        )
        self.fetcher = Fetcher(
            settings,
            client,
            self.subscription,
            deserializers=Deserializers(
                deserializer(settings.key_deserializer), deserializer(settings.value_deserializer)
            ),
            on_out_of_range=self.positions.reset,
        )
        self.auto_commit = bool(settings.enable_auto_commit and settings.group_id)
        self._next_auto_commit_ms = 0
        self._auto_committing = False
        if self.group is not None:
            client.register(self.group)
        if self.coordinator is not None:
            client.register(_LookupWithoutGroup(self))
        client.register(self.positions)
        client.register(self.fetcher)
        client.metadata.on_update(self._metadata_changed)
        self.now_ms = self.runtime.now_ms
        self.interceptors = Interceptors(settings.interceptor_classes)
        self._iteration: RecordIteration | None = None
        self._topics_in_queries: list[tuple[str, ...]] = []
        self._is_woken = False

    def _membership(self) -> Membership | None:
        """Return the group's member, by group.protocol; None without a group.id."""
        if self.coordinator is None:
            return None
        is_classic = self.settings.group_protocol.lower() == CLASSIC
        kind = ClassicMembership if is_classic else ConsumerMembership
        subscription, on_assigned = self.subscription, self.narrow_metadata
        return kind(self.settings, self.client, subscription, self.coordinator, on_assigned)

    def require_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self.client.closed:
            raise self.client.closed_error()

    def require_coordinator(self) -> CoordinatorLookup:
        """Return the coordinator; KafkaError(INVALID_GROUP_ID) without a group.id."""
        self.require_open()
        if self.coordinator is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, NO_GROUP_ID)
        return self.coordinator

    def _metadata_changed(self) -> None:
        if self.subscription.pattern is not None:
            topics = self.client.metadata.topics.values()
            self.subscription.match((topic.name, topic.is_internal) for topic in topics)

    # ------------------------------------------------------------ subscription

    def subscribe(
        self,
        topics: Iterable[str] | str | None,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None,
        listener: Any,
    ) -> None:
        """Subscribe to topics by name or by pattern."""
        self.require_open()
        names = topic_names(topics)
        check_listener(listener)
        self.require_coordinator()
        if (topics is None) == (pattern is None):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "subscribe takes either topics or a pattern"
            )
        metadata = self.client.metadata
        if pattern is not None:
            self._subscribe_pattern(pattern, listener)
            metadata.all_topics = True
            metadata.mark_stale()
            self.narrow_metadata()
        else:
            if not names:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "subscribe takes at least one topic; use unsubscribe() to remove all",
                )
            self.subscription.subscribe(names, listener)
            metadata.all_topics = False
            self.narrow_metadata()
        self.runtime.wake()

    def _subscribe_pattern(
        self, pattern: str | re.Pattern[str] | SubscriptionPattern, listener: Any
    ) -> None:
        if not isinstance(pattern, SubscriptionPattern):
            self.subscription.subscribe_pattern(pattern, listener)
            return
        if self.settings.group_protocol.lower() == CLASSIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, NO_REMOTE_PATTERN)
        self.subscription.subscribe_remote(pattern.pattern, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions without a group."""
        self.require_open()
        requested = [as_partition(partition) for partition in partitions]
        self.put_back()
        self.subscription.assign_from_user(requested)
        self.narrow_metadata()
        self.runtime.wake()

    def unsubscribe(self) -> None:
        """Clear the subscription; the group must have been left."""
        self.put_back()
        self.subscription.unsubscribe()
        self.client.metadata.all_topics = False
        self.narrow_metadata()

    def narrow_metadata(self) -> None:
        """Limit the metadata to the topics in use: brokers may create the topics in a request."""
        topics = dict.fromkeys(self.subscription.topics)
        topics.update(dict.fromkeys(partition.topic for partition in self.subscription.partitions))
        topics.update(dict.fromkeys(() if self.group is None else self.group.watched_topics))
        for names in self._topics_in_queries:
            topics.update(dict.fromkeys(names))
        self.client.metadata.set_topics(topics)

    @contextmanager
    def keeping_topics(self, topics: Iterable[str]) -> Iterator[None]:
        """Keep topics in the metadata during a query."""
        names = tuple(dict.fromkeys(topics))
        self._topics_in_queries.append(names)
        self.client.metadata.add_topics(names)
        try:
            yield
        finally:
            self._topics_in_queries.remove(names)
            self.narrow_metadata()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset, or at EARLIEST_TIMESTAMP / LATEST_TIMESTAMP."""
        self.require_open()
        state = self.subscription.state(partition)
        if not isinstance(offset, int):
            raise TypeError(f"an offset must be int, not {type(offset).__name__}: {offset!r}")
        self.put_back()
        if offset in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            state.request_reset(offset)
        elif offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, "seek offset must not be a negative number"
            )
        else:
            state.seek(offset)
        self.runtime.wake()

    def seek_to_committed(self, partition: TopicPartition) -> None:
        """Continue at the group's committed offset."""
        self.require_coordinator()
        state = self.subscription.state(partition)
        self.put_back()
        state.request_committed()
        self.runtime.wake()

    # ------------------------------------------------------------ poll

    def wake(self) -> None:
        """Make the current or the next poll raise WakeupError."""
        self._is_woken = True

    def user_poll(self) -> ListenerCall | None:
        """Perform the work of every poll; return the listener's next step."""
        if self._iteration is not None:
            self.put_back()
        self.require_open()
        if not self.subscription.is_set:
            raise IllegalStateError(NO_SUBSCRIPTION)
        now_ms = self.now_ms()
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        self._raise_errors()
        if self.auto_commit and now_ms >= self._next_auto_commit_ms:
            self._commit_in_background(now_ms)
        if self.group is None or not self.subscription.uses_group:
            return None
        return self.group.user_poll(now_ms)

    def _raise_errors(self) -> None:
        pending_error = self.client.pending_error()
        if pending_error is not None:
            raise pending_error
        if self.client.metadata.topic_error is not None:
            raise self.client.metadata.topic_error
        for machine in (self.group, self.positions, self.fetcher):
            error = None if machine is None else machine.errors.pop()
            if error is not None:
                raise error
        if self.coordinator is not None and self.coordinator.fatal is not None:
            fatal, self.coordinator.fatal = self.coordinator.fatal, None
            raise fatal

    def take(
        self,
        limit: int | None,
        *,
        with_topic: bool = False,
        only: frozenset[TopicPartition] | None = None,
    ) -> list[tuple[Any, list[Any]]]:
        """Return buffered records, at most limit (max.poll.records)."""
        limit = limit or self.settings.max_poll_records
        return self.fetcher.take(limit, only, with_topic=with_topic)

    def log_empty_poll(self) -> None:
        """Log why a poll returns no records."""
        if self.client.trace.is_on("consumer"):
            committed_only = self.settings.isolation_level == "read_committed"
            cause = why_no_records(
                self.client, self.subscription, self.group, committed_only=committed_only
            )
            self.client.trace.add("consumer", "poll returns no records: %s", cause)

    def joined(self, batches: list[tuple[Any, list[ConsumerRecord]]]) -> list[ConsumerRecord]:
        """Return the records of all batches as one list, after the interceptors."""
        if len(batches) == 1:
            out = batches[0][1]
        else:
            out = [record for _, records in batches for record in records]
        self.fetcher.taken = []
        return self.interceptors.on_consume(out) if out and self.interceptors else out

    def iterate(self, batches: list[tuple[Any, list[ConsumerRecord]]]) -> RecordIteration:
        """Return an iteration over the records; those it has not returned count as not read."""
        taken = self.fetcher.taken
        records = self.joined(batches)
        self._iteration = RecordIteration(records, taken)
        return self._iteration

    def put_back(self) -> None:
        """End the current iteration; the records it has not returned are read again."""
        reading, self._iteration = self._iteration, None
        if reading is not None:
            reading.put_back()

    # ------------------------------------------------------------ commits

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all partitions that have one."""
        ahead = {} if self._iteration is None else self._iteration.ahead()
        return {
            partition: OffsetAndMetadata(ahead.get(state, state.position), "", state.leader_epoch)
            for partition, state in self.subscription.partitions.items()
            if state.position is not None
        }

    def position_of(self, state: PartitionState) -> int | None:
        """Return the offset after the last record returned to the user, None while unknown."""
        ahead = {} if self._iteration is None else self._iteration.ahead()
        return ahead.get(state, state.position)

    def send_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> Pending[Any]:
        """Send one commit with the current membership; see CoordinatorLookup.send for errors.

        With a subscription, but outside a stable generation, it fails with UNKNOWN_MEMBER_ID or
        REBALANCE_IN_PROGRESS without being sent. Errors update coordinator and membership.
        """
        coordinator = self.require_coordinator()
        assert self.group is not None
        self.client.advance(self.now_ms())  # else the timeout would start at the last poll
        identity = CommitIdentity()
        if self.subscription.uses_group:
            refusal = self.group.commit_refusal()
            if refusal is not None:
                return Pending.failed(refusal)
            identity = self.group.identity
        request, limit = offset_commit_request(
            coordinator.key, offsets, identity, self.client.metadata
        )
        pending = coordinator.send(request, timeout_ms=timeout_ms, max_version=limit)
        pending.on_done(lambda done: self._commit_answered(done, offsets, identity))
        return pending

    def _commit_answered(
        self,
        done: Pending[Any],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: CommitIdentity,
    ) -> None:
        if done.error is not None:
            return
        error = first_commit_error(done.value)
        if error is None:
            self.interceptors.on_commit(offsets)
            return
        assert self.coordinator is not None
        assert self.group is not None
        self.coordinator.note_error(error.code)
        if not self.group.commit_failed(error.code, identity):
            replace_commit_errors(done.value, ErrorCode.REBALANCE_IN_PROGRESS)

    def _commit_in_background(self, now_ms: int) -> None:
        self._next_auto_commit_ms = now_ms + self.settings.auto_commit_interval_ms
        offsets = self.consumed()
        if self._auto_committing or not offsets:
            return
        self._auto_committing = True
        self.send_commit(offsets).on_done(self._committed_in_background)

    def _committed_in_background(self, done: Pending[Any]) -> None:
        self._auto_committing = False
        error = done.error or first_commit_error(done.value)
        if isinstance(error, KafkaError) and error.is_retriable:
            self._next_auto_commit_ms = self.client.now_ms + self.settings.retry_backoff_ms


def _check_protocol(settings: ValidatedSettings, given: Mapping[str, Any]) -> None:
    """Raise ConfigError for a setting of the other protocol."""
    protocol = settings.group_protocol.lower()
    names = {name.replace(".", "_") for name, value in given.items() if value is not None}
    for name in _OTHER_PROTOCOLS[protocol]:
        if name in names:
            dotted = name.replace("_", ".")
            raise ConfigError(f"{dotted} cannot be set when group.protocol={protocol.upper()}")


class _LookupWithoutGroup:
    """Looks up the coordinator for consumers without a subscription, which only commit."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    def poll(self, now_ms: int) -> None:
        """Look up the coordinator."""
        coordinator = self._core.coordinator
        if coordinator is not None and self._core.subscription.user_assigned:
            coordinator.poll(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the next lookup is due."""
        coordinator = self._core.coordinator
        user_assigned = self._core.subscription.user_assigned
        return coordinator.next_deadline_ms() if coordinator is not None and user_assigned else None


def call_listener(listener: Any, step: ListenerCall) -> Any:
    """Call the listener's method for a step; empty revocations are skipped."""
    if listener is None or (step.kind != "assigned" and not step.partitions):
        return None
    if step.kind == "assigned":
        return listener.on_partitions_assigned(step.partitions)
    if step.kind == "lost":
        return listener.on_partitions_lost(step.partitions)
    return listener.on_partitions_revoked(step.partitions)
