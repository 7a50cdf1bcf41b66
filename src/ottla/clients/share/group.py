"""A member of a share group: heartbeats bring the assignment, which holds at once.

Kafka: org.apache.kafka.clients.consumer.internals.{ShareMembershipManager,
ShareHeartbeatRequestManager, ShareFetchMetricsManager}. KIP-932.

Partitions are shared with other members: nothing is revoked, and no step waits for the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.membership.heartbeats import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatMember
from ottla.clients.metric_windows import REBALANCES, counted, metered, sized
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.client import Client
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.settings import ValidatedSettings
    from ottla.purgatory.pending import Pending
    from ottla.types import Uuid

GROUP = "consumer-share-fetch-manager-metrics"
COORDINATOR_GROUP = "consumer-share-coordinator-metrics"


class ShareMembership(HeartbeatMember):
    """The state machine of one member; `epoch` is 0 outside the group."""

    def __init__(
        self, settings: ValidatedSettings, client: Client, coordinator: CoordinatorLookup
    ) -> None:
        super().__init__(settings, client, coordinator)
        self.topics: tuple[str, ...] = ()
        self._is_joined = False
        self._known_topics: tuple[str, ...] | None = None
        self._sent_topics: tuple[str, ...] = ()
        self._rebalances = client.metrics.window(COORDINATOR_GROUP, REBALANCES)

    # ------------------------------------------------------------ calls of the core

    def partitions(self) -> dict[TopicPartition, Uuid]:
        """Return the assigned partitions of topics whose names are known, with the topics' ids."""
        names = self.client.metadata.topic_names
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
            self.client.transport.wake()

    def leave(self) -> Pending[Any] | None:
        """Send the last heartbeat; None where the member has not joined."""
        self._is_joined = False
        if not self.is_member:
            return None
        sent = self.coordinator.send(self._request_at(LEAVE_EPOCH))
        self._end(may_rejoin=False)
        return sent

    # ------------------------------------------------------------ heartbeats

    @property
    def _is_active(self) -> bool:
        return self._is_joined

    def _has_news(self, now_ms: int) -> bool:
        return self._known_topics != self.topics or self._interval_has_passed(now_ms)

    def _request(self) -> ShareGroupHeartbeatRequest:
        request = self._request_at(self.epoch)
        self._sent_topics = self.topics
        if self._known_topics != self.topics:
            request.subscribed_topic_names = list(self.topics)
        if self._known_topics is None:
            request.rack_id = self._settings.client_rack or None
        return request

    def _request_at(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.coordinator.key, member_id=self.member_id, member_epoch=epoch
        )

    def _confirmed(self) -> None:
        self._known_topics = self._sent_topics

    def _take_assignment(self, target: dict[Uuid, list[int]]) -> None:
        self._target = target
        self._rebalances.record(1, self.client.now_ms)
        self._trace_assignment()
        if any(topic_id not in self.client.metadata.topic_names for topic_id in target):
            self.client.metadata.mark_stale()
        self.client.transport.wake()

    def _leave_after_timeout(self) -> None:
        self.leave()

    def _send_all_again(self) -> None:
        self._known_topics = None

    def _end(self, *, may_rejoin: bool) -> None:
        """End the membership."""
        self.epoch = JOIN_EPOCH
        self._known_topics = None
        self._target = {}
        self._in_flight = None
        self._is_joined &= may_rejoin


class ShareFetchMetrics:
    """Updated once per response and once per poll."""

    def __init__(self, client: Client) -> None:
        self._client = client
        window = client.metrics.window
        self._size = window(GROUP, sized("fetch-size"))
        self._bytes = window(GROUP, metered("bytes-consumed"))
        self._records = window(GROUP, metered("records-consumed"))
        self._per_request = window(GROUP, sized("records-per-request"))
        self._fetches = window(GROUP, {**sized("fetch-latency"), **counted("fetch")})
        self._throttled = window(GROUP, sized("fetch-throttle-time"))
        self._sent = window(GROUP, metered("acknowledgements-send"))
        self._failed = window(GROUP, metered("acknowledgements-error"))

    def fetched(self, size: int, latency_ms: int, throttle_time_ms: int) -> None:
        """Record a response."""
        now_ms = self._client.now_ms
        self._fetches.record(latency_ms, now_ms)
        self._throttled.record(throttle_time_ms, now_ms)
        if size:
            self._size.record(size, now_ms)
            self._bytes.record(size, now_ms)

    def taken(self, count: int) -> None:
        """Record the records returned to the user."""
        self._records.record(count, self._client.now_ms)
        self._per_request.record(count, self._client.now_ms)

    def acknowledged(self, count: int, *, is_error: bool) -> None:
        """Record acknowledgements that were answered."""
        self._sent.record(count, self._client.now_ms)
        if is_error:
            self._failed.record(count, self._client.now_ms)
