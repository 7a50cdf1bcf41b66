"""The coordinator of a group or transactional id: its lookup, and calls with retries.

Kafka: org.apache.kafka.clients.consumer.internals.{AbstractCoordinator (its lookup),
CoordinatorRequestManager}, .admin.internals.CoordinatorStrategy.
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
    from collections.abc import Callable

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
    def subject(self) -> str:
        """Name what is looked up, for logs and errors."""
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
                self.client.trace.add("group", "%s is node %d", self.subject, found.node_id)
                self.client.outages.resolve(self.subject, self.client.now_ms)
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
            self.client.outages.report(self.subject, cause, self.client.now_ms, grace_ms=GRACE_MS)

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


class CoordinatorCall:
    """A request to a coordinator, repeated until it succeeds, cannot succeed, or is too late.

    `result` completes with the response. It fails with the first error that `is_retried` refuses,
    with the client's pending error, and at the deadline with TimeoutError, whose `__cause__` is the
    last failure.

    Parameters:
        request: the request, or a function that makes and sends it, given its timeout in ms.
        error_of: returns the error code of a response, 0 for success.
        deadline_ms: the monotonic time of the last attempt; None for none.
        is_retried: whether an error may pass.
        timeout_text: the message of TimeoutError.

    A runtime runs it by `Client.start`:

        call = CoordinatorCall(lookup, request, lambda response: response.error_code)
        response = await runtime.run(call)
    """

    def __init__(
        self,
        coordinator: CoordinatorLookup,
        request: Request | Callable[[int], Pending[Any]],
        error_of: Callable[[Any], int],
        *,
        deadline_ms: float | None = None,
        is_retried: Callable[[KafkaError], bool] = lambda error: error.is_retriable,
        purpose: str = "",
        max_version: int | None = None,
        timeout_text: str = "",
    ) -> None:
        self.result: Pending[Any] = Pending()
        self.coordinator = coordinator
        self.is_sent_late = False
        """Whether the request is sent once also where no time is left to wait for the response."""
        self._request, self._error_of = request, error_of
        self._deadline_ms, self._is_retried = deadline_ms, is_retried
        self._purpose, self._max_version = purpose, max_version
        self._timeout_text = timeout_text
        self._is_in_flight = False
        self._failures = 0
        self._last: KafkaError | None = None
        self._retry_at_ms = 0
        coordinator.fatal = None  # of an earlier call: the user may have got the right since

    def poll(self, now_ms: int) -> None:
        """Look the coordinator up, or send to it; end what cannot succeed."""
        if self._is_in_flight or self.result.done:
            return
        coordinator, client = self.coordinator, self.coordinator.client
        error = client.pending_error()
        if error is None and not coordinator.known:
            coordinator.poll(now_ms)
            error, coordinator.fatal = coordinator.fatal, None
        if error is not None:
            self.result.fail(error)
        elif self._deadline_ms is not None and now_ms >= self._deadline_ms:
            if coordinator.known and self.is_sent_late:
                # with the usual timeout: its end closes the connection
                self._send(client.settings.request_timeout_ms)
            text = self._timeout_text or "the call timed out (default.api.timeout.ms)"
            if not coordinator.known and not self._timeout_text:
                text = f"{coordinator.subject} was not found in time"
            if not self.result.done:
                self.result.fail(client.timeout_error(text, self._last))
        elif coordinator.known and self._retry_at_ms <= now_ms:
            timeout_ms: int = client.settings.request_timeout_ms
            if self._deadline_ms is not None:
                timeout_ms = max(min(timeout_ms, int(self._deadline_ms - now_ms)), 1)
            self._send(timeout_ms)

    def _send(self, timeout_ms: int) -> None:
        self._is_in_flight, self.is_sent_late = True, False
        if callable(self._request):
            sent = self._request(timeout_ms)
        else:
            sent = self.coordinator.send(
                self._request,
                purpose=self._purpose,
                timeout_ms=timeout_ms,
                max_version=self._max_version,
            )
        sent.on_done(self._answered)

    def next_deadline_ms(self) -> int | None:
        """Return when the next attempt or the deadline is due."""
        if self._is_in_flight or self.result.done:
            return None
        due_ms = [] if self._deadline_ms is None else [int(self._deadline_ms)]
        if not self.coordinator.known:
            lookup_ms = self.coordinator.next_deadline_ms()
            due_ms += [] if lookup_ms is None else [lookup_ms]
        else:
            due_ms.append(self._retry_at_ms)
        return min(due_ms, default=None)

    def _answered(self, done: Pending[Any]) -> None:
        self._is_in_flight = False
        error = done.error
        if self.result.done:  # it was sent late
            return
        if error is None:
            code = self._error_of(done.value)
            if not code:
                self.result.complete(done.value)
                return
            error = KafkaError(code)
        if not isinstance(error, KafkaError):
            self.result.fail(error)
            return
        self.coordinator.note_error(error.code)
        if not self._is_retried(error):
            self.result.fail(error)
            return
        self._last = error
        self._failures += 1
        client = self.coordinator.client
        self._retry_at_ms = client.now_ms + client.backoff.after(self._failures)
