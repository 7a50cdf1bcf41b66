"""A client's sockets and timers on an asyncio event loop.

Kafka: org.apache.kafka.common.network.{Selector, NetworkReceive}. Hot path: benchmarks/clients.py.
"""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ottla.clients.client import Client, ClientCall, ConnectionKey
from ottla.clients.connection_errors import (
    FIRST_FRAME_MAX_BYTES,
    connect_error,
    frame_error,
    reason_of,
)
from ottla.clients.environment import RealClientEnvironment
from ottla.clients.login import KerberosLogins, login_factory
from ottla.clients.tls import client_context
from ottla.errors import DeliveryError, ErrorCode, IllegalStateError, KafkaError
from ottla.types import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from ottla.clients.environment import ClientEnvironment
    from ottla.clients.metadata import ClusterMetadata
    from ottla.clients.metric_windows import MetricName
    from ottla.clients.settings import ValidatedSettings
    from ottla.purgatory.pending import Pending
    from ottla.types import SendItem

T = TypeVar("T")
STEP_BYTES = 4 * 1024 * 1024
SCRATCH_BYTES = 64 * 1024
MAX_FRAME_BYTES = 1 << 30
CLOSING_TURNS = 100


def check_process(pid: int) -> None:
    """Raise IllegalStateError in a process forked from the one that made the client.

    Its loop's thread is not in this process, and its sockets are shared with the other one.
    """
    if os.getpid() != pid:
        raise IllegalStateError("the client was made before a fork: make it in the new process")


def deadlock_error() -> KafkaError:
    """Return the error of a call that waits in the thread that would end the wait."""
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        "a call that waits is not permitted inside a callback: it would wait for itself",
    )


