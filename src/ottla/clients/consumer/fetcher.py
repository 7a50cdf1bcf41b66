"""Prefetches the assigned partitions with incremental fetch sessions.

Kafka: org.apache.kafka.clients.consumer.internals.{Fetcher, FetchSessionHandler}. KIP-227, 392.

Each Fetch starts after the buffered records, so the next response arrives while the user processes
the last one. Partitions with `BUFFERED_FETCHES` full responses in the buffer are not fetched until
records are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.fetched import FetchedPartitionRecords, next_offset_after
from ottla.clients.consumer.metrics import FetcherMetrics
from ottla.clients.offsets import is_retriable_read
from ottla.clients.pending_errors import PendingErrors
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchRequest
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.client import Client
    from ottla.clients.consumer.deserializing import Deserializers
    from ottla.clients.consumer.reading import Taken
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.consumer.subscription import PartitionState, Subscription
    from ottla.clients.settings import ValidatedSettings
    from ottla.purgatory.pending import Pending

PURPOSE = "fetch"
BUFFERED_FETCHES = 2
SHORT_WAIT_MS = 5
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
SESSION_LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
PartitionEntry = tuple[Uuid, int, int, int]  # topic id, fetch offset, leader epoch, max bytes


class ClientFetchSession:
    """The state of an incremental fetch session (KIP-227)."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, PartitionEntry] = {}

    def changes(
        self, requested: dict[TopicPartition, PartitionEntry]
    ) -> tuple[dict[TopicPartition, PartitionEntry], dict[TopicPartition, PartitionEntry]]:
        """Return the changed and the forgotten partitions, and store the requested ones."""
        before, self.partitions = self.partitions, requested
        if self.epoch == INITIAL_EPOCH or not self.session_id:
            return requested, {}
        changed = {key: entry for key, entry in requested.items() if before.get(key) != entry}
        forgotten = {
            key: entry
            for key, entry in before.items()
            if key not in requested or requested[key][0] != entry[0]
        }
        return changed, forgotten

    def answered(self, session_id: int) -> None:
        """Advance to the next epoch; session id 0: the broker keeps no session."""
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH if not session_id else max(1, (self.epoch + 1) & 0x7FFFFFFF)

    def reset(self) -> None:
        """Continue with a full request."""
        self.session_id, self.epoch, self.partitions = 0, INITIAL_EPOCH, {}


