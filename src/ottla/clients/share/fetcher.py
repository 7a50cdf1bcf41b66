"""Acquires records from the leaders of the assigned partitions, and sends acknowledgements.

Kafka: org.apache.kafka.clients.consumer.internals.{ShareConsumeRequestManager,
ShareSessionHandler}.

A node has one request at a time: ShareFetch while the user waits for records, with the
acknowledgements of its partitions; ShareAcknowledge otherwise, and where locks are renewed. Records
are requested when none are buffered: what a member holds is locked for all others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.clients.offsets import is_retriable_read
from ottla.clients.pending_errors import PendingErrors
from ottla.clients.share.group import ShareFetchMetrics
from ottla.clients.share.in_flight import Acknowledgements, offset_runs
from ottla.clients.share.records import AcquiredPartitionRecords, PartitionKey
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.apis.share_fetch import ShareFetchRequest
from ottla.types import AcknowledgeType, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.clients.client import Client
    from ottla.clients.settings import ValidatedSettings
    from ottla.clients.share.group import ShareMembership
    from ottla.purgatory.pending import Pending
    from ottla.types import Uuid

PURPOSE = "share"
MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""The partition is led by another node, or is deleted: its locks on this node are gone."""
_MODES = {"batch_optimized": 0, "record_limit": 1}
_FetchTopic = ShareFetchRequest.FetchTopic
_FetchPartition = _FetchTopic.FetchPartition
_AcknowledgeTopic = ShareAcknowledgeRequest.AcknowledgeTopic
_AcknowledgePartition = _AcknowledgeTopic.AcknowledgePartition
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_HIGHEST_EPOCH = (1 << 31) - 1
SESSION_LOST = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


class _Node:
    """A node with a session."""

    def __init__(self) -> None:
        self.session = _ClientShareSession()
        self.is_busy = False
        self.queued: list[Acknowledgements] = []
        self.retry_at_ms = 0


