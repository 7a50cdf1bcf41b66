"""Requests of this node to other nodes: one connection to each, opened by its first request.

A request waits for the connection and for the versions that the node serves. Without a response in
time it fails, and the connection with it, because the response may still come.

Kafka: org.apache.kafka.server.util.InterBrokerSendThread, NetworkClient;
org.apache.kafka.common.network.KafkaChannel, as NetworkClient uses it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.errors.base import ConnectionRefused
from ottla.network.framing import FrameReader
from ottla.network.request_channel import Channel
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence

    from ottla.clock import Clock
    from ottla.network.request_channel import FlatRequest, Login
    from ottla.protocol.schema import Request
    from ottla.purgatory.timing_wheel import TimerTask, TimingWheel
    from ottla.types import Buffer, SendItem

log = logging.getLogger("ottla.network")
RECONNECT_BACKOFF_MS: Final = 50
Address = tuple[str, int]


class PeerSecurity(NamedTuple):
    """TLS and login of connections to other nodes."""

    context: Callable[[], ssl.SSLContext | None]
    """Returns the TLS context, None without TLS."""
    login: Callable[[str], Login] | None
    """Begins a login at a host, None without one."""
    prepare: Callable[[str], Awaitable[None]] | None = None
    """Prepares a connection to a host, for example gets its Kerberos ticket."""


class Outgoing(NamedTuple):
    """A request whose fields depend on the version that both nodes know."""

    kind: type[Request | FlatRequest]
    build: Callable[[int], Request | FlatRequest]
    """Called with the version; a KafkaError that it raises fails the request."""


class NodeChannel:
    """The connections of one purpose, by node id; each has its own order of requests."""

    def __init__(
        self,
        purpose: str,
        client_id: str,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: TimingWheel,
        security: PeerSecurity | None = None,
    ) -> None:
        """Purpose names the connections in the log: "quorum", "replication"."""
        self.security = security
        self.purpose = purpose
        self.client_id = client_id
        self.clock = clock
        self._loop = loop
        self.timer = timer
        self._links: dict[int, _Link] = {}
        self._may_connect_ms: dict[int, int] = {}
        """When a node may be connected to again after a failure."""
        self._is_closed = False

    def send(
        self,
        node_id: int,
        address: Address,
        request: Request | FlatRequest,
        *,
        timeout_ms: int,
    ) -> Pending[Any]:
        """Send a request in the newest version that both know; fails with KafkaError.

        BROKER_NOT_AVAILABLE while the node cannot be connected to, NETWORK_EXCEPTION when the
        connection ends before the response (ConnectionRefused when there is none),
        UnsupportedVersion without a common version.
        """
        link = self._links.get(node_id)
        if link is not None and link.is_ready and link.address == address:
            return link.submit(request, self.clock.monotonic_ms(), timeout_ms)
        prepared = Outgoing(type(request), lambda _version: request)
        return self.send_prepared(node_id, address, prepared, timeout_ms=timeout_ms)

    def send_prepared(
        self, node_id: int, address: Address, request: Outgoing, *, timeout_ms: int
    ) -> Pending[Any]:
        """Send a request that is built when the node's versions are known."""
        now_ms = self.clock.monotonic_ms()
        link = self._links.get(node_id)
        if link is not None and link.address != address:
            link.close()
            link = None
        if link is None:
            if self._is_closed or now_ms < self._may_connect_ms.get(node_id, 0):
                text = f"node {node_id} at {address[0]}:{address[1]} is not connected"
                return Pending.failed(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text))
            link = self._links[node_id] = _Link(self, node_id, address)
            link.connect(self._loop)
        answer: Pending[Any] = Pending()
        link.send(_Waiting(request, answer, timeout_ms, now_ms + timeout_ms), now_ms)
        return answer

    def ended(self, link: _Link, reason: str | None) -> None:
        """Forget a connection that has ended; without a reason no request waited for it."""
        node_id, (host, port) = link.node_id, link.address
        if self._links.get(node_id) is not link:
            return
        del self._links[node_id]
        if reason is None:
            return
        if node_id not in self._may_connect_ms and not self._is_closed:
            text = "%s: %s at %s:%d cannot be reached: %s; retrying"
            extra = {"event": f"{self.purpose}.unreachable"}
            log.warning(text, self.purpose, _name(node_id), host, port, reason, extra=extra)
        self._may_connect_ms[node_id] = self.clock.monotonic_ms() + RECONNECT_BACKOFF_MS

    def answered(self, node_id: int) -> None:
        """Note that a node can be reached."""
        if self._may_connect_ms and self._may_connect_ms.pop(node_id, None) is not None:
            extra = {"event": f"{self.purpose}.reachable"}
            log.info("%s: %s answers again", self.purpose, _name(node_id), extra=extra)

    def close(self) -> None:
        """Close all connections; pending and later requests fail."""
        self._is_closed = True
        for link in list(self._links.values()):
            link.close()


