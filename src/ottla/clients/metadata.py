"""A client's cluster metadata: brokers, topics, leaders, and when to refresh them.

Kafka: org.apache.kafka.clients.{Metadata, MetadataSnapshot, producer.internals.ProducerMetadata}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.errors.base import topic_error
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.purgatory.pending import Pending
from ottla.types import Node, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.protocol.apis.fetch import FetchResponse
    from ottla.protocol.apis.metadata import MetadataResponse
    from ottla.protocol.apis.produce import ProduceResponse
    from ottla.purgatory.backoff import Backoff

NO_LEADER = -1


class PartitionMetadata(NamedTuple):
    """One partition as the last response described it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int


class TopicMetadata:
    """One topic as the last response described it; partitions by number."""

    __slots__ = ("error", "is_internal", "name", "partitions", "problem", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, *, error: int, is_internal: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error = error
        self.is_internal = is_internal
        self.partitions: list[PartitionMetadata] = []
        self.problem: str | None = None
        """Why records cannot be sent or read now; None without a reason."""


class ClusterMetadata:
    """The metadata cache; `version` increases with every change.

    It holds the topics in use, or with `all_topics` (patterns) every topic.
    """

    def __init__(self, *, max_age_ms: int, allow_auto_create: bool) -> None:
        self.max_age_ms = max_age_ms
        self.allow_auto_create = allow_auto_create
        self.brokers: dict[int, Node] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.topic_names: dict[Uuid, str] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.version = 0
        self.updated_ms = -1
        self.all_topics = False
        self.topic_error: KafkaError | None = None  # of a topic in use, not retriable
        self.incomplete = False  # the last response lacked a leader or a topic in use
        self._topics_in_use: dict[str, None] = {}  # in the order in which they were added
        self._stale = True
        self.has_new_topics = False  # topics in use that no request has named
        self._requested: frozenset[str] = frozenset()  # the topics of the last request
        self._listeners: list[Callable[[], None]] = []
        self.is_refreshing = False
        """Whether a request is in flight."""
        self.is_failing = False
        """Whether the last request failed."""
        self.last_failure = ""
        self._failures = 0
        self._not_before_ms = 0
        self._waiting: list[Pending[None]] = []
        self._in_flight: list[Pending[None]] = []  # complete with the response in flight

    # ------------------------------------------------------------ topics in use

    def add_topics(self, topics: Iterable[str]) -> None:
        """Add topics to those in use."""
        for topic in topics:
            if topic not in self._topics_in_use:
                self._topics_in_use[topic] = None
                if topic not in self.topics:
                    self._stale = True
                    if topic not in self._requested and not self.all_topics:
                        self.has_new_topics = True

    def is_in_use(self, topic: str) -> bool:
        """Whether the topic is kept in the cache."""
        return topic in self._topics_in_use

    def set_topics(self, topics: Iterable[str]) -> None:
        """Set the topics in use; others are removed with the next response."""
        self._topics_in_use = {}
        self.add_topics(topics)

    def drop_topic(self, topic: str) -> None:
        """Remove a topic from those in use and from the cache."""
        self._topics_in_use.pop(topic, None)
        self.topics.pop(topic, None)

    def mark_stale(self) -> None:
        """Request a refresh as soon as the backoff allows it."""
        self._stale = True

    def assume_current(self, now_ms: int) -> None:
        """Send no request before max.age or an error: the caller knows the nodes it needs."""
        self._stale, self.updated_ms = False, now_ms

    # ------------------------------------------------------------ refresh

    def refresh(self, now_ms: int, *, without_delay: bool = False) -> Pending[None]:
        """Request a refresh; completes with the response to a request sent after now."""
        if without_delay and not self._failures:
            self._not_before_ms = now_ms
        pending: Pending[None] = Pending()
        self._waiting.append(pending)
        self._stale = True
        return pending

    def refresh_due_ms(self) -> int:
        """Return when the next request is sent: for new topics at once, unless brokers fail."""
        is_due = self._stale or self.updated_ms < 0
        due_ms = 0 if is_due else self.updated_ms + self.max_age_ms
        if self.has_new_topics and not self.is_failing:
            return due_ms
        return max(due_ms, self._not_before_ms)

    def next_request(self, next_not_before_ms: int) -> Any:
        """Return the request of a refresh, and send the next one not before a time."""
        self.is_refreshing = True
        self._in_flight, self._waiting = self._waiting, []
        self._not_before_ms = next_not_before_ms
        return self.request()

    def refreshed(self, now_ms: int, backoff: Backoff) -> None:
        """Complete the waits for the response that `update` has applied."""
        self._failures = self._failures + 1 if self.incomplete else 0
        wait_ms = backoff.after(self._failures)
        self._not_before_ms = max(self._not_before_ms, now_ms + wait_ms)
        answered, self._in_flight = self._in_flight, []
        for pending in answered:
            pending.complete(None)

    def refresh_failed(
        self, error: Exception, now_ms: int, backoff: Backoff, *, final: KafkaError | None
    ) -> None:
        """Repeat the request after the backoff; `final` ends the waits for it."""
        self.is_refreshing, self.is_failing, self.last_failure = False, True, str(error)
        self._stale = True
        self._failures += 1
        self._not_before_ms = now_ms + backoff.after(self._failures)
        self._waiting = self._in_flight + self._waiting  # they need the response to a later request
        self._in_flight = []
        if final is not None:
            self.fail_waiting(final)

    def fail_waiting(self, error: KafkaError) -> None:
        """Fail all waits for a refresh."""
        waiting = self._in_flight + self._waiting
        self._in_flight, self._waiting = [], []
        for pending in waiting:
            pending.fail(error)

    def request(self) -> MetadataRequest:
        """Build the request for the topics in use."""
        self._stale = self.has_new_topics = False
        self._requested = frozenset(self._topics_in_use)
        topics = (
            None
            if self.all_topics
            else [
                MetadataRequest.MetadataRequestTopic(name=name)
                for name in sorted(self._topics_in_use)
            ]
        )
        return MetadataRequest(
            topics=topics, allow_auto_topic_creation=self.allow_auto_create and bool(topics)
        )

    # ------------------------------------------------------------ responses

    def on_update(self, listener: Callable[[], None]) -> None:
        """Add a listener that is called after every change."""
        self._listeners.append(listener)

    def update(self, response: MetadataResponse, now_ms: int) -> None:
        """Apply a response.

        A partition with an older leader epoch than the known one is not changed: responses of
        different brokers may arrive out of order (KIP-320). A new topic id is a new topic.
        """
        if response.brokers:
            self.brokers = {
                broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        seen = {}
        self.incomplete, self.topic_error = False, None
        for answered in response.topics:
            if answered.name is not None:
                seen[answered.name] = self._merge(answered)
        if self.all_topics:
            self.topics = seen
        else:
            self.topics.update(seen)
            for name in [name for name in self.topics if name not in self._topics_in_use]:
                del self.topics[name]
        self.topic_names = {t.topic_id: t.name for t in self.topics.values() if t.topic_id}
        self.updated_ms = now_ms
        self._changed()

    def _merge(self, answered: MetadataResponse.MetadataResponseTopic) -> TopicMetadata:
        topic = TopicMetadata(
            answered.name or "",
            answered.topic_id,
            error=answered.error_code,
            is_internal=answered.is_internal,
        )
        old = self.topics.get(topic.name)
        known = (
            {partition.partition: partition for partition in old.partitions}
            if old is not None and old.topic_id == topic.topic_id
            else {}
        )
        for part in sorted(answered.partitions, key=lambda one: one.partition_index):
            fresh = PartitionMetadata(
                part.partition_index,
                part.leader_id,
                part.leader_epoch,
                tuple(part.replica_nodes),
                tuple(part.isr_nodes),
                tuple(part.offline_replicas),
                part.error_code,
            )
            before = known.get(fresh.partition)
            if before is not None and fresh.leader_epoch < before.leader_epoch:
                fresh = before
            topic.partitions.append(fresh)
            if fresh.leader not in self.brokers:  # no leader, or a broker that the response lacks
                self._stale = self.incomplete = True
                topic.problem = f"partition {fresh.partition} has no leader that can be reached"
        if topic.error:
            topic.problem = None
            if KafkaError(topic.error).is_retriable:
                self._stale = self.incomplete = True
                topic.problem = _problem(KafkaError(topic.error))
            elif not self.all_topics:
                self.topic_error = topic_error(topic.name, topic.error)
        return topic

    def update_nodes(
        self,
        endpoints: Sequence[ProduceResponse.NodeEndpoint] | Sequence[FetchResponse.NodeEndpoint],
    ) -> None:
        """Add the addresses of leaders that a Produce or Fetch response names (KIP-951)."""
        for endpoint in endpoints:
            self.brokers[endpoint.node_id] = Node(
                endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack
            )

    def update_leader(self, partition: TopicPartition, leader: int, epoch: int) -> bool:
        """Apply a leader from a Produce or Fetch response (KIP-951); True if it is newer."""
        topic = self.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return False
        known = topic.partitions[partition.partition]
        if leader not in self.brokers or epoch <= known.leader_epoch:
            return False
        topic.partitions[partition.partition] = known._replace(leader=leader, leader_epoch=epoch)
        self._changed()
        return True

    def _changed(self) -> None:
        self.version += 1
        for listener in self._listeners:
            listener()

    # ------------------------------------------------------------ queries

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        """Return a partition's metadata, None while unknown."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader(self, partition: TopicPartition) -> int:
        """Return the leader's node id, -1 while the leader or its address is unknown."""
        known = self.partition(partition)
        if known is None or known.leader not in self.brokers:
            return NO_LEADER
        return known.leader

    def partition_count(self, topic: str) -> int:
        """Return a topic's partition count, 0 while unknown."""
        known = self.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def topic_id(self, topic: str) -> Uuid:
        """Return the topic's id, the zero id while unknown."""
        known = self.topics.get(topic)
        return Uuid() if known is None else known.topic_id

    def error(self, topic: str) -> int:
        """Return a topic's error code in the last response."""
        known = self.topics.get(topic)
        return ErrorCode.NONE if known is None else known.error


def _problem(error: KafkaError) -> str:
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"it does not exist ({error.code.name}): create it, or allow its auto-creation"
    return f"{error.code.name}: {error.message}"
