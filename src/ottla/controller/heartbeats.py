"""Which brokers were heard of lately: the controller's soft state, gone with its leadership.

Kafka: org.apache.kafka.controller.{BrokerHeartbeatManager, BrokerHeartbeatTracker}.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class BrokerState(Enum):
    """What the controller takes a broker for."""

    FENCED = 0
    UNFENCED = 1
    CONTROLLED_SHUTDOWN = 2
    SHUTDOWN_NOW = 3

    @property
    def is_fenced(self) -> bool:
        """Whether clients are kept away from it."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


class Wishes(NamedTuple):
    """What a heartbeat asks for."""

    metadata_offset: int
    want_fence: bool
    want_shut_down: bool


class _Contact:
    __slots__ = ("controlled_shutdown_offset", "heard_ms", "metadata_offset", "session_ms")

    def __init__(self, now_ms: int, *, heard: bool) -> None:
        self.session_ms = now_ms
        self.heard_ms = now_ms if heard else None
        self.metadata_offset = -1
        self.controlled_shutdown_offset = -1


class Heartbeats:
    """One entry a registered broker; times in ms."""

    __slots__ = ("_contacts", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[int, _Contact] = {}

    def begin(self, broker_id: int, now_ms: int) -> None:
        """Give a broker that was registered before us a whole session to be heard of."""
        self._contacts[broker_id] = _Contact(now_ms, heard=False)

    def registered(self, broker_id: int, now_ms: int) -> None:
        """Start a session: registration counts as contact."""
        self._contacts[broker_id] = _Contact(now_ms, heard=True)

    def remove(self, broker_id: int) -> None:
        """Forget a broker."""
        self._contacts.pop(broker_id, None)

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Whether we have heard of the broker ourselves, and not too long ago."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.heard_ms is None:
            return False
        return now_ms - contact.heard_ms < self.session_timeout_ms

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """Take note of a heartbeat."""
        contact = self._contacts.setdefault(broker_id, _Contact(now_ms, heard=True))
        contact.session_ms = contact.heard_ms = now_ms
        contact.metadata_offset = metadata_offset

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """Remember the offset that all others must have seen before the broker may go."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.controlled_shutdown_offset < 0:
            contact.controlled_shutdown_offset = offset

    def stale(self, active: list[int], now_ms: int) -> list[int]:
        """Return those of the unfenced brokers whose session is over."""
        limit = now_ms - self.session_timeout_ms
        return [
            broker_id
            for broker_id in active
            if (contact := self._contacts.get(broker_id)) is None or contact.session_ms <= limit
        ]

    def next_expiry_ms(self, active: list[int]) -> int | None:
        """Return when the first session of an unfenced broker ends."""
        ends = [
            self._contacts[broker_id].session_ms + self.session_timeout_ms
            for broker_id in active
            if broker_id in self._contacts
        ]
        return min(ends, default=None)

    def next_state(
        self,
        broker_id: int,
        current: BrokerState,
        wishes: Wishes,
        *,
        registration_offset: int,
        leads_partitions: bool,
        active: list[int],
    ) -> BrokerState:
        """Return what the broker becomes by this heartbeat."""
        if current is BrokerState.FENCED:
            return _leave_fence(wishes, registration_offset)
        if current is BrokerState.UNFENCED and not wishes.want_shut_down:
            return BrokerState.FENCED if wishes.want_fence else BrokerState.UNFENCED
        if leads_partitions or not self._may_go(broker_id, current, active):
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.SHUTDOWN_NOW

    def _may_go(self, broker_id: int, current: BrokerState, active: list[int]) -> bool:
        """Whether all others have seen that a broker without leaderships shuts down."""
        if current is BrokerState.UNFENCED:
            return True
        seen = min((self._contacts[other].metadata_offset for other in active), default=1 << 62)
        return seen >= self._contacts[broker_id].controlled_shutdown_offset


def _leave_fence(wishes: Wishes, registration_offset: int) -> BrokerState:
    if wishes.want_shut_down:
        return BrokerState.SHUTDOWN_NOW
    if not wishes.want_fence and wishes.metadata_offset >= registration_offset:
        return BrokerState.UNFENCED
    return BrokerState.FENCED
