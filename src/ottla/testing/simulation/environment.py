"""What a simulated host gives to a node and to clients.

Kafka: org.apache.kafka.common.utils.MockTime.
"""

from __future__ import annotations

import errno
import sys
from collections import deque
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.server.system.environment import Limits
from ottla.types import Uuid

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Hashable, Mapping

    from ottla.clock import Clock
    from ottla.server.system.environment import HttpService, Network, SocketOptions, Stopwatch
    from ottla.storage.directory import Directory
    from ottla.testing.simulation.loop import SimulatedLoop
    from ottla.testing.simulation.network import (
        SimulatedListener,
        SimulatedNetwork,
        SimulatedSocket,
    )
    from ottla.testing.simulation.process import Process


class HostNetwork:
    """The network as one process of a host sees it: an environment's `network`."""

    def __init__(self, network: SimulatedNetwork, host: str, process: Process) -> None:
        self._network = network
        self._host = host
        self._process = process

    def listen(self, host: str, port: int, _options: SocketOptions) -> socket.socket:
        """Bind a listener that closes with the process."""
        listener = self._network.listen(host or self._host, port)
        self._process.on_death(listener.close)
        return _Accepting(listener, self._process)  # type: ignore[return-value] # has the calls that are made

    def host_name(self) -> str:
        """Return the host's name."""
        return self._host

    def addresses_of(self, host: str) -> set[str]:
        """Return the name itself: simulated hosts have no other address."""
        return {host}

    def holder_of_port(self, _port: int) -> str | None:
        """Return None: processes cannot be listed."""
        return None

    def bind_http(self, _host: str, _port: int) -> HttpService:
        """Refuse: HTTP is not simulated."""
        raise OSError(errno.ENOTSUP, "HTTP is not simulated: leave metrics.listener unset")


class _Accepting:
    """A listener whose accepted sockets are reset when their process dies."""

    def __init__(self, listener: SimulatedListener, process: Process) -> None:
        self._listener = listener
        self._process = process
        self.fileno = listener.fileno
        self.getsockname = listener.getsockname
        self.close = listener.close

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        """Accept a connection."""
        sock, peer = self._listener.accept()
        self._process.on_death(sock.reset)
        return sock, peer


T = TypeVar("T")
START_MS = 1_760_000_000_000
"""Wall time at the start of a simulation."""
_MEMORY_BYTES = 1 << 30
_DESCRIPTORS = 65_536


