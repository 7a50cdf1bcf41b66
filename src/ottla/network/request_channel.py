"""The request channel of one connection: version negotiation, correlation, timeouts. Sans-IO.

Kafka: org.apache.kafka.clients.{InFlightRequests, ApiVersions, NodeApiVersions}.

A `Channel` handles the events of its connection (`connected`, `receive`, `closed`) and appends the
buffers to send to `outgoing`. The first request on every connection is ApiVersions, followed by the
login if one is configured; requests submitted before that are queued in order. Clients use it, and
brokers for their requests to other nodes.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ottla._version import __version__
from ottla.errors import CorruptMessage, ErrorCode, KafkaError, UnsupportedVersion
from ottla.protocol import api_keys, codec, frames
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.frames import ResponseHeader
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ottla.protocol.schema import Request, Response, Versions
    from ottla.types import SendItem

    class Login(Protocol):
        """A SASL exchange, one request at a time."""

        session_lifetime_ms: int
        """For how long the broker takes requests afterwards, 0 for any time (KIP-368)."""

        def next_request(self, response: Response | None) -> Request | None:
            """Return the next request, None once logged in; raise KafkaError if rejected."""

    class RequestMeter(Protocol):
        """Measures the requests of a connection."""

        def sent(self, size: int, now_ms: int) -> None:
            """Record a sent request."""

        def answered(
            self,
            key: int,
            size: int,
            *,
            refused: bool,
            sent_ms: int,
            throttle_ms: int,
            now_ms: int,
        ) -> None:
            """Record a response to a request of an API."""


R = TypeVar("R")
CONTROLLER_HINT = ": it is a controller, connect to a broker's listener"
_RENEWED_AT = 0.85
"""The part of a session after which the client logs in again."""
VersionLimits = dict[int, tuple[int, int]]


class FlatRequest:
    """A request of flat values that writes its own frame and reads the response's.

    Not an ABC: `isinstance` is called twice for each request.
    """

    __slots__ = ()
    message_key: ClassVar[int]
    versions: ClassVar[Versions]
    latest_version_unstable: ClassVar[bool] = False

    def write(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """Return the frame."""
        raise NotImplementedError

    def read_response(self, frame: memoryview, version: int) -> Any:
        """Read a frame without its size; CorruptMessage when it is none."""
        raise NotImplementedError


class ChannelState(Enum):
    """The states of a connection."""

    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    READY = "ready"
    CLOSED = "closed"


class InFlight:
    """A queued request, or a sent one without a response."""

    __slots__ = (
        "deadline_ms",
        "expects_response",
        "max_version",
        "pending",
        "request",
        "sent_ms",
        "version",
    )

    def __init__(
        self,
        request: Request | FlatRequest,
        deadline_ms: int,
        *,
        expects_response: bool = True,
        max_version: int | None = None,
    ) -> None:
        self.max_version = max_version
        self.request = request
        self.deadline_ms = deadline_ms
        self.expects_response = expects_response
        self.pending: Pending[Any] = Pending()
        self.version = 0
        self.sent_ms = 0


class Channel:
    """The request queue of one connection.

    Brokers respond in the order of the requests, so a response with another correlation id means
    that the stream is corrupt: the channel fails.
    """

    def __init__(
        self,
        client_id: str,
        *,
        login: Callable[[], Login] | None = None,
        meter: RequestMeter | None = None,
    ) -> None:
        self.client_id = client_id
        self.state = ChannelState.CONNECTING
        self.outgoing: list[SendItem] = []
        self.versions: VersionLimits = {}
        self.features: ApiVersionsResponse | None = None
        self.last_used_ms = 0
        self.throttled_until_ms = 0
        self.failure: Exception | None = None
        self._new_login = login
        self._meter = meter
        self._waiting: deque[InFlight] = deque()
        self._sent: deque[tuple[int, InFlight]] = deque()
        self._next_correlation_id = 0
        self._renew_at_ms: int | None = None
        """When the client has to log in again, with the next request."""

    @property
    def in_flight(self) -> int:
        """The number of submitted requests without a response."""
        return len(self._waiting) + len(self._sent)

    @property
    def ready(self) -> bool:
        """Whether requests are sent immediately."""
        return self.state is ChannelState.READY

    def submit(
        self,
        request: Request | FlatRequest,
        *,
        now_ms: int,
        timeout_ms: int,
        expects_response: bool = True,
        max_version: int | None = None,
    ) -> Pending[Any]:
        """Queue a request and return the Pending of its response.

        The Pending fails with NETWORK_EXCEPTION when the connection ends, REQUEST_TIMED_OUT without
        a response in time, UnsupportedVersion without a common version. With expects_response
        false it completes, with None, once the request is in `outgoing`.
        """
        entry = InFlight(
            request,
            now_ms + timeout_ms,
            expects_response=expects_response,
            max_version=max_version,
        )
        if self.state is ChannelState.CLOSED:
            entry.pending.fail(_disconnected("the connection is closed"))
        elif self.state is ChannelState.READY and not self._must_renew(now_ms):
            self._send(entry, now_ms)
        else:
            self._waiting.append(entry)
            if self.state is ChannelState.READY:
                self._renew(now_ms, timeout_ms)
        return entry.pending

    def _must_renew(self, now_ms: int) -> bool:
        return self._renew_at_ms is not None and now_ms >= self._renew_at_ms

    def _renew(self, now_ms: int, timeout_ms: int) -> None:
        """Log in again on the same connection; new requests wait, responses still arrive."""
        assert self._new_login is not None, "only a login has an end"
        self.state = ChannelState.NEGOTIATING
        self._log_in(self._new_login(), None, now_ms, timeout_ms)

    def connected(self, now_ms: int, *, timeout_ms: int = 30_000) -> None:
        """Start the version negotiation on an established connection."""
        self.state = ChannelState.NEGOTIATING
        self._negotiate(ApiVersionsRequest.versions.highest, now_ms, timeout_ms)

    def _negotiate(self, version: int, now_ms: int, timeout_ms: int) -> None:
        request = ApiVersionsRequest(
            client_software_name="ottla", client_software_version=__version__
        )
        entry = InFlight(request, now_ms + timeout_ms)
        entry.version = version
        entry.pending.on_done(lambda done: self._negotiated(done, now_ms, timeout_ms))
        self._transmit(entry, now_ms)

    def _negotiated(self, done: Pending[Any], now_ms: int, timeout_ms: int) -> None:
        if done.error is not None:
            return
        response: ApiVersionsResponse = done.value
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and not self.features:
            # A broker without our newest ApiVersions version responds in version 0 with its ranges.
            self.features = response
            known = {api_key.api_key: api_key.max_version for api_key in response.api_keys}
            self._negotiate(known.get(ApiVersionsRequest.message_key, 0), now_ms, timeout_ms)
            return
        self.features = response
        self.versions = {
            api_key.api_key: (api_key.min_version, api_key.max_version)
            for api_key in response.api_keys
        }
        if self._new_login is None:
            self._become_ready(now_ms)
        else:
            self._log_in(self._new_login(), None, now_ms, timeout_ms)

    def _log_in(self, login: Login, last: Response | None, now_ms: int, timeout_ms: int) -> None:
        try:
            request = login.next_request(last)
        except KafkaError as error:
            self.closed(error)
            return
        if request is None:
            lifetime_ms = login.session_lifetime_ms
            self._renew_at_ms = now_ms + int(lifetime_ms * _RENEWED_AT) if lifetime_ms else None
            self._become_ready(now_ms)
            return
        entry = InFlight(request, now_ms + timeout_ms)
        entry.version = self.choose_version(request)

        def next_step(done: Pending[Any]) -> None:
            if done.error is None:
                self._log_in(login, done.value, now_ms, timeout_ms)

        entry.pending.on_done(next_step)
        self._transmit(entry, now_ms)

    def _become_ready(self, now_ms: int) -> None:
        self.state = ChannelState.READY
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            self._send(entry, now_ms)

    def choose_version(self, request: Request | FlatRequest, max_version: int | None = None) -> int:
        """Return the highest version that both sides support; raise UnsupportedVersion.

        One that is still being developed is chosen only where max_version names it.
        """
        cls = type(request)
        lowest, highest = self.versions.get(cls.message_key, (0, -1))
        newest = cls.versions.highest
        if cls.latest_version_unstable and max_version != newest:
            newest -= 1
        version = min(highest, newest if max_version is None else min(newest, max_version))
        if version < max(lowest, cls.versions.lowest):
            raise UnsupportedVersion(
                f"the broker supports {cls.__name__} {lowest}-{highest}, this client {cls.versions}"
                if highest >= 0
                else f"The node does not support {api_keys.ApiKey(cls.message_key).name}"
                f"{CONTROLLER_HINT if cls.message_key == api_keys.ApiKey.METADATA else ''}"
            )
        return version

    def _send(self, entry: InFlight, now_ms: int) -> None:
        if entry.pending.done:
            return
        try:
            entry.version = self.choose_version(entry.request, entry.max_version)
            self._transmit(entry, now_ms)
        except (KafkaError, ValueError) as error:
            entry.pending.fail(error)

    def _transmit(self, entry: InFlight, now_ms: int) -> None:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        request, version = entry.request, entry.version
        buffers: list[SendItem]
        if isinstance(request, FlatRequest):
            buffers = [request.write(version, correlation_id, self.client_id)]
        else:
            buffers = frames.encode_request(request, version, correlation_id, self.client_id)
        entry.sent_ms = self.last_used_ms = now_ms
        self.outgoing += buffers
        if self._meter is not None:
            self._meter.sent(frames.frame_size(buffers), now_ms)
        if entry.expects_response:
            self._sent.append((correlation_id, entry))
        else:
            entry.pending.complete(None)

    def receive(self, frame: memoryview, now_ms: int) -> None:
        """Match a response frame (without its size) with its request and complete it.

        Raises CorruptMessage for a frame that matches no request, and for one that is no response
        to it; then the caller closes the channel.
        """
        self.last_used_ms = now_ms
        if not self._sent or len(frame) < 4:
            raise CorruptMessage("a response without a request")
        correlation_id, entry = self._sent[0]
        if int.from_bytes(frame[:4], "big", signed=True) != correlation_id:
            raise CorruptMessage("responses arrive out of order")
        request = entry.request
        # Decoded first: after CorruptMessage the request is among those that `closed` fails.
        if isinstance(request, FlatRequest):
            value = request.read_response(frame, entry.version)
            self._sent.popleft()
            entry.pending.complete(value)
            return
        response = decode_response(request, entry.version, frame)
        self._sent.popleft()
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttled_until_ms = max(self.throttled_until_ms, now_ms + throttle_ms)
        if self._meter is not None:
            self._meter.answered(
                type(request).message_key,
                len(frame) + 4,
                refused=bool(getattr(response, "error_code", 0)),
                sent_ms=entry.sent_ms,
                throttle_ms=throttle_ms,
                now_ms=now_ms,
            )
        entry.pending.complete(response)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of the unanswered requests."""
        earliest_ms: int | None = None
        for _, entry in self._sent:
            if earliest_ms is None or entry.deadline_ms < earliest_ms:
                earliest_ms = entry.deadline_ms
        for entry in self._waiting:
            if earliest_ms is None or entry.deadline_ms < earliest_ms:
                earliest_ms = entry.deadline_ms
        return earliest_ms

    def expire(self, now_ms: int) -> bool:
        """Fail expired requests; True if the connection must be closed.

        A sent request without a response makes the stream unusable, because its response may still
        arrive; a queued one is removed.
        """
        due_ms = self.next_deadline_ms()
        if due_ms is None or due_ms > now_ms:
            return False
        for entry in list(self._waiting):
            if entry.deadline_ms <= now_ms:
                self._waiting.remove(entry)
                entry.pending.fail(_timed_out(entry, "it could not be sent"))
        late = [entry for _, entry in self._sent if entry.deadline_ms <= now_ms]
        for entry in late:
            entry.pending.fail(_timed_out(entry, "no response in time"))
        return bool(late)

    def closed(self, error: Exception | None = None) -> None:
        """Fail all unanswered requests: the connection is closed."""
        self.failure = self.failure or error
        self.state = ChannelState.CLOSED
        entries = [entry for _, entry in self._sent] + list(self._waiting)
        self._sent.clear()
        self._waiting.clear()
        self.outgoing.clear()
        for entry in entries:
            entry.pending.fail(error or _disconnected("the broker closed the connection"))


def decode_response(request: Request, version: int, frame: memoryview) -> Response:
    """Decode header and body of a response frame; CorruptMessage if they are invalid."""
    key = type(request).message_key
    body_version = version
    header_version = api_keys.response_header_version(key, version)
    _, position = codec.decode_at(ResponseHeader, header_version, frame)
    if key == ApiVersionsRequest.message_key and version > 0:
        code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            body_version = 0
    response, _ = codec.decode_at(api_keys.response_class(key), body_version, frame, position)
    return response


def _disconnected(text: str) -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, text)


def _timed_out(entry: InFlight, text: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{type(entry.request).__name__}: {text}")
