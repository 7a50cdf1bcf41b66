"""An asyncio event loop on virtual time: it never sleeps, and knows no socket and no thread.

When nothing is ready, the time jumps to the next timer. Timers of equal time fire in the order in
which they were set, so a run depends on the seed alone. Sockets are those of `network`.

Kafka: org.apache.kafka.common.utils.MockTime and its MockScheduler.
"""

from __future__ import annotations

import asyncio
import marshal
from collections import Counter
from contextvars import copy_context
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, TypeVarTuple

from ottla.testing.disk import SimulatedCrash
from ottla.testing.simulation.process import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from ottla.testing.simulation.process import Process


_EVENTS_AT_ONCE = 1024
"""So many are hashed at once."""
_WITHOUT_REFERENCES = 2
"""The version of marshal's format in which equal values are equal bytes."""


class Trace:
    """Equal digests mean equal events at equal times, in the same order."""

    def __init__(self, *, keep_lines: bool = False) -> None:
        """With keep_lines every event is kept as a line, to compare two runs."""
        self._lines: list[str] | None = [] if keep_lines else None
        self._counts: Counter[str] = Counter()
        self._hash = blake2b(digest_size=16)
        self._events: list[tuple[Any, ...]] = []
        """Not counted and hashed yet."""

    @property
    def counts(self) -> Counter[str]:
        """Events by kind: message, timer, file, job."""
        return self._counts + Counter(event[1] for event in self._events)

    @property
    def lines(self) -> list[str]:
        """Events as text, with keep_lines."""
        assert self._lines is not None, "keep_lines keeps them"
        return self._lines + _texts(self._events)

    @property
    def event_count(self) -> int:
        """Messages delivered, timers fired and file operations."""
        counts = self.counts
        return counts["message"] + counts["timer"] + counts["file"]

    def add(self, now_us: int, kind: str, *details: str | int) -> None:
        """Record an event."""
        self._events.append((now_us, kind, *details))
        if len(self._events) >= _EVENTS_AT_ONCE:
            self._take_events()

    def _take_events(self) -> None:
        events = self._events
        self._counts.update([event[1] for event in events])
        self._hash.update(marshal.dumps(events, _WITHOUT_REFERENCES))
        if self._lines is not None:
            self._lines += _texts(events)
        events.clear()

    def digest(self) -> str:
        """Return the hash of all events so far."""
        hashed = self._hash.copy()
        hashed.update(marshal.dumps(self._events, _WITHOUT_REFERENCES))
        return hashed.hexdigest()


def _texts(events: list[tuple[Any, ...]]) -> list[str]:
    return [" ".join(map(str, event)) for event in events]


_WorldEvent: TypeAlias = "tuple[Callable[..., object], tuple[Any, ...]]"
"""A callback of the world itself, which belongs to no process, with its arguments."""
T = TypeVar("T")
Args = TypeVarTuple("Args")
_MIN_CANCELLED = 256
TURN_US = 10
"""How long a turn takes, so that callbacks which schedule themselves again see time pass."""
MAX_BUSY_TURNS = 20_000
"""Turns without a pause after which a run is given up: a real loop would be at 100 % CPU."""


def _clock_rate() -> float:
    """Return how fast the clock of the running process goes; outside of all it is right."""
    process = PROCESS.get()
    return 1.0 if process is None else process.clock_rate


class WatchedSocket(Protocol):
    """A socket of the network that calls back when it is ready."""

    def set_reader(self, handle: asyncio.Handle | None) -> bool:
        """Watch for bytes or connections, or no longer; return whether it was watched."""

    def set_writer(self, handle: asyncio.Handle | None) -> bool:
        """Watch for room, or no longer; return whether it was watched."""