class SimulatedClock:
    """The loop's time as both clocks; they may run fast or slow, and the wall clock be stepped."""

    def __init__(self, loop: SimulatedLoop, rate: float = 1.0) -> None:
        self._loop = loop
        self._rate = rate
        self._is_right = rate == 1.0
        self.step_ms = 0
        """How far the wall clock was set ahead."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return START_MS + self.step_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """Milliseconds of virtual time, as this clock counts them."""
        if self._is_right:
            return self._loop.now_us // 1000
        return int(self._loop.now_us * self._rate) // 1000


class SimulatedStopwatch:
    """Virtual time, which passes in a turn as its work is charged."""

    is_real = False

    def __init__(self, loop: SimulatedLoop) -> None:
        self.elapsed_s: Callable[[], float] = loop.time

    def cpu_s(self) -> float:
        """Return 0: nothing is measured."""
        return 0.0


class SimulatedWorkers:
    """Runs jobs at a later moment each, and reports them later still: in any order."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: Random,
        count: int,
        latency_us: Callable[[], tuple[int, int]],
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._free = count
        self._latency_us = latency_us
        self._waiting: deque[_Job] = deque()
        self._running: dict[_Job, None] = {}
        self._is_closed = False
        self.is_ended = True

    def run(self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run the job later, then done(result, error); ignored once closed."""
        if not self._is_closed:
            self._waiting.append(_Job(job, done))
            self._start()

    def _start(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            job = self._waiting.popleft()
            self._running[job] = None
            self._after(self._carry_out, job)

    def _after(self, action: Callable[[_Job], None], job: _Job, work_us: int = 0) -> None:
        delay_us = self._rng.randint(*self._latency_us()) + work_us
        self._loop.happen_after(delay_us, _enter, self._loop, job, action)

    def _carry_out(self, job: _Job) -> None:
        if job in self._running:
            self._carry_out_now(job)
            self._after(self._finish, job, self._loop.worker_ns // 1000)

    def _carry_out_now(self, job: _Job) -> None:
        self._loop.is_in_worker = True
        self._loop.worker_ns = 0
        try:
            job.carry_out()
        finally:
            self._loop.is_in_worker = False

    def _finish(self, job: _Job) -> None:
        if self._running.pop(job, job) is None:
            self._loop.trace.add(self._loop.now_us, "job", type(job.error).__name__)
            self._free += 1
            self._start()
            job.finish()

    def close(self) -> None:
        """Do all that was given, at once, as a pool of threads is waited for."""
        self._is_closed = True
        jobs = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        for job in jobs:
            self._carry_out_now(job)
            self._loop.call_soon(job.finish)


class _Job:
    """One call of a worker."""

    def __init__(
        self, call: Callable[[], Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        self.context = copy_context()
        self._call = call
        self._done = done
        self._is_done = False
        self._result: Any = None
        self.error: Exception | None = None

    def carry_out(self) -> None:
        """Run the call once."""
        if self._is_done:
            return
        self._is_done = True
        try:
            self._result = self._call()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits, as a pool does
            self.error = error

    def finish(self) -> None:
        """Report the result."""
        self._done(self._result, self.error)


def _enter(loop: SimulatedLoop, job: _Job, action: Callable[[_Job], None]) -> None:
    """Go on in the context of whoever gave the job: nothing happens once its process is dead."""
    loop.call_soon(action, job, context=job.context)


class SimulatedEnvironment:
    """A host as a node sees it. Implements `server.system.environment.Environment`."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        disks: Mapping[str, Directory],
        process: Process,
        *,
        host: str,
        seed: str,
    ) -> None:
        """Disks are the log directories by path; the seed is that of this process alone."""
        self._loop = loop
        self._disks = disks
        self.wall = SimulatedClock(loop, process.clock_rate)
        self.clock: Clock = self.wall
        self.rng = Random(f"{seed}/node")  # noqa: S311 - repeatable on purpose
        self._uuids = Random(f"{seed}/uuids")  # noqa: S311 - as above
        self._work = Random(f"{seed}/workers")  # noqa: S311 - as above
        self.network: Network = HostNetwork(network, host, process)
        self.stopwatch: Stopwatch = SimulatedStopwatch(loop)
        self.disk_latency_us = (50, 3000)
        """How long flushes and reads of workers take; may be changed while they run."""
        self.volume_latency_us: dict[Hashable, tuple[int, int]] = {}
        """The same for single disks."""

    def new_uuid(self) -> Uuid:
        """Return an id of the seed's sequence."""
        return Uuid.drawn(lambda: self._uuids.randbytes(16))

    def secret_bytes(self, count: int) -> bytes:
        """Return bytes of the seed's sequence."""
        return self._uuids.randbytes(count)

    def open_directory(self, path: str) -> Directory:
        """Return the simulated disk of this path."""
        return self._disks[path]

    def start_workers(
        self, _loop: asyncio.AbstractEventLoop, count: int = 2, volume: Hashable = None
    ) -> SimulatedWorkers:
        """Return workers whose jobs take as long as the disk needs."""

        def latency_us() -> tuple[int, int]:
            return self.volume_latency_us.get(volume, self.disk_latency_us)

        return SimulatedWorkers(self._loop, self._work, count, latency_us)

    def start_detached(self, loop: asyncio.AbstractEventLoop) -> SimulatedWorkers:
        """Return workers for all calls that there are."""
        return self.start_workers(loop, sys.maxsize)

    def limits(self) -> Limits:
        """Return generous limits."""
        return Limits(_MEMORY_BYTES, _DESCRIPTORS)

    def yield_processor(self) -> None:
        """Go on: no other process competes for the core."""


class SimulatedClientEnvironment:
    """Clocks and randomness of a simulated client."""

    def __init__(self, loop: SimulatedLoop, seed: str) -> None:
        self._clock = SimulatedClock(loop)
        self.rng = Random(seed)  # noqa: S311 - repeatable on purpose
        self.monotonic_ms = self._clock.monotonic_ms

    def wall_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._clock.now_ms() * 1_000_000
