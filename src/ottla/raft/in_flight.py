"""Requests that wait for a response: one for each node, and a pause after a failure.

Kafka: org.apache.kafka.raft.RequestManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.raft.requests import Request
    from ottla.raft.timeouts import QuorumTimeouts


class Sent(NamedTuple):
    """A request in flight."""

    node_id: int
    request: Request
    correlation_id: int
    expires_ms: int


class RequestsInFlight:
    """The request in flight to each node. The response to an expired one is ignored."""

    __slots__ = ("_last_id", "_paused_until_ms", "_sent", "_timeouts")

    def __init__(self, timeouts: QuorumTimeouts) -> None:
        self._timeouts = timeouts
        self._sent: dict[int, Sent] = {}
        self._paused_until_ms: dict[int, int] = {}
        self._last_id = 0

    def ready_ms(self, node_id: int, now_ms: int) -> int:
        """Return when the next request may be sent to a node: now_ms or later."""
        sent = self._sent.get(node_id)
        busy_ms = now_ms if sent is None else sent.expires_ms
        return max(now_ms, busy_ms, self._paused_until_ms.get(node_id, 0))

    def has_any(self, now_ms: int) -> bool:
        """Whether a response is awaited from any node."""
        return any(sent.expires_ms > now_ms for sent in self._sent.values())

    def add(self, node_id: int, request: Request, now_ms: int) -> int:
        """Record a request; return its correlation id."""
        self._last_id += 1
        expires_ms = now_ms + self._timeouts.request_ms
        self._sent[node_id] = Sent(node_id, request, self._last_id, expires_ms)
        return self._last_id

    def completed(self, correlation_id: int) -> Sent | None:
        """Return the request of a response, None when it is no longer awaited."""
        for sent in self._sent.values():
            if sent.correlation_id == correlation_id:
                del self._sent[sent.node_id]
                return sent
        return None

    def pause(self, node_id: int, now_ms: int) -> None:
        """Send nothing to a node for retry_backoff_ms: its last answer was an error."""
        self._paused_until_ms[node_id] = now_ms + self._timeouts.retry_backoff_ms

    def forget(self) -> None:
        """Forget everything: the role has changed, and responses no longer matter."""
        self._sent.clear()
        self._paused_until_ms.clear()
