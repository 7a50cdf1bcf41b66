"""The sans-IO core of the asyncio and the blocking share consumer: polls and acknowledgements.

Kafka: org.apache.kafka.clients.consumer.internals.ShareConsumerImpl,
org.apache.kafka.clients.consumer.ShareConsumerConfig.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.clients.arguments import as_partition, check_int, topic_names
from ottla.clients.consumer.deserializing import Deserializers
from ottla.clients.coordinator import CoordinatorLookup
from ottla.clients.serdes import deserializer
from ottla.clients.settings import CONSUMER, read_settings
from ottla.clients.share.fetcher import ShareFetcher
from ottla.clients.share.group import ShareMembership
from ottla.clients.share.in_flight import NOT_ACQUIRED, InFlightRecords
from ottla.clients.share.records import MAX_ACQUIRED
from ottla.clients.transport import Runtime
from ottla.errors import ConfigError, ErrorCode, IllegalStateError, KafkaError, WakeupError
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ottla.clients.environment import ClientEnvironment
    from ottla.clients.share.in_flight import Acknowledgements
    from ottla.clients.share.records import AcquiredPartitionRecords, PartitionKey, ShareRecord
    from ottla.types import TopicPartition

    Callback = Callable[[dict[TopicPartition, frozenset[int]], KafkaError | None], Any]

NO_GROUP_ID = "You must provide a valid group.id in the consumer configuration."
NO_SUBSCRIPTION = "Consumer is not subscribed to any topics."
IS_IMPLICIT = "Implicit acknowledgement of delivery is being used."
NOT_ALL = "All records must be acknowledged in explicit acknowledgement mode."
IN_CALLBACK = (
    "KafkaShareConsumer methods are not accessible from user-defined acknowledgement commit"
    " callback."
)
UNSUPPORTED = (
    "auto.offset.reset",
    "enable.auto.commit",
    "group.instance.id",
    "isolation.level",
    "partition.assignment.strategy",
    "interceptor.classes",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.protocol",
    "group.remote.assignor",
)
"""Settings of consumers that share groups do not have, or set for the whole group."""


class ShareConsumerCore:
    """The settings, client and state machines of one share consumer."""

    def __init__(
        self,
        config: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
        environment: ClientEnvironment | None = None,
    ) -> None:
        self.settings = settings = read_settings(CONSUMER, config, keywords)
        refused = [name for name in UNSUPPORTED if name in settings.given]
        if refused:
            text = "cannot be set when using a share group."
            raise ConfigError(f"{', '.join(refused)} {text}")
        if not settings.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, NO_GROUP_ID)
        settings.client_id = settings.client_id or "ottla-share-consumer"
        self.runtime = Runtime(settings, environment)
        self.client = client = self.runtime.client
        self.now_ms = self.runtime.now_ms
        self.is_explicit = settings.share_acknowledgement_mode == "explicit"
        self.group = ShareMembership(settings, client, CoordinatorLookup(client, settings.group_id))
        self.fetcher = ShareFetcher(settings, client, self.group)
        self.callback: Callback | None = None
        self._deserializers = Deserializers(
            deserializer(settings.key_deserializer), deserializer(settings.value_deserializer)
        )
        self._in_flight: dict[PartitionKey, InFlightRecords] = {}
        self._answers: deque[tuple[Acknowledgements, KafkaError | None]] = deque()
        self._unreadable: AcquiredPartitionRecords | None = None
        self._rest: Iterator[ShareRecord] = iter(())  # of the current iteration
        self._is_woken = False
        self._is_in_callback = False
        client.register(self.group)
        client.register(self.fetcher)

    def require_open(self) -> None:
        """Raise ClosedError after `close`, IllegalStateError in the acknowledgement callback."""
        if self._is_in_callback:
            raise IllegalStateError(IN_CALLBACK)
        if self.client.closed:
            raise self.client.closed_error()

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Subscribe to topics instead of those before; without any, unsubscribe."""
        self.require_open()
        self.group.topics = tuple(dict.fromkeys(topic_names(topics)))
        self.client.metadata.set_topics(self.group.topics)
        self.runtime.wake()

    # ------------------------------------------------------------ polls

    def wake(self) -> None:
        """Make the current or the next poll raise WakeupError."""
        self._is_woken = True

    def begin_poll(self) -> None:
        """Acknowledge what the last poll returned, and request records."""
        self.require_open()
        self.put_back(self._rest)
        if self.is_explicit and not all(records.is_decided for records in self._in_flight.values()):
            raise IllegalStateError(NOT_ALL)
        self._accept_implicitly()
        if not self.group.topics:
            raise IllegalStateError(NO_SUBSCRIPTION)
        self.fetcher.is_waiting = not self.fetcher.buffered
        self.send_decided(self.settings.default_api_timeout_ms)
        self.runtime.wake()

    def end_poll(self) -> None:
        """Request no further records."""
        self.fetcher.is_waiting = False

    def take(self) -> list[ShareRecord]:
        """Return the records that are there; raises the errors that are pending."""
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        pending_error = self.client.pending_error() or self.client.metadata.topic_error
        for errors in (self.group.errors, self.fetcher.errors):
            pending_error = pending_error or errors.pop()
        if pending_error is not None:
            raise pending_error
        self.group.user_poll(self.now_ms())
        self._raise_unreadable()
        renewed = [
            record for records in self._in_flight.values() for record in records.take_renewed()
        ]
        if renewed or any(records.is_renewing for records in self._in_flight.values()):
            return renewed
        return self._take_buffered()

    def iterate(self, records: list[ShareRecord]) -> Iterator[ShareRecord]:
        """Return an iterator; the next poll returns the records that it has not returned."""
        self._rest = iter(records)
        return self._rest

    def put_back(self, records: Iterable[ShareRecord]) -> None:
        """Return records with the next poll; else it would accept what the user has never got."""
        returned = list(records)
        for one in self._in_flight.values() if returned else ():
            one.put_back(returned)

    def _take_buffered(self) -> list[ShareRecord]:
        found: list[ShareRecord] = []
        limit: int = self.settings.max_poll_records
        is_strict = self.settings.share_acquire_mode.lower() == "record_limit"
        buffered = self.fetcher.buffered
        while buffered and len(found) < limit:
            first = buffered[0]
            records = first.take(
                limit - len(found) if is_strict else MAX_ACQUIRED,
                self._deserializers,
                check_crcs=self.settings.check_crcs,
            )
            found += records
            kept = self._in_flight.setdefault(first.key, InFlightRecords(first.key))
            kept.add(records)
            if first.is_used_up:
                buffered.popleft()
                if first.error is not None:
                    self._unreadable = first
                    break
                kept.decide(first.decided)
        if not found:
            self._raise_unreadable()
            self._forget_empty()
        else:
            self.fetcher.metrics.taken(len(found))
        return found

    def _raise_unreadable(self) -> None:
        """Raise the error of a record that could not be read, once those before it were returned.

        From now on the user may decide on it; without a decision it is released or rejected.
        """
        failed, self._unreadable = self._unreadable, None
        if failed is not None and failed.error is not None:
            kept = self._in_flight.setdefault(failed.key, InFlightRecords(failed.key))
            kept.decide(failed.decided, failed.unreadable)
            raise failed.error

    # ------------------------------------------------------------ acknowledgements

    def acknowledge(self, topic: str, partition: int, offset: int, kind: AcknowledgeType) -> None:
        """Note the user's decision on a record of the last poll."""
        self.require_open()
        if not self.is_explicit:
            raise IllegalStateError(IS_IMPLICIT)
        check_int("offset", offset)
        if not isinstance(kind, AcknowledgeType) or kind is AcknowledgeType.GAP:
            raise TypeError(f"a record is acknowledged by an AcknowledgeType, not {kind!r}")
        name = as_partition((topic, partition))
        for key, one in self._in_flight.items():
            if key.partition == name and one.has(offset):
                one.acknowledge(offset, kind)
                return
        raise IllegalStateError(NOT_ACQUIRED)

    def _accept_implicitly(self) -> None:
        if not self.is_explicit:
            for one in self._in_flight.values():
                one.acknowledge_rest(AcknowledgeType.ACCEPT)

    def begin_commit(self, timeout_ms: float) -> list[Acknowledgements]:
        """Send all decisions, in implicit mode on all records of the last poll."""
        self.require_open()
        self.put_back(self._rest)
        self._accept_implicitly()
        return self.send_decided(timeout_ms)

    def send_decided(self, timeout_ms: float) -> list[Acknowledgements]:
        """Send the decisions that were not sent."""
        self.client.advance(self.now_ms())
        deadline_ms = int(self.now_ms() + timeout_ms)
        taken = (records.take_decided(deadline_ms) for records in self._in_flight.values())
        sent = [one for one in taken if one is not None]
        for one in sent:
            one.done.on_done(lambda done, one=one: self._answered(one, done.error))  # type: ignore[misc] # the loop's value
        self._forget_empty()
        self.fetcher.send(sent)
        return sent

    def forget(self) -> None:
        """Drop the records of sessions that have ended."""
        self._in_flight.clear()
        self._unreadable = None
        self.fetcher.sessions_ended()

    def _forget_empty(self) -> None:
        self._in_flight = {key: one for key, one in self._in_flight.items() if not one.is_empty}

    def _answered(self, one: Acknowledgements, error: Exception | None) -> None:
        if error is not None and not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        if self.callback is not None:
            self._answers.append((one, error))

    def outcome(self, sent: Iterable[Acknowledgements]) -> dict[TopicPartition, KafkaError | None]:
        """Return the error of each partition, or None."""
        late = "Timeout expired before the acknowledgements were committed"
        found: dict[TopicPartition, KafkaError | None] = {}
        for one in sent:
            error = one.done.error if one.done.done else self.client.timeout_error(late)
            is_known = error is None or isinstance(error, KafkaError)
            found[one.key.partition] = error if is_known else KafkaError(-1, str(error))  # type: ignore[assignment] # checked
        return found

    def next_answer(self) -> tuple[dict[TopicPartition, frozenset[int]], KafkaError | None] | None:
        """Return the arguments of the callback's next call, None where none is due."""
        if not self._answers or self.callback is None:
            return None
        one, error = self._answers.popleft()
        return {one.key.partition: frozenset(one.types)}, error

    @contextmanager
    def in_callback(self) -> Iterator[None]:
        """Refuse the consumer's methods while the callback runs."""
        self._is_in_callback = True
        try:
            yield
        finally:
            self._is_in_callback = False