class ShareFetcher:
    """The share sessions of one member."""

    def __init__(self, settings: ValidatedSettings, client: Client, group: ShareMembership) -> None:
        self.errors = PendingErrors()
        self.buffered: deque[AcquiredPartitionRecords] = deque()
        self.lock_timeout_ms: int | None = None
        self.is_waiting = False
        """Whether the user waits for records."""
        self.metrics = ShareFetchMetrics(client)
        self._settings = settings
        self._client = client
        self._group = group
        self._nodes: dict[int, _Node] = {}
        self._deadline_ms: int | None = None
        self._is_closing = False

    # ------------------------------------------------------------ calls of the core

    def send(self, acknowledgements: Iterable[Acknowledgements]) -> None:
        """Queue acknowledgements for the nodes that the records came from."""
        for one in acknowledgements:
            one.done.on_done(lambda done, one=one: self._count(one, done.error))  # type: ignore[misc] # the loop's value
            self._node(one.key.node_id).queued.append(one)
        self._client.transport.wake()

    def _count(self, one: Acknowledgements, error: Exception | None) -> None:
        self.metrics.acknowledged(len(one.types), is_error=error is not None)

    def release_buffered(self) -> None:
        """Release what was acquired and not returned to the user."""
        released, self.buffered = self.buffered, deque()
        deadline_ms = self._client.now_ms + self._settings.default_api_timeout_ms
        self.send(
            Acknowledgements(
                one.key, dict.fromkeys(one.offsets(), AcknowledgeType.RELEASE), deadline_ms
            )
            for one in released
        )

    def drop_unassigned(self) -> None:
        """Release buffered records of partitions that the member has lost."""
        assigned = self._group.partitions()
        kept = deque(fetched for fetched in self.buffered if fetched.key.partition in assigned)
        self.buffered = deque(
            fetched for fetched in self.buffered if fetched.key.partition not in assigned
        )
        self.release_buffered()
        self.buffered = kept

    def end_sessions(self) -> None:
        """Send what is queued, with the last request of each session; nothing is sent after it."""
        self._is_closing = True
        self.is_waiting = False
        self._client.transport.wake()

    def sessions_ended(self) -> None:
        """Let a later request begin sessions again; what was buffered was released."""
        self._is_closing = False
        self.buffered.clear()

    @property
    def is_idle(self) -> bool:
        """Whether all sessions are over."""
        return all(node.session.is_new and not node.is_busy for node in self._nodes.values())

    # ------------------------------------------------------------ requests

    def _node(self, node_id: int) -> _Node:
        return self._nodes.setdefault(node_id, _Node())

    def poll(self, now_ms: int) -> None:
        """Send to each node what is due."""
        self._deadline_ms = None
        requested = self._requested() if self.is_waiting and not self.buffered else {}
        for node_id in {**self._nodes, **requested}:
            node = self._node(node_id)
            partitions = requested.get(node_id)
            if node.is_busy or not (node.queued or partitions or self._is_closing):
                continue
            due_ms = max(node.retry_at_ms, self._client.available_at_ms(node_id, PURPOSE))
            if due_ms > now_ms:
                if self._deadline_ms is None or due_ms < self._deadline_ms:
                    self._deadline_ms = due_ms
            else:
                self._send(node_id, node, partitions)

    def next_deadline_ms(self) -> int | None:
        """Return when a backoff ends."""
        return self._deadline_ms

    def _requested(self) -> dict[int, dict[TopicPartition, Uuid]]:
        found: dict[int, dict[TopicPartition, Uuid]] = {}
        for partition, topic_id in self._group.partitions().items():
            leader = self._client.metadata.leader(partition)
            if leader < 0:
                self._client.metadata.mark_stale()
            else:
                found.setdefault(leader, {})[partition] = topic_id
        return found

    def _send(
        self, node_id: int, node: _Node, partitions: dict[TopicPartition, Uuid] | None
    ) -> None:
        sent, node.queued = node.queued, []
        if node.session.is_new:
            for one in sent:  # the locks ended with the session
                one.done.fail(KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND))
            if partitions:
                self._fetch(node_id, node, partitions, [])
            return
        fetches = partitions and all(
            one.key.partition in partitions and not one.renews for one in sent
        )
        if fetches and partitions and not self._is_closing:
            self._fetch(node_id, node, partitions, sent)
        else:
            self._acknowledge(node_id, node, sent)

    def _fetch(
        self,
        node_id: int,
        node: _Node,
        partitions: dict[TopicPartition, Uuid],
        sent: list[Acknowledgements],
    ) -> None:
        added, forgotten = node.session.changes(partitions)
        request = share_fetch(
            self._settings,
            self._group.member_id,
            node.session.epoch,
            added=added,
            forgotten=forgotten,
            sent=sent,
        )
        node.is_busy = True
        started_ms = self._client.now_ms
        timeout_ms = self._settings.request_timeout_ms + self._settings.fetch_max_wait_ms
        pending = self._client.send(node_id, request, purpose=PURPOSE, timeout_ms=timeout_ms)
        pending.on_done(lambda done: self._fetched(node_id, node, sent, done, started_ms))

    def _acknowledge(self, node_id: int, node: _Node, sent: list[Acknowledgements]) -> None:
        is_last = self._is_closing
        epoch = FINAL_EPOCH if is_last else node.session.epoch
        request = share_acknowledge(self._settings, self._group.member_id, epoch, sent)
        node.is_busy = True
        pending = self._client.send(node_id, request, purpose=PURPOSE)

        def answered(done: Pending[Any]) -> None:
            self._acknowledged(node, sent, done)
            if is_last:
                node.session.reset()

        pending.on_done(answered)

    # ------------------------------------------------------------ responses

    def _is_refused(self, node: _Node, sent: list[Acknowledgements], done: Pending[Any]) -> bool:
        """Handle the error of a whole request; False without one."""
        node.is_busy = False
        error: Exception | None = done.error
        if error is None and done.value.error_code:
            error = KafkaError(done.value.error_code, done.value.error_message)
        if error is None:
            node.session.answered()
            self._client.metadata.update_nodes(done.value.node_endpoints)
            return False
        node.session.reset()
        for one in sent:
            one.done.fail(error)
        if isinstance(error, KafkaError) and error.code not in SESSION_LOST:
            node.retry_at_ms = self._client.now_ms + self._settings.retry_backoff_ms
            self._client.metadata.mark_stale()
            if not error.is_retriable and not self._is_closing:
                self.errors.add(error)
        self._client.transport.wake()
        return True

    def _fetched(
        self,
        node_id: int,
        node: _Node,
        sent: list[Acknowledgements],
        done: Pending[Any],
        started_ms: int,
    ) -> None:
        if self._is_refused(node, sent, done):
            return
        response = done.value
        answers = list(_partitions(response))
        size = sum(len(one.records or b"") for _, one in answers)
        latency_ms = self._client.now_ms - started_ms
        self.metrics.fetched(size, latency_ms, response.throttle_time_ms)
        self.lock_timeout_ms = response.acquisition_lock_timeout_ms or self.lock_timeout_ms
        names = {topic_id: one.topic for one, topic_id in node.session.partitions.items()}
        for topic_id, answer in answers:
            if topic_id in names:
                key = (node_id, topic_id, TopicPartition(names[topic_id], answer.partition_index))
                self._buffer(node, PartitionKey(*key), answer)
        codes = {
            (topic_id, one.partition_index): (
                one.acknowledge_error_code,
                one.acknowledge_error_message,
            )
            for topic_id, one in answers
        }
        self._complete(node, sent, codes)
        self._client.transport.wake()

    def _buffer(self, node: _Node, key: PartitionKey, answer: Any) -> None:
        if answer.error_code:
            self._failed(node, key.partition, answer)
        if not answer.acquired_records:
            return
        records = answer.records or b""
        view = records if isinstance(records, memoryview) else memoryview(records)
        try:
            acquired = AcquiredPartitionRecords(key, view, answer.acquired_records)
        except KafkaError as error:
            self.errors.add(error)
            return
        self.buffered.append(acquired)
        self.drop_unassigned()

    def _failed(self, node: _Node, partition: TopicPartition, answer: Any) -> None:
        error = KafkaError(answer.error_code, answer.error_message)
        text = "share fetch of %s: %s"
        self._client.trace.add("fetch", text, partition, error)
        node.retry_at_ms = self._client.now_ms + self._settings.retry_backoff_ms
        leader = answer.current_leader
        metadata = self._client.metadata
        if error.code in MOVED:
            if leader.leader_id < 0 or not metadata.update_leader(
                partition, leader.leader_id, leader.leader_epoch
            ):
                metadata.mark_stale()
        elif not is_retriable_read(error):
            self.errors.add(KafkaError(error.code, f"{partition}: {error.message}"))

    def _acknowledged(self, node: _Node, sent: list[Acknowledgements], done: Pending[Any]) -> None:
        if self._is_refused(node, sent, done):
            return
        response = done.value
        self.lock_timeout_ms = response.acquisition_lock_timeout_ms or self.lock_timeout_ms
        codes = {
            (topic_id, one.partition_index): (one.error_code, one.error_message)
            for topic_id, one in _partitions(response)
        }
        self._complete(node, sent, codes)
        self._client.transport.wake()

    def _complete(
        self,
        node: _Node,
        sent: list[Acknowledgements],
        codes: dict[tuple[Uuid, int], tuple[int, str | None]],
    ) -> None:
        """Answer acknowledgements; those that the node could not store are sent again."""
        missing = ErrorCode.UNKNOWN_SERVER_ERROR, None
        for one in sent:
            code, text = codes.get((one.key.topic_id, one.key.partition.partition), missing)
            error = KafkaError(code, text) if code else None
            if error is None:
                one.done.complete(None)
            elif self._may_retry(one, error):
                one.attempts += 1
                node.queued.append(one)
                node.retry_at_ms = self._client.now_ms + self._client.backoff.after(one.attempts)
            else:
                one.done.fail(error)

    def _may_retry(self, one: Acknowledgements, error: KafkaError) -> bool:
        if error.code in MOVED:
            self._client.metadata.mark_stale()
            return False
        if self._is_closing or not error.is_retriable:
            return False
        backoff_ms: int = self._settings.retry_backoff_ms
        return self._client.now_ms + backoff_ms < one.deadline_ms


