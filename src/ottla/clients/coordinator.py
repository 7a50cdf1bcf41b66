"""A group's coordinator: lookup and requests.

Kafka: org.apache.kafka.clients.consumer.internals.AbstractCoordinator (its lookup),
CoordinatorRequestManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.client import ANY_NODE
from ottla.clients.outages import GRACE_MS
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.purgatory.pending import Pending
from ottla.types import Node

if TYPE_CHECKING:
    from ottla.clients.client import Client
    from ottla.protocol.schema import Request

PURPOSE = "group"
GROUP, TRANSACTION, SHARE = 0, 1, 2
_KEYS = {GROUP: "group", TRANSACTION: "transactional id"}
CHECK_OFFSETS_TOPIC = (
    "; the brokers may be unable to create __consumer_offsets"
    " (is offsets.topic.replication.factor above the number of brokers?)"
)
COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class CoordinatorLookup:
    """The coordinator of one key, looked up again after it is lost."""

    def __init__(self, client: Client, key: str, key_type: int = GROUP) -> None:
        self.client = client
        self.key = key
        self.key_type = key_type
        self.node: Node | None = None
        self.fatal: KafkaError | None = None
        self._lookup_pending = False
        self._failures = 0
        self._retry_at_ms = 0

    @property
    def _subject(self) -> str:
        return f"the coordinator of {_KEYS.get(self.key_type, 'key')} {self.key!r}"

    @property
    def node_id(self) -> int:
        """The coordinator's node id, -1 while it is unknown."""
        return -1 if self.node is None else self.node.node_id

    @property
    def known(self) -> bool:
        """Whether the coordinator is known."""
        return self.node is not None

    def poll(self, now_ms: int) -> None:
        """Send FindCoordinator if the coordinator is unknown and the backoff is over."""
        if (
            self.known
            or self._lookup_pending
            or self._retry_at_ms > now_ms
            or self.fatal is not None
        ):
            return
        self._lookup_pending = True
        request = FindCoordinatorRequest(key_type=self.key_type, coordinator_keys=[self.key])
        self.client.send(ANY_NODE, request).on_done(self._answered)

    def next_deadline_ms(self) -> int | None:
        """Return when the next lookup is due."""
        waiting = not (self.known or self._lookup_pending or self.fatal is not None)
        return self._retry_at_ms if waiting else None

    def _answered(self, done: Pending[Any]) -> None:
        self._lookup_pending = False
        error = done.error
        if error is None:
            found = done.value.coordinators[0] if done.value.coordinators else done.value
            if not found.error_code:
                self.node = Node(found.node_id, found.host, found.port)
                self._failures = 0
                self.client.trace.add("group", "%s is node %d", self._subject, found.node_id)
                self.client.outages.resolve(self._subject, self.client.now_ms)
                return
            error = KafkaError(found.error_code, found.error_message or None)
        self._failures += 1
        self._retry_at_ms = self.client.now_ms + self.client.backoff.after(self._failures)
        if isinstance(error, KafkaError) and not error.is_retriable:
            self.fatal = error
        elif isinstance(error, KafkaError) and done.error is None:
            cause = f"{error.code.name}: {error.message.rstrip('.')}"
            if error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE and self.key_type == GROUP:
                cause += CHECK_OFFSETS_TOPIC
            self.client.outages.report(self._subject, cause, self.client.now_ms, grace_ms=GRACE_MS)

    def lost(self, node_id: int | None = None) -> None:
        """Mark the coordinator unknown; with a node id, only if it is the current one."""
        if node_id is None or node_id == self.node_id:
            self.node = None

    def send(
        self,
        request: Request,
        *,
        purpose: str = PURPOSE,
        timeout_ms: int | None = None,
        max_version: int | None = None,
    ) -> Pending[Any]:
        """Send to the coordinator; fails with COORDINATOR_NOT_AVAILABLE while it is unknown.

        A lost connection or a timed-out request makes the coordinator unknown.
        """
        node = self.node
        if node is None:
            self.client.transport.wake()
            return Pending.failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        # The metadata may not list a new broker yet: pass its address.
        sent = self.client.send(
            node.node_id,
            request,
            purpose=purpose,
            timeout_ms=timeout_ms,
            max_version=max_version,
            node=node,
        )

        def check(done: Pending[Any]) -> None:
            if isinstance(done.error, KafkaError) and done.error.code in COORDINATOR_MOVED:
                self.lost(node.node_id)

        sent.on_done(check)
        return sent

    def note_error(self, code: int) -> None:
        """Handle an error code in a response of the coordinator."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.lost()
