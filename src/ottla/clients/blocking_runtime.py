"""Runs a client in the calling thread, over blocking sockets: for processes without an event loop.

Kafka: org.apache.kafka.clients.NetworkClientUtils, .consumer.internals.ConsumerNetworkClient.
Hot path: benchmarks/spark.py.

Sockets, timers and state machines advance only inside `run_turn` and the methods that wait.
"""

from __future__ import annotations

import selectors
import socket
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.client import Client
from ottla.clients.connection_errors import FIRST_FRAME_MAX_BYTES, connect_error, frame_error
from ottla.clients.environment import RealClientEnvironment
from ottla.clients.login import login_factory
from ottla.clients.tls import client_context
from ottla.clients.transport import MAX_FRAME_BYTES, STEP_BYTES, gather

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ottla.clients.client import ClientCall, ConnectionKey
    from ottla.clients.metadata import ClusterMetadata
    from ottla.clients.settings import ValidatedSettings
    from ottla.errors import KafkaError
    from ottla.purgatory.pending import Pending
    from ottla.types import SendItem

T = TypeVar("T")
IDLE_TURN_MS = 1000


class BlockingRuntime:
    """Owns the sockets of one `Client`; for one thread."""

    def __init__(
        self, settings: ValidatedSettings, metadata: ClusterMetadata | None = None
    ) -> None:
        self.environment = RealClientEnvironment()
        self.client = Client(
            settings,
            self,
            rng=self.environment.rng,
            metadata=metadata,
            login=login_factory(settings),
        )
        self.client.advance(self.now_ms())
        self._setup_seconds: float = settings.socket_connection_setup_timeout_ms / 1000
        self._io_seconds: float = settings.request_timeout_ms / 1000
        self._tls = client_context(settings)
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[ConnectionKey, socket.socket] = {}
        self._to_open: list[tuple[ConnectionKey, str, int]] = []
        self._failed: list[tuple[ConnectionKey, KafkaError | str]] = []
        self._answered: set[socket.socket] = set()  # have sent a frame

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_all()

    def now_ms(self) -> int:
        """Return the monotonic time."""
        return self.environment.monotonic_ms()

    # ------------------------------------------------------------ waiting

    def wait_for(self, pending: Pending[T], deadline_ms: float | None = None) -> T:
        """Run until a Pending of the core is done; TimeoutError at deadline_ms."""
        if not self.wait_until(lambda: pending.done, deadline_ms):
            raise self.client.timeout_error("no response in time")
        return pending.value

    def run(self, call: ClientCall[T]) -> T:
        """Run a machine of the core until its result is done."""
        try:
            return self.wait_for(self.client.start(call))
        finally:
            self.client.stop(call)

    def wait_until(self, condition: Callable[[], bool], deadline_ms: float | None = None) -> bool:
        """Run until a condition holds; False at deadline_ms."""
        self.client.advance(self.now_ms())
        while not condition():
            if deadline_ms is not None and self.now_ms() >= deadline_ms:
                return False
            self.run_turn(deadline_ms)
        return True

    def sleep(self, duration_ms: float) -> None:
        """Run for a fixed time."""
        self.wait_until(lambda: False, self.now_ms() + duration_ms)

    def run_turn(self, deadline_ms: float | None = None) -> None:
        """Poll the core, then wait for responses until deadline_ms or the core's next deadline."""
        now_ms = self.now_ms()
        self.client.poll(now_ms)
        if self._to_open or self._failed:
            self._open_requested()
            self._report_failed()
            return
        limits_ms = [now_ms + IDLE_TURN_MS, self.client.next_deadline_ms(), deadline_ms]
        timeout_ms = min(limit for limit in limits_ms if limit is not None) - now_ms
        for key in self._readable(max(timeout_ms, 0) / 1000):
            self._receive(key)
        self._report_failed()

    def _readable(self, seconds: float) -> list[ConnectionKey]:
        if self._tls is not None:
            decrypted = [key for key, made in self._sockets.items() if _pending_bytes(made)]
            if decrypted:
                return decrypted
        return [entry.data for entry, _ in self._selector.select(seconds)]

    # ------------------------------------------------------------ called by the core

    def open(self, key: ConnectionKey, host: str, port: int) -> None:
        """Connect in this turn, after the core's poll."""
        self._to_open.append((key, host, port))

    def write(self, key: ConnectionKey, buffers: list[SendItem]) -> None:
        """Send buffers; small ones are joined, large ones are sent without a copy."""
        made = self._sockets.get(key)
        if made is None:
            return
        try:
            for piece in gather(buffers):
                made.sendall(piece)
        except OSError as error:
            self._failed.append((key, _reason(error)))

    def close(self, key: ConnectionKey) -> None:
        """Close a socket, or cancel its connect."""
        self._to_open = [entry for entry in self._to_open if entry[0] != key]
        made = self._sockets.pop(key, None)
        if made is not None:
            self._selector.unregister(made)
            self._answered.discard(made)
            made.close()

    def wake(self) -> None:
        """Do nothing: every turn polls the core."""

    # ------------------------------------------------------------ sockets

    def _open_requested(self) -> None:
        requested, self._to_open = self._to_open, []
        for key, host, port in requested:
            try:
                self._sockets[key] = made = self._connect(host, port)
            except (OSError, ValueError, OverflowError) as error:  # also invalid names and ports
                self._failed.append((key, connect_error(error, uses_tls=self._tls is not None)))
                continue
            self._selector.register(made, selectors.EVENT_READ, key)
            self.client.connected(key, self.now_ms())

    def _connect(self, host: str, port: int) -> socket.socket:
        made = socket.create_connection((host, port), timeout=self._setup_seconds)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                server_name = host if self._tls.check_hostname else None
                made = self._tls.wrap_socket(made, server_hostname=server_name)
            made.settimeout(self._io_seconds)
        except BaseException:
            made.close()
            raise
        return made

    def _report_failed(self) -> None:
        failed, self._failed = self._failed, []
        for key, reason in failed:
            self.close(key)
            self.client.disconnected(key, reason, self.now_ms())

    def _receive(self, key: ConnectionKey) -> None:
        """Read one frame to its end: the responses of other connections wait for it."""
        made = self._sockets.get(key)
        if made is None:  # closed earlier in this turn
            return
        try:
            size = int.from_bytes(_read(made, 4), "big", signed=True)
            is_first = made not in self._answered
            if not 0 <= size <= (FIRST_FRAME_MAX_BYTES if is_first else MAX_FRAME_BYTES):
                self._failed.append((key, frame_error(size.to_bytes(4, "big", signed=True), size)))
                return
            frame = _read(made, size)
            self._answered.add(made)
        except OSError as error:
            self._failed.append((key, _reason(error)))
            return
        self.client.received(key, memoryview(frame), self.now_ms())

    def close_all(self) -> None:
        """Close every connection; idempotent."""
        self.client.close()
        for key in list(self._sockets):
            self.close(key)
        self._selector.close()


def _read(made: socket.socket, size: int) -> bytearray:
    """Read size bytes; the buffer grows with the bytes received, not by the announced size."""
    data = bytearray(min(size, STEP_BYTES))
    filled = 0
    while filled < size:
        if filled == len(data):
            data += bytes(min(size - filled, filled))
        count = made.recv_into(memoryview(data)[filled:])
        if not count:
            raise ConnectionError("the broker closed the connection")
        filled += count
    return data


def _pending_bytes(made: Any) -> int:
    pending: int = made.pending()
    return pending


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