class FrameProtocol(asyncio.BufferedProtocol):
    """Splits the byte stream of one connection into frames.

    A large frame is received directly into its own buffer, which grows with the bytes received,
    not by the announced length. Small frames share a scratch buffer and are copied out of it,
    because receivers keep views of them.
    """

    def __init__(
        self, runtime: Runtime, key: ConnectionKey, attempt: asyncio.Task[None] | None = None
    ) -> None:
        self.runtime = runtime
        self.key = key
        self.attempt = attempt
        """The task that connects it."""
        self.transport: asyncio.WriteTransport | None = None
        self._scratch = bytearray(SCRATCH_BYTES)
        self._filled = 0
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._frame_filled = 0
        self._max_bytes = FIRST_FRAME_MAX_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the connection to the core."""
        self.transport = cast("asyncio.WriteTransport", transport)
        self.runtime.on_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss to the core, unless the core closed the connection itself."""
        self.runtime.on_lost(self, reason_of(exc) if exc else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer for the next read."""
        if self._frame is None:
            return memoryview(self._scratch)[self._filled :]
        if self._frame_filled == len(self._frame):
            more = min(self._frame_size - self._frame_filled, max(len(self._frame), STEP_BYTES))
            larger = bytearray(self._frame_filled + more)
            larger[: self._frame_filled] = self._frame
            self._frame = larger
        return memoryview(self._frame)[self._frame_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the frames that are complete."""
        if self._frame is not None:
            self._frame_filled += nbytes
            if self._frame_filled == self._frame_size:
                frame, self._frame = self._frame, None
                self.runtime.on_frame(self, memoryview(frame))
            return
        self._filled += nbytes
        self._deliver_frames()

    def _deliver_frames(self) -> None:
        position, filled, scratch = 0, self._filled, self._scratch
        while filled - position >= 4:
            size = int.from_bytes(scratch[position : position + 4], "big", signed=True)
            if not 0 <= size <= self._max_bytes:
                self.runtime.on_broken(self, frame_error(bytes(scratch[position:filled]), size))
                return
            if filled - position - 4 >= size:
                frame = bytes(memoryview(scratch)[position + 4 : position + 4 + size])
                position += 4 + size
                self._max_bytes = MAX_FRAME_BYTES
                self.runtime.on_frame(self, memoryview(frame))
            elif size > SCRATCH_BYTES - 4:
                self._frame = bytearray(min(size, STEP_BYTES))
                self._frame_size, self._frame_filled = size, filled - position - 4
                self._frame[: self._frame_filled] = scratch[position + 4 : filled]
                position = filled
            else:
                break
        scratch[: filled - position] = scratch[position:filled]
        self._filled = filled - position


class Runtime:
    """Owns the sockets and timers of one `Client` on one event loop.

    The lock is held whenever the core runs: coroutines of the loop and, with the blocking façade,
    the user's threads acquire it before they call the core.
    """

    def __init__(
        self,
        settings: ValidatedSettings,
        environment: ClientEnvironment | None = None,
        metadata: ClusterMetadata | None = None,
    ) -> None:
        self.environment = environment or RealClientEnvironment()
        self.lock = threading.RLock()
        self.progress = threading.Condition(self.lock)
        login = login_factory(settings)
        self._prepare = login.prepare if isinstance(login, KerberosLogins) else None
        """Called in a worker before a connection to a host is opened; None if not needed."""
        self.client = Client(
            settings,
            self,
            rng=self.environment.rng,
            login=login,
            metadata=metadata,
        )
        start_time_ms = str(self.environment.wall_ns() // 1_000_000)
        self.client.metrics.gauge("app-info", "start-time-ms", lambda _now_ms: start_time_ms)
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._pid = os.getpid()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._protocols: dict[ConnectionKey, FrameProtocol] = {}
        self._connecting: dict[ConnectionKey, asyncio.Task[None]] = {}
        self._alive: set[FrameProtocol] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self.now_ms: Callable[[], int] = self.environment.monotonic_ms
        """Returns the monotonic time."""
        self._tls = client_context(settings)

    def attach(self) -> None:
        """Bind to the running loop, and set the core's clock for requests sent before a poll."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread_id = threading.get_ident()
        self.client.advance(self.now_ms())

    def check_may_wait(self) -> None:
        """Raise KafkaError where a thread must not wait: in the loop's, and after a fork."""
        check_process(self._pid)
        if threading.get_ident() == self._thread_id:
            raise deadlock_error()

    def set_loop_thread(self, thread_id: int) -> None:
        """Record which thread runs the loop, 0 for none."""
        self._thread_id = thread_id

    @property
    def poll_is_scheduled(self) -> bool:
        """Whether a poll of the core was requested and has not run yet."""
        return self._scheduled

    @property
    def attached(self) -> bool:
        """Whether the runtime is bound to a loop."""
        return self._loop is not None

    def metrics(self) -> dict[MetricName, float | str]:
        """Return the client's metrics; callable from any thread."""
        with self.lock:
            return self.client.metrics.collect(self.now_ms())

    # ------------------------------------------------------------ called by the core

    def open(self, key: ConnectionKey, host: str, port: int) -> None:
        """Start connecting."""
        assert self._loop is not None
        self._connecting[key] = self._loop.create_task(self._connect(key, host, port))

    async def _connect(self, key: ConnectionKey, host: str, port: int) -> None:
        assert self._loop is not None
        tls, attempt = self._tls, asyncio.current_task()
        try:
            if self._prepare is not None:
                await self._loop.run_in_executor(None, self._prepare, host)
            await self._loop.create_connection(
                lambda: FrameProtocol(self, key, attempt),
                host,
                port,
                ssl=tls,
                server_hostname=host if tls is not None and tls.check_hostname else None,
            )
        except (OSError, ValueError, OverflowError) as error:  # also invalid names and ports
            self._connecting.pop(key, None)
            failure = connect_error(error, uses_tls=tls is not None)
            with self.lock:
                self.client.disconnected(key, failure, self.now_ms())
            self.wake()

    def write(self, key: ConnectionKey, buffers: list[SendItem]) -> None:
        """Send buffers; small ones are joined, large ones are sent without a copy."""
        protocol = self._protocols.get(key)
        if protocol is not None and protocol.transport is not None:
            protocol.transport.writelines(gather(buffers))

    def close(self, key: ConnectionKey) -> None:
        """Abort a connection or a connection attempt."""
        task = self._connecting.pop(key, None)
        if task is not None:
            task.cancel()
        protocol = self._protocols.pop(key, None)
        if protocol is not None and protocol.transport is not None:
            protocol.transport.abort()

    def wake(self) -> None:
        """Schedule a poll of the core; callable from any thread."""
        loop = self._loop
        if self._scheduled or loop is None:
            return
        self._scheduled = True
        if threading.get_ident() == self._thread_id:
            loop.call_soon(self._run)
        else:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._run)

    def wake_from_anywhere(self) -> None:
        """Make waiters check again; callable from any thread and from signal handlers."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._run)

    # ------------------------------------------------------------ events of the loop

    def _run(self) -> None:
        self._scheduled = False
        with self.lock:
            now_ms = self.now_ms()
            self.client.poll(now_ms)
            self.notify()
            deadline_ms = self.client.next_deadline_ms()
        self._set_timer(deadline_ms, now_ms)

    def _set_timer(self, deadline_ms: int | None, now_ms: int) -> None:
        assert self._loop is not None
        if self._timer is not None:
            # A poll that comes early costs less than a new timer for every request.
            timer_ms = self._timer_ms
            if (
                timer_ms is not None
                and deadline_ms is not None
                and now_ms < timer_ms <= deadline_ms
            ):
                return
            self._timer.cancel()
            self._timer = None
        self._timer_ms = deadline_ms
        if deadline_ms is not None and not self.client.closed:
            delay = max(deadline_ms - now_ms, 1) / 1000
            self._timer = self._loop.call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._run()

    def on_connected(self, protocol: FrameProtocol) -> None:
        """Register an established connection."""
        self._alive.add(protocol)
        if self._connecting.get(protocol.key) is not protocol.attempt:  # the core has closed it
            assert protocol.transport is not None
            protocol.transport.abort()
            return
        del self._connecting[protocol.key]
        self._protocols[protocol.key] = protocol
        with self.lock:
            self.client.connected(protocol.key, self.now_ms())
        self.wake()

    def on_frame(self, protocol: FrameProtocol, frame: memoryview) -> None:
        """Pass a complete response to the core."""
        if self._protocols.get(protocol.key) is protocol:
            with self.lock:
                self.client.received(protocol.key, frame, self.now_ms())
            self.wake()

    def on_broken(self, protocol: FrameProtocol, reason: KafkaError) -> None:
        """Abort a connection that sent an invalid frame."""
        if protocol.transport is not None:
            protocol.transport.abort()
        self.on_lost(protocol, reason)

    def on_lost(self, protocol: FrameProtocol, reason: KafkaError | str) -> None:
        """Remove a lost connection."""
        self._alive.discard(protocol)
        if self._protocols.get(protocol.key) is protocol:
            del self._protocols[protocol.key]
            with self.lock:
                self.client.disconnected(protocol.key, reason, self.now_ms())
            self.wake()

    # ------------------------------------------------------------ waiting

    def notify(self) -> None:
        """Wake the coroutines and threads that wait for progress."""
        self.progress.notify_all()
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_progress(self, timeout_ms: float) -> None:
        """Return after the next poll of the core, or after the timeout."""
        assert self._loop is not None
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = self._loop.call_later(max(timeout_ms, 0) / 1000, _end_wait, waiter)
        try:
            await waiter
        finally:
            timer.cancel()

    async def sleep(self, duration_ms: float) -> None:
        """Wait for a fixed time."""
        await asyncio.sleep(duration_ms / 1000)

    async def wait_for(self, pending: Pending[T]) -> T:
        """Await a Pending of the core."""
        assert self._loop is not None
        if pending.done:
            return pending.value
        future: asyncio.Future[None] = self._loop.create_future()

        def finish(_done: Pending[T]) -> None:
            if not future.done():
                future.set_result(None)

        pending.on_done(finish)
        await future
        return pending.value

    async def run(self, call: ClientCall[T]) -> T:
        """Run a machine of the core until its result is done, or the wait for it is cancelled."""
        try:
            with self.lock:
                result = self.client.start(call)
            return await self.wait_for(result)
        finally:
            with self.lock:
                self.client.stop(call)

    async def aclose(self) -> None:
        """Close connections and timers."""
        with self.lock:
            self.client.close()
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(CLOSING_TURNS):  # let the loop call `connection_lost` of the protocols
            if not self._alive:
                break
            await asyncio.sleep(0)
        if self._timer is not None:
            self._timer.cancel()
        with self.lock:
            self.notify()
        await asyncio.sleep(0)


def _end_wait(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def gather(buffers: list[SendItem]) -> list[Any]:
    """Join adjacent small buffers: fewer system calls, no copy of large buffers."""
    out: list[Any] = []
    small: list[Any] = []
    for item in buffers:
        piece = item.read() if isinstance(item, FileSlice) else item
        if len(piece) < 4096:
            small.append(piece)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(piece)
    if small:
        out.append(b"".join(small))
    return out


class AsyncClient(ABC):
    """Base of the asyncio clients: a context manager that closes the client."""

    _runtime: Runtime

    async def start(self) -> Self:
        """Bind to the running loop; called by `async with` and by the first call."""
        self._runtime.attach()
        self._runtime.wake()
        return self

    def metrics(self) -> dict[MetricName, float | str]:
        """Return the client's metrics under Kafka's names; rates cover the last minute.

        Values are numbers or, as for `app-info`, text; a mean without samples is NaN.
        """
        return self._runtime.metrics()

    @abstractmethod
    async def close(self) -> None:
        """Close the client."""

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except DeliveryError:  # logged when the records failed
            if error is None:
                raise