def _partitions(response: Any) -> Iterable[tuple[Uuid, Any]]:
    return (
        (topic.topic_id, partition)
        for topic in response.responses
        for partition in topic.partitions
    )


def share_fetch(
    settings: ValidatedSettings,
    member_id: str,
    epoch: int,
    *,
    added: Iterable[tuple[Uuid, int]],
    forgotten: Iterable[tuple[Uuid, int]],
    sent: Sequence[Acknowledgements],
) -> ShareFetchRequest:
    """Return a request that acknowledges, then acquires."""
    batches = _batches(sent, _FetchPartition.AcknowledgementBatch)
    names = [*batches, *(name for name in added if name not in batches)]
    return ShareFetchRequest(
        group_id=settings.group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        max_records=settings.max_poll_records,
        batch_size=settings.max_poll_records,
        share_acquire_mode=_MODES[settings.share_acquire_mode.lower()],
        topics=[
            _FetchTopic(
                topic_id=topic_id,
                partitions=[
                    _FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=batches.get((topic_id, index), []),
                    )
                    for index in indexes
                ],
            )
            for topic_id, indexes in by_topic(names).items()
        ],
        forgotten_topics_data=[
            ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(forgotten).items()
        ],
    )


def share_acknowledge(
    settings: ValidatedSettings, member_id: str, epoch: int, sent: Sequence[Acknowledgements]
) -> ShareAcknowledgeRequest:
    """Return a request that only acknowledges; the final epoch also ends the session."""
    batches = _batches(sent, _AcknowledgePartition.AcknowledgementBatch)
    return ShareAcknowledgeRequest(
        group_id=settings.group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(acknowledgement.renews for acknowledgement in sent),
        topics=[
            _AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    _AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=batches[topic_id, index],
                    )
                    for index in indexes
                ],
            )
            for topic_id, indexes in by_topic(batches).items()
        ],
    )


