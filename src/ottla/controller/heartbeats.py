"""The sessions of brokers: soft state of the active controller.

Kafka: org.apache.kafka.controller.{BrokerHeartbeatManager, BrokerHeartbeatTracker}.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class BrokerHeartbeatState(Enum):
    """State of a broker in the controller."""

    FENCED = 0
    UNFENCED = 1
    CONTROLLED_SHUTDOWN = 2
    SHUTDOWN_NOW = 3

    @property
    def is_fenced(self) -> bool:
        """Whether it may not serve clients."""
        return self in (BrokerHeartbeatState.FENCED, BrokerHeartbeatState.SHUTDOWN_NOW)


class HeartbeatOptions(NamedTuple):
    """What a heartbeat requests."""

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
    """One entry for each registered broker; times in ms."""

    __slots__ = ("_contacts", "session_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._contacts: dict[int, _Contact] = {}

    def begin(self, broker_id: int, now_ms: int, *, heard: bool) -> None:
        """Start the session of a broker that registered with an earlier controller.

        heard: until its session expires no other incarnation may register.
        """
        self._contacts[broker_id] = _Contact(now_ms, heard=heard)

    def registered(self, broker_id: int, now_ms: int) -> None:
        """Forget the sessions of earlier incarnations; the first heartbeat starts the next one."""
        self._contacts[broker_id] = _Contact(now_ms, heard=False)

    def end_session(self, broker_id: int) -> None:
        """End the session, so that the next incarnation may register at once: this one stops.

        In Kafka it waits until the session expires.
        """
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.heard_ms = None

    def remove(self, broker_id: int) -> None:
        """Remove a broker."""
        self._contacts.pop(broker_id, None)

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker contacted this controller within the session timeout."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.heard_ms is None:
            return False
        return now_ms - contact.heard_ms < self.session_timeout_ms

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """Renew the session by a heartbeat."""
        contact = self._contacts.setdefault(broker_id, _Contact(now_ms, heard=True))
        contact.session_ms = contact.heard_ms = now_ms
        contact.metadata_offset = metadata_offset

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """Set the offset that all others must have replayed before the broker may stop."""
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.controlled_shutdown_offset < 0:
            contact.controlled_shutdown_offset = offset

    def stale(self, active: list[int], now_ms: int) -> list[int]:
        """Return the active brokers whose session has expired, the oldest session first."""
        limit = now_ms - self.session_timeout_ms
        expired = [
            (contact.session_ms if contact else 0, broker_id)
            for broker_id in active
            if (contact := self._contacts.get(broker_id)) is None or contact.session_ms <= limit
        ]
        return [broker_id for _, broker_id in sorted(expired)]

    def next_expiry_ms(self, active: list[int]) -> int | None:
        """Return when the first session of an active broker expires."""
        ends = [
            self._contacts[broker_id].session_ms + self.session_timeout_ms
            for broker_id in active
            if broker_id in self._contacts
        ]
        return min(ends, default=None)

    def next_state(
        self,
        broker_id: int,
        current: BrokerHeartbeatState,
        options: HeartbeatOptions,
        *,
        registration_offset: int,
        leads_partitions: bool,
        active: list[int],
    ) -> BrokerHeartbeatState:
        """Return the state of the broker after this heartbeat."""
        if current is BrokerHeartbeatState.FENCED:
            return _state_of_fenced(options, registration_offset)
        if current is BrokerHeartbeatState.UNFENCED and options.want_fence:
            is_leaving = options.want_shut_down
            return BrokerHeartbeatState.SHUTDOWN_NOW if is_leaving else BrokerHeartbeatState.FENCED
        if current is BrokerHeartbeatState.UNFENCED and not options.want_shut_down:
            return BrokerHeartbeatState.UNFENCED
        if leads_partitions or not self._may_stop(broker_id, current, active):
            return BrokerHeartbeatState.CONTROLLED_SHUTDOWN
        return BrokerHeartbeatState.SHUTDOWN_NOW

    def _may_stop(self, broker_id: int, current: BrokerHeartbeatState, active: list[int]) -> bool:
        """Whether all others have replayed the shutdown of a broker without leaderships."""
        if current is BrokerHeartbeatState.UNFENCED:
            return True
        seen = min((self._contacts[other].metadata_offset for other in active), default=1 << 62)
        return seen >= self._contacts[broker_id].controlled_shutdown_offset


def _state_of_fenced(options: HeartbeatOptions, registration_offset: int) -> BrokerHeartbeatState:
    if options.want_shut_down:
        return BrokerHeartbeatState.SHUTDOWN_NOW
    if not options.want_fence and options.metadata_offset >= registration_offset:
        return BrokerHeartbeatState.UNFENCED
    return BrokerHeartbeatState.FENCED
