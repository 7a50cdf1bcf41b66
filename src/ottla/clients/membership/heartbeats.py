"""The heartbeats of members of consumer and share groups, whose responses bring the assignment.

Kafka: org.apache.kafka.clients.consumer.internals.{AbstractMembershipManager,
AbstractHeartbeatRequestManager}.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.pending_errors import PendingErrors
from ottla.errors import ErrorCode, KafkaError
from ottla.types import Uuid

if TYPE_CHECKING:
    from ottla.clients.client import Client
    from ottla.clients.coordinator import CoordinatorLookup
    from ottla.clients.settings import ValidatedSettings
    from ottla.purgatory.pending import Pending

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class HeartbeatMember(ABC):
    """The heartbeats of one member; `epoch` is 0 outside the group."""

    def __init__(
        self, settings: ValidatedSettings, client: Client, coordinator: CoordinatorLookup
    ) -> None:
        self.client = client
        self.coordinator = coordinator
        self.errors = PendingErrors()
        self.epoch = JOIN_EPOCH
        self.member_id = str(Uuid.drawn(lambda: client.rng.getrandbits(128).to_bytes(16, "big")))
        self._settings = settings
        self._target: dict[Uuid, list[int]] = {}
        self._in_flight: Pending[Any] | None = None
        self._interval_ms = 0
        self._last_sent_ms = 0
        self._last_user_poll_ms = 0
        self._retry_at_ms = 0
        self._failures = 0

    # ------------------------------------------------------------ hooks for each kind of group

    @property
    @abstractmethod
    def _is_active(self) -> bool:
        """Whether the member sends heartbeats, or joins with the next one."""

    @abstractmethod
    def _has_news(self, now_ms: int) -> bool:
        """Whether a heartbeat is due: to join, for a change, or by the interval."""

    @abstractmethod
    def _request(self) -> Any:
        """Return the next heartbeat."""

    @abstractmethod
    def _confirmed(self) -> None:
        """Note that the coordinator has received the last heartbeat."""

    @abstractmethod
    def _take_assignment(self, target: dict[Uuid, list[int]]) -> None:
        """Take a new assignment."""

    @abstractmethod
    def _leave_after_timeout(self) -> None:
        """Leave: the user has not polled in time."""

    @abstractmethod
    def _send_all_again(self) -> None:
        """Send all fields with the next heartbeat."""

    @abstractmethod
    def _end(self, *, may_rejoin: bool) -> None:
        """End the membership."""

    # ------------------------------------------------------------ time

    @property
    def is_member(self) -> bool:
        """Whether the coordinator has given the member an epoch."""
        return self.epoch > JOIN_EPOCH

    @property
    def _max_poll_ms(self) -> int:
        limit_ms: int = self._settings.max_poll_interval_ms
        return limit_ms

    def poll(self, now_ms: int) -> None:
        """Send a heartbeat that is due; leave after max.poll.interval.ms."""
        if not self._is_active:
            return
        self.coordinator.poll(now_ms)
        if self.coordinator.fatal is not None:
            self.errors.add(self.coordinator.fatal)
            self.coordinator.fatal = None
        if self.is_member and now_ms > self._last_user_poll_ms + self._max_poll_ms:
            self.client.trace.add("group", "the member leaves: max.poll.interval.ms has passed")
            self._leave_after_timeout()
        elif self._is_due(now_ms):
            self._send(now_ms)

    def _is_due(self, now_ms: int) -> bool:
        if self._in_flight is not None or not self.coordinator.known or self._retry_at_ms > now_ms:
            return False
        return self._has_news(now_ms)

    def _interval_has_passed(self, now_ms: int) -> bool:
        return now_ms >= self._last_sent_ms + self._interval_ms

    def next_deadline_ms(self) -> int | None:
        """Return when a heartbeat, a lookup or max.poll.interval.ms is due."""
        if not self._is_active:
            return None
        found = self.coordinator.next_deadline_ms()
        deadlines = [] if found is None else [found]
        if self.is_member:
            deadlines.append(self._last_user_poll_ms + self._max_poll_ms + 1)
        if self._in_flight is None and self.coordinator.known:
            if self.is_member:
                deadlines.append(max(self._last_sent_ms + self._interval_ms, self._retry_at_ms))
            elif self._retry_at_ms > self.client.now_ms:
                deadlines.append(self._retry_at_ms)
        return min(deadlines, default=None)

    # ------------------------------------------------------------ heartbeat

    def _send(self, now_ms: int) -> None:
        self._last_sent_ms = now_ms
        sent = self._in_flight = self.coordinator.send(
            self._request(), timeout_ms=self._settings.request_timeout_ms
        )
        sent.on_done(self._answered)

    def _answered(self, done: Pending[Any]) -> None:
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
        self._confirmed()
        response = done.value
        self.epoch = response.member_epoch
        self._interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            parts = response.assignment.topic_partitions
            self._take_assignment({part.topic_id: list(part.partitions) for part in parts})

    def _trace_assignment(self) -> None:
        names = self.client.metadata.topic_names
        shown = ", ".join(f"{names.get(key, key)} {one}" for key, one in self._target.items())
        self.client.trace.add("group", "epoch %d assigns %s", self.epoch, shown or "no partitions")

    def _failed(self, error: Exception) -> None:
        """Rejoin, retry or give up, depending on the error; the next heartbeat is complete."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self.client.trace.add("group", "heartbeat of epoch %d: %s", self.epoch, error)
        self.coordinator.note_error(code)
        self._send_all_again()
        if code in FENCED:
            self._end(may_rejoin=True)
        elif isinstance(error, KafkaError) and error.is_retriable:
            self._failures += 1
            self._retry_at_ms = self.client.now_ms + self.client.backoff.after(self._failures)
        else:
            self._end(may_rejoin=False)
            self.errors.add(error if isinstance(error, KafkaError) else KafkaError(code))