class Fetcher:
    """The state machine that fills the buffers of the assigned partitions."""

    def __init__(
        self,
        settings: ValidatedSettings,
        client: Client,
        subscription: Subscription,
        *,
        deserializers: Deserializers,
        on_out_of_range: Callable[[PartitionState], None],
    ) -> None:
        self.client = client
        self.subscription = subscription
        self.errors = PendingErrors()
        self.taken: list[Taken] = []
        self.deserializers = deserializers
        self._on_out_of_range = on_out_of_range
        self._settings = settings
        self._committed_only = settings.isolation_level == "read_committed"
        self._sessions: dict[int, ClientFetchSession] = {}
        self._in_flight: set[int] = set()
        self._deadline_ms: int | None = None
        self._full_nodes: set[int] = set()  # leaders of partitions with full buffers
        self._turn = 0
        self._unreadable: PartitionState | None = None  # its next record cannot be read
        self._metrics = FetcherMetrics(client)

    # ------------------------------------------------------------ requests

    def poll(self, now_ms: int) -> None:
        """Send a Fetch to every node with partitions to fetch and none in flight."""
        self._deadline_ms = None
        self._full_nodes = set()
        by_node: dict[int, dict[TopicPartition, PartitionEntry]] = {}
        for state in self.subscription.partitions.values():
            node_id = self._node_for(state, now_ms)
            if node_id >= 0:
                metadata = self.client.metadata
                known = metadata.partition(state.topic_partition)
                epoch = -1 if known is None else known.leader_epoch
                topic_id = metadata.topic_id(state.topic_partition.topic)
                by_node.setdefault(node_id, {})[state.topic_partition] = (
                    topic_id,
                    state.fetch_position,
                    epoch,
                    self._settings.max_partition_fetch_bytes,
                )
        for node_id, requested in by_node.items():
            if node_id in self._in_flight:
                continue
            if not self.client.is_available(node_id, PURPOSE):
                self._wake_at(self.client.available_at_ms(node_id, PURPOSE))
                continue
            self._send(node_id, requested)

    def next_deadline_ms(self) -> int | None:
        """Return when a partition's backoff ends."""
        return self._deadline_ms

    def _wake_at(self, when_ms: int) -> None:
        if self._deadline_ms is None or when_ms < self._deadline_ms:
            self._deadline_ms = when_ms

    def _node_for(self, state: PartitionState, now_ms: int) -> int:
        """Return the node to fetch a partition from, -1 if it is not fetched now."""
        limit = BUFFERED_FETCHES * self._settings.max_partition_fetch_bytes
        if state.position is None or state.paused or state.needs_validation:
            return -1
        if state.fetching:
            return -1
        if state.buffered_bytes >= limit:
            self._full_nodes.add(self.client.metadata.leader(state.topic_partition))
            return -1
        if state.retry_at_ms > now_ms:
            self._wake_at(state.retry_at_ms)
            return -1
        if state.preferred_replica >= 0:
            listed = state.preferred_replica in self.client.metadata.brokers
            if listed and now_ms < state.preferred_until_ms:
                return state.preferred_replica
            state.preferred_replica = -1
        leader = self.client.metadata.leader(state.topic_partition)
        if leader < 0:
            self.client.metadata.mark_stale()
        return leader

    def _send(self, node_id: int, requested: dict[TopicPartition, PartitionEntry]) -> None:
        session = self._sessions.setdefault(node_id, ClientFetchSession())
        changed, forgotten = session.changes(requested)
        # A long poll of partitions without new records must not delay those whose buffers are full
        # now: the broker processes the requests of a connection one at a time.
        longest_wait_ms: int = self._settings.fetch_max_wait_ms
        max_wait_ms = min(longest_wait_ms, SHORT_WAIT_MS) if node_id in self._full_nodes else None
        request = FetchRequest(
            max_wait_ms=longest_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=self._settings.fetch_max_bytes,
            isolation_level=1 if self._committed_only else 0,
            session_id=session.session_id,
            session_epoch=session.epoch,
            rack_id=self._settings.client_rack,
            topics=_topics(changed),
            forgotten_topics_data=_forgotten(forgotten),
        )
        in_request: dict[TopicPartition, tuple[PartitionState, int, int]] = {}
        names: dict[Uuid, str] = {}
        for partition, (topic_id, offset, _, _) in requested.items():
            state = self.subscription.partitions[partition]
            state.fetching = True
            in_request[partition] = (state, state.generation, offset)
            names[topic_id] = partition.topic
        self._in_flight.add(node_id)
        has_ids = all(entry[0] for entry in requested.values())
        pending = self.client.send(
            node_id,
            request,
            purpose=PURPOSE,
            timeout_ms=self._settings.request_timeout_ms + self._settings.fetch_max_wait_ms,
            max_version=None if has_ids else 12,
        )
        pending.on_done(lambda done: self._answered(done, node_id, in_request, names))

    # ------------------------------------------------------------ responses

    def _answered(
        self,
        done: Pending[Any],
        node_id: int,
        requested: dict[TopicPartition, tuple[PartitionState, int, int]],
        names: dict[Uuid, str],
    ) -> None:
        self._in_flight.discard(node_id)
        for state, _, _ in requested.values():
            state.fetching = False
        session = self._sessions[node_id]
        if done.error is not None:
            session.reset()
            self._lost(done.error, requested)
            return
        response = done.value
        if response.error_code:
            session.reset()
            if response.error_code not in SESSION_LOST:
                self._lost(KafkaError(response.error_code), requested)
            elif response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                self.client.metadata.mark_stale()
            return
        session.answered(response.session_id)
        self.client.metadata.update_nodes(response.node_endpoints)
        answers = [partition for topic in response.responses for partition in topic.partitions]
        size = sum(len(answer.records or b"") for answer in answers)
        if size:
            self._metrics.fetched_bytes(size)
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                expected = requested.get(TopicPartition(name, answer.partition_index))
                if expected is not None:
                    self._process_partition(answer, *expected)

    def _lost(self, error: Exception, requested: dict[TopicPartition, Any]) -> None:
        if isinstance(error, KafkaError) and not error.is_retriable:
            self.errors.add(error)
        self.client.metadata.mark_stale()
        until_ms = self.client.now_ms + self._settings.retry_backoff_ms
        for state, _, _ in requested.values():
            state.retry_at_ms = max(state.retry_at_ms, until_ms)
            state.preferred_replica = -1

    def _process_partition(
        self, answer: Any, state: PartitionState, generation: int, fetch_offset: int
    ) -> None:
        partition = state.topic_partition
        current = self.subscription.partitions.get(partition) is state
        if not current or state.generation != generation or state.fetch_position != fetch_offset:
            return
        if answer.error_code:
            self._failed(answer, state)
            return
        size = len(answer.records or b"")
        text = "%s: %d bytes at offset %d; high watermark %d, last stable offset %d"
        ends = (answer.high_watermark, answer.last_stable_offset)
        self.client.trace.add(
            "fetch", text, state.topic_partition, size, state.fetch_position, *ends
        )
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        state.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            state.preferred_replica = answer.preferred_read_replica
            state.preferred_until_ms = self.client.now_ms + self.client.metadata.max_age_ms
        records = answer.records
        if not records:
            return
        view = records if isinstance(records, memoryview) else memoryview(records)
        end_offset = next_offset_after(view)
        if end_offset is None:
            self.errors.add(
                KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{partition} at offset {fetch_offset}: the broker sent {len(view)} bytes "
                    "without a whole batch",
                ),
                state,
            )
            state.retry_at_ms = self.client.now_ms + self._settings.retry_backoff_ms
            return
        aborted = (answer.aborted_transactions or ()) if self._committed_only else None
        fetched = FetchedPartitionRecords(
            partition,
            view,
            fetch_offset,
            end_offset,
            aborted=aborted,
            check_crcs=self._settings.check_crcs,
        )
        state.buffered.append(fetched)
        state.buffered_bytes += fetched.size
        state.fetch_position = end_offset

    def _failed(self, answer: Any, state: PartitionState) -> None:
        code = answer.error_code
        text = "fetch of %s: %s"
        self.client.trace.add("fetch", text, state.topic_partition, KafkaError(code))
        state.retry_at_ms = self.client.now_ms + self._settings.retry_backoff_ms
        leader = answer.current_leader
        if leader.leader_id >= 0 and self.client.metadata.update_leader(
            state.topic_partition, leader.leader_id, leader.leader_epoch
        ):
            state.retry_at_ms = 0
        if code in STALE_METADATA:
            self.client.metadata.mark_stale()
            state.preferred_replica = -1
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.preferred_replica >= 0:  # a follower may lag: fetch from the leader
                state.preferred_replica = -1
                state.retry_at_ms = 0
            elif not state.buffered:
                self._on_out_of_range(state)
        else:
            error = KafkaError(code)
            if not is_retriable_read(error) or code == ErrorCode.CORRUPT_MESSAGE:
                text = f"fetch of {state.topic_partition}: {error.message}"
                self.errors.add(KafkaError(code, text), state)

    # ------------------------------------------------------------ buffered records

    def take(
        self,
        limit: int,
        only: frozenset[TopicPartition] | None = None,
        *,
        with_topic: bool = False,
    ) -> list[tuple[TopicPartition, list[Any]]]:
        """Return up to limit buffered records, by partition, and advance the positions.

        With with_topic they are deserialized ConsumerRecords, and `taken` holds them before
        deserialization; else Records. The first partition rotates from call to call.

        Raises CorruptMessage or RecordDeserializationError if the first record is unreadable, on
        every call until its partition is paused, unassigned or has another position.
        """
        self.taken = []
        states = [state for state in self.subscription.partitions.values() if state.buffered]
        if not states:
            return []
        out: list[tuple[TopicPartition, list[Any]]] = []
        for state in self._in_turn(states):
            if state.paused or (only is not None and state.topic_partition not in only):
                continue
            try:
                while limit > 0 and state.buffered:
                    records = self._take_from(state, limit, with_topic=with_topic)
                    if records:
                        out.append((state.topic_partition, records))
                        limit -= len(records)
            except Exception:
                state.position = state.buffered[0].position
                self._unreadable = state
                if not out:
                    raise
                break
        return out

    def _in_turn(self, states: list[PartitionState]) -> list[PartitionState]:
        """Return the partitions in the order of this call, one with an error first."""
        self._turn += 1
        start = self._turn % len(states)
        turned = states[start:] + states[:start]
        stuck, self._unreadable = self._unreadable, None
        if stuck is not None and stuck in turned:
            turned.remove(stuck)
            turned.insert(0, stuck)
        return turned

    def _take_from(self, state: PartitionState, limit: int, *, with_topic: bool) -> list[Any]:
        fetched = state.buffered[0]
        records: list[Any]
        if with_topic:
            records = self._read(state, fetched, fetched.take_with_topic(limit))
        else:
            records = fetched.take(limit)
        state.position = fetched.position
        if fetched.leader_epoch >= 0:
            state.leader_epoch = fetched.leader_epoch
        is_used_up = not records or fetched.position >= fetched.end_offset
        self._metrics.taken(state, len(records), fetched.size if is_used_up else 0)
        if is_used_up:
            state.buffered.popleft()
            state.buffered_bytes -= fetched.size
            if not state.fetching:  # its buffer may have been full
                self.client.transport.wake()
        return records

    def _read(
        self, state: PartitionState, fetched: FetchedPartitionRecords, records: list[ConsumerRecord]
    ) -> list[ConsumerRecord]:
        """Deserialize; raises if the first record fails."""
        if not records:
            return records
        read = self.deserializers.read(records) if self.deserializers else None
        if read is not None and read.failure is not None:
            good = len(read.records)
            fetched.give_back(len(records) - good)
            if not good:
                raise read.failure
            records = records[:good]
        self.taken.append((state, state.generation, records))
        return records if read is None else read.records

    @property
    def has_records(self) -> bool:
        """Whether `take` may return records."""
        return any(s.buffered and not s.paused for s in self.subscription.partitions.values())


def _topics(entries: dict[TopicPartition, PartitionEntry]) -> list[FetchRequest.FetchTopic]:
    topics: dict[str, FetchRequest.FetchTopic] = {}
    for (name, partition), (topic_id, offset, epoch, max_bytes) in entries.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchRequest.FetchTopic(
                topic=name, topic_id=topic_id, partitions=[]
            )
        topic.partitions.append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=partition,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(entries: dict[TopicPartition, PartitionEntry]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[str, FetchRequest.ForgottenTopic] = {}
    for (name, partition), entry in entries.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchRequest.ForgottenTopic(
                topic=name, topic_id=entry[0], partitions=[]
            )
        topic.partitions.append(partition)
    return list(topics.values())