class _Waiting(NamedTuple):
    """A request that waits for the connection."""

    request: Outgoing
    answer: Pending[Any]
    timeout_ms: int
    deadline_ms: int


class _Link:
    """One connection to one node."""

    def __init__(self, owner: NodeChannel, node_id: int, address: Address) -> None:
        self.node_id = node_id
        self.address = address
        self._owner = owner
        security = owner.security
        begin = None if security is None else security.login
        login = None if begin is None else partial(begin, address[0])
        self._channel = Channel(owner.client_id, login=login)
        self._connection = OutgoingConnection(self)
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[_Waiting] = []
        self._is_closed = False
        self._is_refused = False
        self._timeout_ms = 0
        """As the last request asked for it: also for the negotiation of versions."""
        self._timeout: TimerTask | None = None
        """Fires at the first deadline; not cancelled with each response, as most arrive in time."""

    def connect(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the connection."""
        self._connecting = loop.create_task(self._connect(loop))

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            security = self._owner.security
            context = None if security is None else security.context()
            host, _ = self.address
            if security is not None and security.prepare is not None:
                await security.prepare(host)
            await loop.create_connection(
                lambda: self._connection,
                *self.address,
                ssl=context,
                server_hostname=host if context is not None and context.check_hostname else None,
            )
        except (OSError, ValueError) as error:  # ValueError: no valid host name
            self._is_refused = is_refused(error)
            self._end(str(error) or type(error).__name__)

    def send(self, waiting: _Waiting, now_ms: int) -> None:
        """Send a request now or when the connection is ready."""
        self._timeout_ms = waiting.timeout_ms
        if self.is_ready:
            self._submit(waiting, now_ms)
        else:
            self._waiting.append(waiting)
            self._watch(waiting.deadline_ms)

    @property
    def is_ready(self) -> bool:
        """Whether requests leave at once."""
        return self._channel.ready

    def submit(
        self,
        request: Request | FlatRequest,
        now_ms: int,
        timeout_ms: int,
        max_version: int | None = None,
    ) -> Pending[Any]:
        """Send a request on a ready connection."""
        self._timeout_ms = timeout_ms
        sent = self._channel.submit(
            request, now_ms=now_ms, timeout_ms=timeout_ms, max_version=max_version
        )
        self._flush()
        if not sent.done:
            self._watch(now_ms + timeout_ms)
        return sent

    def _watch(self, deadline_ms: int) -> None:
        """Schedule the check of deadlines."""
        timeout = self._timeout
        if timeout is None or deadline_ms < timeout.deadline_ms:
            if timeout is not None:
                timeout.cancel()
            self._timeout = self._owner.timer.add(deadline_ms, self._expire)

    def _submit(self, waiting: _Waiting, now_ms: int) -> None:
        kind, build = waiting.request
        try:
            served = self._channel.versions.get(kind.message_key, (0, kind.versions.highest))
            version = min(served[1], kind.versions.highest)
            request = build(version)
        except KafkaError as error:
            waiting.answer.fail(error)
            return
        sent = self.submit(request, now_ms, waiting.deadline_ms - now_ms, version)
        self._timeout_ms = waiting.timeout_ms  # as asked for, not what remains of it
        sent.pass_to(waiting.answer)

    def _flush(self) -> None:
        outgoing: list[SendItem] = self._channel.outgoing
        if outgoing:
            self._connection.send(outgoing[:])  # type: ignore[arg-type] # requests hold no files
            outgoing.clear()

    # Events of the connection

    def connected(self) -> None:
        """Ask for the versions."""
        if self._is_closed:
            self._connection.abort()
            return
        self._channel.connected(self._owner.clock.monotonic_ms(), timeout_ms=self._timeout_ms)
        self._flush()

    def received(self, frame: memoryview) -> None:
        """Complete a request; those that waited for the versions go out."""
        if self._is_closed:
            return
        try:
            self._channel.receive(frame, self._owner.clock.monotonic_ms())
        except CorruptMessage as error:
            self._end(str(error))
            return
        self._owner.answered(self.node_id)
        self._flush()
        if self._channel.ready and self._waiting:
            waiting, self._waiting = self._waiting, []
            now_ms = self._owner.clock.monotonic_ms()
            for request in waiting:
                self._submit(request, now_ms)

    def lost(self, error: Exception | None) -> None:
        """Fail the pending requests."""
        self._end("the connection was closed" if error is None else str(error))

    def _expire(self, now_ms: int) -> None:
        """End the connection when a request waited too long for its response."""
        self._timeout = None
        if self._is_closed:
            return
        if self._channel.expire(now_ms) or any(
            request.deadline_ms <= now_ms for request in self._waiting
        ):
            self._end(f"no response within {self._timeout_ms} ms")
            return
        deadlines_ms = [request.deadline_ms for request in self._waiting]
        sent_ms = self._channel.next_deadline_ms()
        if sent_ms is not None:
            deadlines_ms.append(sent_ms)
        if deadlines_ms:
            self._watch(min(deadlines_ms))

    def close(self) -> None:
        """End the connection."""
        self._end("this node closes it", is_fault=False)

    def _end(self, reason: str, *, is_fault: bool = True) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._timeout is not None:
            self._timeout.cancel()
        self._connection.abort()
        is_fault = is_fault and bool(self._waiting or self._channel.in_flight)
        self._owner.ended(self, reason if is_fault else None)
        error = KafkaError(ErrorCode.NETWORK_EXCEPTION, reason)
        if self._is_refused:
            error = ConnectionRefused(reason)
        self._channel.closed(error)
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            request.answer.fail(error)


def _name(node_id: int) -> str:
    """Name a node in log lines; bootstrap controllers have negative numbers."""
    return f"node {node_id}" if node_id >= 0 else "a bootstrap controller"


SCRATCH_BYTES: Final = 64 * 1024
MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""As socket.request.max.bytes is by default."""

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
_UNUSABLE: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH}
"""Errors of an address family that this machine does not have."""