class Connector(Protocol):
    """Makes connections in a network."""

    async def connect(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect; OSError when none answers."""


class _Handle(asyncio.Handle):
    """A callback; made without the questions that the base class asks for debugging."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<callback {self._callback}>"

    def cancel(self) -> None:
        """Do not call back."""
        self._cancelled = True
        self._callback = _none
        self._args = ()


class _Timer(asyncio.TimerHandle):
    """A callback at a time; made as `_Handle` is."""

    __slots__ = ()

    def __init__(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimulatedLoop,
        context: Context,
    ) -> None:
        self._when = when_us / 1_000_000
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._scheduled = True

    def __repr__(self) -> str:
        return f"<timer {self._callback}>"

    def cancel(self) -> None:
        """Do not call back."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = _none
            self._args = ()
            if self._scheduled:
                self._loop._timer_handle_cancelled(self)  # noqa: SLF001 - as the base class does


def _is_cancelled(event: _Timer | _WorldEvent) -> bool:
    return type(event) is _Timer and event._cancelled  # noqa: SLF001 - as the base class does


def _none() -> None:
    """Stand in for the callback of a cancelled handle."""


def _shares(charges: list[tuple[str, int]]) -> str:
    """Return what the work of a turn was, the longest first."""
    total: dict[str, list[int]] = {}
    for what, duration_ns in charges:
        total.setdefault(what, []).append(duration_ns)
    shares = sorted(total.items(), key=lambda item: -sum(item[1]))
    return ", ".join(f"{len(ns)} {what} {sum(ns) // 1000} us" for what, ns in shares[:8])


class Deadlock(RuntimeError):
    """Nothing is left to happen, and the awaited coroutine is not done."""


class Livelock(RuntimeError):
    """Callbacks schedule each other without end, and nothing else happens."""


class LongTurn(RuntimeError):
    """A turn of a node's event loop took longer than the limit, so that others waited."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks in a deterministic order; `time` is virtual."""

    def __init__(self, trace: Trace | None = None) -> None:
        super().__init__()
        self.trace = trace or Trace()
        self.now_us = 0
        """Virtual microseconds since the loop was made."""
        self.is_in_worker = False
        """Whether a worker's job runs: what it waits for delays no one else."""
        self.turn_limit_us: int | None = None
        """A turn of a node that serves fails the run when its work takes longer."""
        self.longest_turn_us = 0
        """Of all nodes that serve."""
        self.worker_ns = 0
        """What the job that runs in a worker has taken so far."""
        self.failures: list[BaseException] = []
        """What callbacks raised; `run_until_complete` raises the first of them."""
        self.on_turn: Callable[[], None] | None = None
        """Called after every turn; what it raises ends the run."""
        self.sockets: dict[int, WatchedSocket] = {}
        """By descriptor."""
        self._connector: Connector | None = None
        self._timers: list[tuple[int, int, _Timer | _WorldEvent]] = []
        self._timer_count = 0
        self._busy_turns = 0
        self._cancelled_count = 0
        self._owed_ns = 0
        self._charges: list[tuple[str, int]] = []
        """What the turn that runs has cost: what for, and nanoseconds."""

    def __del__(self) -> None:
        """Do nothing, where the base class warns: the loop holds nothing of the system."""

    # Time

    def time(self) -> float:
        """Return virtual seconds, by the clock of the process that runs."""
        return self.now_us * _clock_rate() / 1_000_000

    def advance(self, duration_us: int) -> None:
        """Let a running callback take time: what is due meanwhile is late."""
        self.now_us += duration_us

    def charge(self, what: str, duration_ns: int) -> None:
        """Let work of the running callback, or of the worker's job, take time."""
        if self.is_in_worker:
            self.worker_ns += duration_ns
            return
        owed_ns = self._owed_ns + duration_ns
        self.now_us += owed_ns // 1000
        self._owed_ns = owed_ns % 1000
        self._charges.append((what, duration_ns))

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back after delay seconds."""
        delay_us = round(delay * 1_000_000 / _clock_rate())
        return self._set(self.now_us + delay_us, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at a virtual time in seconds, by the clock of the process that runs."""
        return self._set(round(when * 1_000_000 / _clock_rate()), callback, args, context)

    def _set(
        self,
        when_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> asyncio.TimerHandle:
        given = copy_context() if context is None else context
        timer = _Timer(when_us, callback, args, self, given)
        self._timer_count += 1
        heappush(self._timers, (when_us, self._timer_count, timer))
        return timer

    def happen_after(self, delay_us: int, callback: Callable[..., object], *args: Any) -> None:
        """Let an event of the world happen: a message, the end of a disk operation."""
        self.happen_at(self.now_us + max(delay_us, 0), callback, args)

    def happen_at(
        self, when_us: int, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        """Let an event of the world happen at a time."""
        self._timer_count += 1
        heappush(self._timers, (when_us, self._timer_count, (callback, args)))

    def call_soon(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call back in the next turn."""
        given = copy_context() if context is None else context
        handle = _Handle(callback, args, given)
        self._ready.append(handle)  # type: ignore[attr-defined] # the base class's queue
        return handle

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        self._cancelled_count += 1
        if self._cancelled_count > _MIN_CANCELLED and 2 * self._cancelled_count > len(self._timers):
            self._timers = [timer for timer in self._timers if not _is_cancelled(timer[2])]
            heapify(self._timers)
            self._cancelled_count = 0

    # Running

    def _run_once(self) -> None:  # noqa: C901, PLR0912 - a function more costs each turn its call
        """Run turns until the loop is to stop; the base class asks for them one at a time."""
        ready: Any = self._ready  # type: ignore[attr-defined] # the base class's queue
        while True:
            if ready:
                self._step(ready)
            elif not self._stopping:  # type: ignore[attr-defined] # as above
                self._jump(ready)
            for _ in range(len(ready)):
                handle = ready.popleft()
                try:
                    if type(handle) is tuple:
                        callback, args = handle
                        callback(*args)
                    elif not handle._cancelled:  # noqa: SLF001 - as the base class does
                        context = handle._context  # noqa: SLF001 - whose callback it is
                        process = context.get(PROCESS)
                        if process is None:
                            context.run(handle._callback, *handle._args)  # noqa: SLF001 - as Handle._run does
                        elif process.is_running:
                            begin_us = self.now_us
                            context.run(handle._callback, *handle._args)  # noqa: SLF001 - as above
                            if self.now_us != begin_us:
                                self._turn_ended(process, begin_us)
                        else:
                            process.hold(handle)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as Handle._run does
                    self.call_exception_handler({"exception": error, "handle": handle})
            if self.on_turn is not None:
                self.on_turn()
            if self._stopping:  # type: ignore[attr-defined] # as above
                return

    def deliver(self, context: Context, callback: Callable[[Any], object], argument: Any) -> None:
        """Let a message arrive in a turn of its process; it waits while that is paused."""
        process = context.get(PROCESS)
        if process is None:
            context.run(callback, argument)
        elif process.is_running:
            begin_us = self.now_us
            context.run(callback, argument)
            if self.now_us != begin_us:
                self._turn_ended(process, begin_us)
        else:
            process.hold(asyncio.Handle(self.deliver, (context, callback, argument), self))

    def _turn_ended(self, process: Process, begin_us: int) -> None:
        """Look how long a turn's work took."""
        charges, self._charges = self._charges, []
        duration_us = self.now_us - begin_us
        if not process.is_serving or duration_us <= self.longest_turn_us:
            return
        self.longest_turn_us = duration_us
        if self.turn_limit_us is not None and duration_us > self.turn_limit_us:
            raise LongTurn(f"a turn of {process.name} took {duration_us} us: {_shares(charges)}")

    def resume(self, process: Process) -> None:
        """Let a paused process go on with what has become due."""
        self._ready.extend(process.resume())  # type: ignore[attr-defined] # the base class's queue

    def _step(self, ready: Any) -> None:
        """Let a busy turn take its time."""
        self.now_us += TURN_US
        self._busy_turns += 1
        if self._busy_turns > MAX_BUSY_TURNS:
            raise Livelock(f"no pause in {MAX_BUSY_TURNS} turns: {list(ready)[:3]}")
        timers = self._timers
        if timers and timers[0][0] <= self.now_us:
            self._take_due(ready)

    def _jump(self, ready: Any) -> None:
        """Move the time to the next timer."""
        self._busy_turns = 0
        timers = self._timers
        while timers and _is_cancelled(timers[0][2]):
            heappop(timers)
            self._cancelled_count -= 1
        if not timers:
            raise Deadlock(f"nothing is left to happen at {self.now_us} us")
        self.now_us = max(self.now_us, timers[0][0])
        self._take_due(ready)

    def _take_due(self, ready: Any) -> None:
        timers, now_us = self._timers, self.now_us
        while timers and timers[0][0] <= now_us:
            _, number, handle = heappop(timers)
            if type(handle) is _Timer:
                if handle._cancelled:  # noqa: SLF001 - as the base class does
                    self._cancelled_count -= 1
                    continue
                handle._scheduled = False  # noqa: SLF001 - as above
                process = handle._context.get(PROCESS)  # noqa: SLF001 - whose callback it is
                if process is None or process.is_alive:
                    self.trace.add(now_us, "timer", number)
            ready.append(handle)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what a callback raised; a crash has its effect on its process alone."""
        error = context.get("exception")
        if isinstance(error, SimulatedCrash) or (error is None and "handle" not in context):
            return
        self.failures.append(error or RuntimeError(context.get("message")))
        self.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Raises what any callback of the simulation raised."""
        task = self.create_task(work)
        task.add_done_callback(lambda _task: self.stop())
        while not task.done() and not self.failures:
            self.run_forever()
        if self.failures:
            raise self.failures[0]
        return task.result()

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        """Call back soon; there is one thread."""
        return self.call_soon(callback, *args, context=context)

    # Sockets

    def connect_through(self, connector: Connector) -> None:
        """Take the network in which connections are made."""
        self._connector = connector

    def add_reader(self, fd: Any, callback: Callable[[*Args], object], *args: *Args) -> None:
        """Call back whenever a socket has bytes, an end or a connection."""
        self.sockets[fd].set_reader(asyncio.Handle(callback, args, self, None))

    def remove_reader(self, fd: Any) -> bool:
        """Watch a socket no longer."""
        return self.sockets[fd].set_reader(None) if fd in self.sockets else False

    def add_writer(self, fd: Any, callback: Callable[[*Args], object], *args: *Args) -> None:
        """Call back whenever a socket takes bytes."""
        self.sockets[fd].set_writer(asyncio.Handle(callback, args, self, None))

    def remove_writer(self, fd: Any) -> bool:
        """Watch a socket no longer."""
        return self.sockets[fd].set_writer(None) if fd in self.sockets else False

    async def create_connection(  # type: ignore[override] # fewer ways to call it than the base class has
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a simulated listener; OSError when none answers."""
        assert self._connector is not None, "a network belongs to the loop"
        assert ssl is None, "TLS is not simulated"
        del server_hostname
        return await self._connector.connect(protocol_factory, str(host), int(port or 0))
