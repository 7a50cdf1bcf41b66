"""Sends a broker's requests to the active controller, on its own node or another, with retries.

A request of the broker itself is sent directly; a client's request is sent in an Envelope with the
client's principal, and decided by the same handlers there.

Kafka: NodeToControllerChannelManagerImpl, ForwardingManagerImpl (KIP-590).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_channel import NodeChannel, Outgoing
from ottla.network.request_channel import decode_response
from ottla.protocol import codec
from ottla.protocol.apis.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.frames import encode_request
from ottla.protocol.records.principal import DefaultPrincipalData
from ottla.purgatory.pending import Pending
from ottla.raft.voter_set import address_on

if TYPE_CHECKING:
    import asyncio

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.network.node_channel import Address, PeerSecurity
    from ottla.protocol.schema import Request
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.server.controller.channel import Requester
    from ottla.server.controller.controller_node import ControllerNode

RETRY_BACKOFF_MS: Final = 50
FORWARDING_TIMEOUT_MS: Final = 60_000
_PRINCIPAL_VERSION: Final = b"\0\0"
_UNKNOWN_ADDRESS: Final = bytes(4)
_RETRIED: Final = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)


@dataclass(slots=True)
class _Waiting:
    """A request without a response."""

    request: Request
    requester: Requester | None
    deadline_ms: int
    answer: Pending[Any] = field(default_factory=Pending)


class ActiveController:
    """Implements `ControllerChannel`; one for each purpose, with a connection of its own."""

    def __init__(
        self,
        purpose: str,
        controller: ControllerNode,
        config: BrokerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: TimingWheel,
        retry_timeout_ms: int = FORWARDING_TIMEOUT_MS,
        security: PeerSecurity | None = None,
    ) -> None:
        """Take this node's member of the quorum, which knows the leader.

        A request without a response for retry_timeout_ms fails with REQUEST_TIMED_OUT.
        """
        self._controller = controller
        self._node_id: int = config.node_id
        self._listener: str = next(iter(config.controller_listener_names), "")
        self._request_timeout_ms: int = min(config.controller_socket_timeout_ms, retry_timeout_ms)
        self._retry_timeout_ms = retry_timeout_ms
        self._clock = clock
        self._timer = timer
        client_id = f"{self._node_id}:{purpose}"
        self._nodes = NodeChannel(
            purpose, client_id, loop=loop, clock=clock, timer=timer, security=security
        )
        self._retrying: list[_Waiting] = []
        self._is_closed = False

    def send(self, request: Request, requester: Requester | None = None) -> Pending[Any]:
        """Send a request; complete with its response when the decision is committed.

        Fails with KafkaError: the controller's, REQUEST_TIMED_OUT, or NOT_CONTROLLER once closed.
        """
        now_ms = self._clock.monotonic_ms()
        waiting = _Waiting(request, requester, now_ms + self._retry_timeout_ms)
        self._try(waiting)
        return waiting.answer

    def _try(self, waiting: _Waiting) -> None:
        controller = self._controller
        if controller.active or controller.failure is not None or self._is_closed:
            sent = self._decide_here(waiting.request, waiting.requester)
            if not sent.done:
                self._expire_later(waiting)
        else:
            sent = self._send_remote(waiting)
        sent.on_done(lambda done: self._answered(waiting, done))

    def _decide_here(self, request: Request, requester: Requester | None) -> Pending[Any]:
        send = self._controller.apis.send
        if requester is None or requester.guard is None:
            return send(request, requester)
        return requester.guard.decide(request, lambda allowed: send(allowed, requester))

    def _send_remote(self, waiting: _Waiting) -> Pending[Any]:
        leader = self._controller.driver.node.role.leader
        address = address_on(leader.endpoints, self._listener)
        if leader.leader_id in (-1, self._node_id) or address is None:
            return Pending.failed(KafkaError(ErrorCode.NOT_CONTROLLER))
        return self._send_to(leader.leader_id, address, waiting)

    def _send_to(self, node_id: int, address: Address, waiting: _Waiting) -> Pending[Any]:
        request, requester = waiting.request, waiting.requester
        timeout_ms = self._request_timeout_ms
        if requester is None:
            return self._nodes.send(node_id, address, request, timeout_ms=timeout_ms)
        envelope = Outgoing(EnvelopeRequest, lambda _version: enveloped(request, requester))
        sent = self._nodes.send_prepared(node_id, address, envelope, timeout_ms=timeout_ms)
        return sent.then(lambda got: _response_of(got, request, requester))

    def _answered(self, waiting: _Waiting, done: Pending[Any]) -> None:
        error = done.error
        if error is None and getattr(done.value, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            error = KafkaError(ErrorCode.NOT_CONTROLLER)
        if error is None:
            waiting.answer.complete(done.value)
            return
        is_retried = isinstance(error, KafkaError) and error.code in _RETRIED
        if not is_retried or self._is_closed or self._controller.failure is not None:
            waiting.answer.fail(error)
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms + RETRY_BACKOFF_MS >= waiting.deadline_ms:
            text = f"the active controller does not answer: {error}"
            waiting.answer.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))
            return
        self._retrying.append(waiting)
        if len(self._retrying) == 1:
            self._timer.add(now_ms + RETRY_BACKOFF_MS, self._try_again)

    def _expire_later(self, waiting: _Waiting) -> None:
        """Limit the wait for this node's controller, whose disk may stall."""
        text = "the controller has not committed it in time"

        def expire(_now_ms: int) -> None:
            waiting.answer.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

        def answered(_done: Pending[Any]) -> None:
            expiry.cancel()

        expiry = self._timer.add(waiting.deadline_ms, expire)
        waiting.answer.on_done(answered)

    def _try_again(self, _now_ms: int) -> None:
        retrying, self._retrying = self._retrying, []
        for waiting in retrying:
            self._try(waiting)

    def close(self) -> None:
        """Close the connection; waiting requests fail."""
        self._is_closed = True
        self._nodes.close()
        self._try_again(0)


def enveloped(request: Request, requester: Requester) -> EnvelopeRequest:
    """Return the envelope of a client's request."""
    version = requester.api_version
    frame = encode_request(request, version, 0, requester.client_id)
    kind, name, by_token = requester.principal
    principal = DefaultPrincipalData(type=kind, name=name, token_authenticated=by_token)
    encoded: list[Any] = []
    codec.encode_into(principal, 0, encoded)
    return EnvelopeRequest(
        request_data=b"".join(frame[1:]),  # type: ignore[arg-type] # no file slices
        request_principal=_PRINCIPAL_VERSION + b"".join(encoded),
        client_host_address=_packed(requester.client_host),
    )


def _packed(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError:  # a host of a simulation
        return _UNKNOWN_ADDRESS


def _response_of(envelope: EnvelopeResponse, request: Request, requester: Requester) -> Any:
    """Return the response inside; KafkaError for an envelope that was refused."""
    if envelope.error_code == ErrorCode.NOT_CONTROLLER:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if envelope.error_code or envelope.response_data is None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return decode_response(request, requester.api_version, memoryview(envelope.response_data))