def is_refused(error: Exception) -> bool:
    """Whether a host answered that no process listens at the address of a connection.

    Of a host name with several addresses each has to be refused, or of a family that this machine
    does not have; asyncio joins their errors in one text.
    """
    if isinstance(error, ConnectionRefusedError):
        return True
    if not isinstance(error, OSError) or error.errno is not None:
        return False
    found = {int(number) for number in _ERRNO.findall(str(error))}
    return errno.ECONNREFUSED in found and found <= {errno.ECONNREFUSED, *_UNUSABLE}


class FrameReceiver(Protocol):
    """What a connection reports to."""

    def connected(self) -> None:
        """Handle that frames may be sent."""

    def received(self, frame: memoryview) -> None:
        """Handle a frame, without its size."""

    def lost(self, error: Exception | None) -> None:
        """Handle that the connection has ended; None when the other side closed it."""


class OutgoingConnection(asyncio.BufferedProtocol):
    """Cuts the stream of bytes into frames, on the loop that connects it."""

    def __init__(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver
        self._transport: asyncio.WriteTransport | None = None
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._reader = FrameReader(MAX_FRAME_BYTES, None, lambda: None)
        self._is_large = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report that it is open."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._receiver.connected()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report its end."""
        self._transport = None
        self._receiver.lost(exc)

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send bytes, if it is open."""
        if self._transport is not None:
            self._transport.write(b"".join(parts))

    def abort(self) -> None:
        """Close it without a farewell; `lost` follows."""
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer for the next bytes: that of a large frame, or a shared one."""
        space = self._reader.space()
        self._is_large = space is not None
        return self._scratch if space is None else space

    def buffer_updated(self, nbytes: int) -> None:
        """Report the frames that are complete; bytes that are no frame end the connection."""
        reader = self._reader
        try:
            if self._is_large:
                frame = reader.advance(nbytes)
            else:
                frame = reader.take_whole(self._scratch[:nbytes])
            while frame is not None:
                self._receiver.received(frame)
                frame = reader.next_frame()
        except KafkaError:
            self.abort()
