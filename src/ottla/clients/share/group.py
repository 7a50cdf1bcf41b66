"""A member of a share group: heartbeats bring the assignment, which holds at once.

Kafka: org.apache.kafka.clients.consumer.internals.{ShareMembershipManager,
ShareHeartbeatRequestManager}. KIP-932.

Partitions are shared with other members: nothing is revoked, and no step waits for the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.pending_errors import PendingErrors
from ottla.clients.share.metrics import COORDINATOR_GROUP, REBALANCES
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.clients.client import Client
    from ottla.clients.consumer.coordinator import Coordinator
    from ottla.clients.settings import Settings
    from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatResponse
    from ottla.purgatory.pending import Pending

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class ShareGroup:
    """The state machine of one member; `epoch` is 0 while it is none."""

    def __init__(self, settings: Settings, client: Client, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.errors = PendingErrors()
        self.epoch = JOIN_EPOCH
        self.member_id = str(Uuid.drawn(lambda: client.rng.getrandbits(128).to_bytes(16, "big")))
        self.topics: tuple[str, ...] = ()
        self._settings = settings
        self._client = client
        self._is_joined = False
        self._known_topics: tuple[str, ...] | None = None
        self._target: dict[Uuid, list[int]] = {}
        self._in_flight: Pending[Any] | None = None
        self._interval_ms = 0
        self._last_sent_ms = 0
        self._last_user_poll_ms = 0
        self._retry_at_ms = 0
        self._failures = 0
        self._rebalances = client.metrics.window(COORDINATOR_GROUP, REBALANCES)

    # ------------------------------------------------------------ calls of the core

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has given the member an epoch."""
        return self.epoch > JOIN_EPOCH

    def partitions(self) -> dict[TopicPartition, Uuid]:
        """Return the assigned partitions of topics whose names are known, with the topics' ids."""
        names = self._client.metadata.topic_names
        return {
            TopicPartition(names[topic_id], index): topic_id
            for topic_id, indexes in self._target.items()
            if topic_id in names
            for index in indexes
        }

    def user_poll(self, now_ms: int) -> None:
        """Record a poll of the user; the first one joins."""
        self._last_user_poll_ms = now_ms
        if not self._is_joined:
            self._is_joined = True
            self._client.transport.wake()

    def leave(self) -> Pending[Any] | None:
        """Send the last heartbeat; None where the member has not joined."""
        self._is_joined = False
        if not self.is_member:
            return None
        sent = self.coordinator.send(self._request(LEAVE_EPOCH))
        self._forget()
        return sent

    # ------------------------------------------------------------ time

    def poll(self, now_ms: int) -> None:
        """Send a heartbeat that is due; leave after max.poll.interval.ms."""
        if not self._is_joined:
            return
        self.coordinator.poll(now_ms)
        if self.coordinator.fatal is not None:
            self.errors.add(self.coordinator.fatal)
            self.coordinator.fatal = None
        if self.is_member and now_ms > self._last_user_poll_ms + self._max_poll_ms:
            self._client.trace.add("group", "the member leaves: max.poll.interval.ms has passed")
            self.leave()
        elif self._is_due(now_ms):
            self._send(now_ms)

    @property
    def _max_poll_ms(self) -> int:
        limit_ms: int = self._settings.max_poll_interval_ms
        return limit_ms

    def _is_due(self, now_ms: int) -> bool:
        if self._in_flight is not None or not self.coordinator.known or self._retry_at_ms > now_ms:
            return False
        has_news = self._known_topics != self.topics
        return has_news or now_ms >= self._last_sent_ms + self._interval_ms

    def next_deadline_ms(self) -> int | None:
        """Return when a heartbeat, a lookup or max.poll.interval.ms is due."""
        if not self._is_joined:
            return None
        found = self.coordinator.next_deadline_ms()
        deadlines = [] if found is None else [found]
        if self.is_member:
            deadlines.append(self._last_user_poll_ms + self._max_poll_ms + 1)
        if self._in_flight is None and self.coordinator.known:
            deadlines.append(max(self._last_sent_ms + self._interval_ms, self._retry_at_ms))
        return min(deadlines, default=None)

    # ------------------------------------------------------------ heartbeat

    def _request(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.coordinator.key, member_id=self.member_id, member_epoch=epoch
        )

    def _send(self, now_ms: int) -> None:
        request = self._request(self.epoch)
        topics = self.topics
        if self._known_topics != topics:
            request.subscribed_topic_names = list(topics)
        if self._known_topics is None:
            request.rack_id = self._settings.client_rack or None
        self._last_sent_ms = now_ms
        sent = self._in_flight = self.coordinator.send(
            request, timeout_ms=self._settings.request_timeout_ms
        )
        sent.on_done(lambda done: self._answered(done, topics))

    def _answered(self, done: Pending[Any], topics: tuple[str, ...]) -> None:
        if done is not self._in_flight:
            return  # of a membership that has ended
        self._in_flight = None
        error: Exception | None = done.error
        if error is None and done.value.error_code:
            error = KafkaError(done.value.error_code, done.value.error_message)
        if error is not None:
            self._failed(error)
            return
        self._failures = 0
        self._known_topics = topics
        self._accept(done.value)

    def _accept(self, response: ShareGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        self._interval_ms = response.heartbeat_interval_ms
        if response.assignment is None:
            return
        self._target = {
            one.topic_id: list(one.partitions) for one in response.assignment.topic_partitions
        }
        self._rebalances.record(1, self._client.now_ms)
        names = self._client.metadata.topic_names
        shown = ", ".join(f"{names.get(key, key)} {one}" for key, one in self._target.items())
        self._client.trace.add("group", "epoch %d assigns %s", self.epoch, shown or "no partitions")
        if any(topic_id not in names for topic_id in self._target):
            self._client.metadata.mark_stale()
        self._client.transport.wake()

    def _failed(self, error: Exception) -> None:
        """Rejoin, retry or give up, depending on the error; the next heartbeat is complete."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self._client.trace.add("group", "heartbeat of epoch %d: %s", self.epoch, error)
        self.coordinator.note_error(code)
        self._known_topics = None
        if code in FENCED:
            self._forget()
        elif isinstance(error, KafkaError) and error.is_retriable:
            self._failures += 1
            self._retry_at_ms = self._client.now_ms + self._client.backoff.after(self._failures)
        else:
            self._forget()
            self._is_joined = False
            self.errors.add(error if isinstance(error, KafkaError) else KafkaError(code))

    def _forget(self) -> None:
        """End the membership."""
        self.epoch = JOIN_EPOCH
        self._known_topics = None
        self._target = {}
        self._in_flight = None