def _batches(sent: Sequence[Acknowledgements], kind: type[Any]) -> dict[tuple[Uuid, int], Any]:
    merged: dict[tuple[Uuid, int], dict[int, Any]] = {}
    for one in sent:
        name = one.key.topic_id, one.key.partition.partition
        merged.setdefault(name, {}).update(one.types)
    return {
        name: [
            kind(
                first_offset=run.first_offset,
                last_offset=run.last_offset,
                acknowledge_types=run.types,
            )
            for run in offset_runs(types)
        ]
        for name, types in merged.items()
    }


class _ClientShareSession:
    """The state of one session; epoch 0 begins it."""

    def __init__(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, Uuid] = {}

    @property
    def is_new(self) -> bool:
        """Whether the node does not know the session."""
        return self.epoch == INITIAL_EPOCH

    def changes(
        self, requested: dict[TopicPartition, Uuid]
    ) -> tuple[list[tuple[Uuid, int]], list[tuple[Uuid, int]]]:
        """Return the added and the forgotten partitions, and store the requested ones."""
        before, self.partitions = self.partitions, requested
        return _missing(requested, before), _missing(before, requested)

    def answered(self) -> None:
        """Advance the epoch; after the highest one follows 1."""
        self.epoch = 1 if self.epoch == _HIGHEST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Begin another session with the next request."""
        self.epoch = INITIAL_EPOCH
        self.partitions = {}


def _missing(
    these: dict[TopicPartition, Uuid], others: dict[TopicPartition, Uuid]
) -> list[tuple[Uuid, int]]:
    return [
        (topic_id, one.partition) for one, topic_id in these.items() if others.get(one) != topic_id
    ]


def by_topic(entries: Iterable[tuple[Uuid, int]]) -> dict[Uuid, list[int]]:
    """Return partitions by topic id, in the order of their first entries."""
    found: dict[Uuid, list[int]] = {}
    for topic_id, partition in entries:
        found.setdefault(topic_id, []).append(partition)
    return found
