"""Event loops for the blocking façades: on a daemon thread, or driven by the calling thread.

Python raises KeyboardInterrupt between any two instructions of the main thread: while a lock is
held, or inside a callback of the event loop, which treats it as a socket failure and continues.
While a client runs its loop in the main thread, the first Ctrl-C therefore only cancels the call
that is waiting, and is raised after the loop has stopped and the locks are released. A second one
is raised immediately.

Kafka: the network and heartbeat threads of its clients.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from ottla.clients.transport import check_process, deadlock_error
from ottla.errors import DeliveryError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future
    from types import FrameType, TracebackType
    from typing import Self

    from ottla.clients.transport import Runtime
    from ottla.errors import ClosedError

T = TypeVar("T")
P = ParamSpec("P")
IDLE_SECONDS = 0.1
JOIN_SECONDS = 5
LAST_CALLS_SECONDS = 2
CANCELLING_TURNS = 3


class Blocking(ABC):
    """Base of the blocking façades: a context manager that closes the client."""

    @abstractmethod
    def close(self) -> None:
        """Close the client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except DeliveryError:  # logged when the records failed
            if error is None:
                raise


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Make a façade's method that waits: arguments, result and errors of the asyncio method."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        result: T = self._thread.call(method(self._async, *arguments, **keywords))
        return result

    return call


def locked(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a façade's method from one that does not wait, under the lock of the core."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        with self._core.runtime.lock:
            return method(self._async, *arguments, **keywords)

    return call


class LoopThread:
    """An event loop that runs on its own daemon thread."""

    def __init__(self, name: str, closed_error: Callable[[], ClosedError]) -> None:
        self.loop = _new_loop()
        self._closed_error = closed_error
        self.is_ending = False
        self._last: asyncio.Task[None] | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._has_ended = False
        self._calls: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(_others_done())
        with self._lock:  # calls that came after the last turn would wait for ever
            self._has_ended = True
            late = list(self._calls)
        for future in late:
            future.cancel()
        if self.is_ending:
            self.loop.close()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, as users' callbacks do."""
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises TimeoutError after timeout seconds, KafkaError(INVALID_REQUEST) in the loop's own
        thread, where it would wait for itself, IllegalStateError after a fork, and ClosedError
        after the end of the loop.
        """
        try:
            check_process(self._pid)
            if self.is_current:
                raise deadlock_error()
        except KafkaError:
            work.close()
            raise
        with self._lock:
            if self._has_ended:
                work.close()
                raise self._closed_error()
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            self._calls.add(future)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            if self._has_ended and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
                raise self._closed_error() from None
            raise
        finally:
            self._calls.discard(future)

    def stop(self) -> None:
        """Stop the loop and join its thread, also when that has closed the loop by itself.

        After a fork nothing is done: both processes have the same selector.
        """
        if os.getpid() != self._pid:
            return
        if not self.is_ending and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(JOIN_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()

    def end_with(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine and stop, without waiting; callable in the loop's own thread."""
        self.is_ending = True
        self._last = self.loop.create_task(work)
        self._last.add_done_callback(self._ended)

    def _ended(self, last: asyncio.Task[None]) -> None:
        """Stop the loop; the error of the last coroutine has no caller, and was logged."""
        if not last.cancelled():
            last.exception()
        self.loop.stop()


async def _others_done() -> None:
    """Complete the calls of other threads, whose callers would otherwise never return."""
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=LAST_CALLS_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


class CallerDrivenLoop:
    """An event loop that runs in the caller's thread during calls, and in its own thread otherwise.

    A loop thread competes with a busy caller for the interpreter lock: every socket read could wait
    5 ms for it. Calls therefore run the loop in the caller's thread. After `IDLE_SECONDS` without a
    call the loop's own thread runs it, for heartbeats and timers. The thread that runs the loop
    holds `_driving`.
    """

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.loop = _new_loop()
        self._runtime = runtime
        self._driving = threading.Lock()
        self._waiting_callers = 0
        self._closed = False
        self._lock = threading.Lock()
        """Held where `_closed` is set, and where a call for the loop's own thread is added."""
        self._calls: set[Future[Any]] = set()
        self._pid = os.getpid()
        self._last_use = time.monotonic()
        self._recheck = threading.Event()
        self.interrupts = Interrupts()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], *, may_cancel: bool = True) -> T:
        """Run a coroutine to its end; Ctrl-C cancels it and is raised once the loop is stopped.

        Raises ClosedError after the end of the loop, IllegalStateError after a fork, and
        KafkaError(INVALID_REQUEST) in a callback of the loop.
        """
        running = asyncio._get_running_loop()  # noqa: SLF001 - the documented low-level way
        try:
            if self.loop.is_closed():
                raise self._runtime.client.closed_error()
            self._runtime.check_may_wait()
        except KafkaError:
            work.close()
            raise
        if running is not None:
            return self._call_from_another_loop(work)
        self.interrupts.hold()
        try:
            self._acquire_loop()
            try:
                self._runtime.set_loop_thread(threading.get_ident())
                return self._run(work, may_cancel=may_cancel)
            finally:
                self._release_loop()
        finally:
            self.interrupts.release()

    def _run(self, work: Coroutine[Any, Any, T], *, may_cancel: bool) -> T:
        loop, interrupts = self.loop, self.interrupts
        task = loop.create_task(work)
        task.add_done_callback(lambda _: loop.stop())
        # Cancels between the task's steps: a step that took records must return them.
        if may_cancel:
            interrupts.set_callback(lambda: loop.call_soon_threadsafe(task.cancel))
        try:
            while not task.done():  # a stop intended for the loop's own thread may arrive late
                loop.run_forever()
        finally:
            interrupts.set_callback(None)
        return task.result()

    def _call_from_another_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Use the loop's own thread: the caller's thread runs another loop, as in a notebook."""
        with self._lock:
            if self._closed:
                work.close()
                raise self._runtime.client.closed_error()
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            self._calls.add(future)
        self._last_use = 0.0
        self._recheck.set()
        try:
            return future.result()
        except CancelledError:
            if not self._closed:
                raise
            raise self._runtime.client.closed_error() from None
        finally:
            self._calls.discard(future)

    def run_turn(self) -> None:
        """Run the callbacks that are due, unless the loop's own thread runs it."""
        check_process(self._pid)
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - see call
            return
        if self._driving.acquire(blocking=False):
            try:
                self._runtime.set_loop_thread(threading.get_ident())
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
            finally:
                self._release_loop(counted=False)

    def _acquire_loop(self) -> None:
        self._waiting_callers += 1
        try:
            while not self._driving.acquire(timeout=0.001):
                with suppress(RuntimeError):
                    self.loop.call_soon_threadsafe(self.loop.stop)
        except BaseException:  # a second Ctrl-C
            self._waiting_callers -= 1
            raise

    def _release_loop(self, *, counted: bool = True) -> None:
        if counted:
            self._waiting_callers -= 1
        self._runtime.set_loop_thread(0)
        self._last_use = time.monotonic()
        self._driving.release()

    def _main(self) -> None:
        while not self._closed:
            idle = time.monotonic() - self._last_use
            if self._waiting_callers or idle < IDLE_SECONDS:
                # a call may wait for minutes: no short waits meanwhile, after it `idle` is 0 again
                self._recheck.wait(IDLE_SECONDS if self._waiting_callers else IDLE_SECONDS - idle)
                self._recheck.clear()
                continue
            with self._driving:
                if not self._waiting_callers and not self._closed:
                    self._runtime.set_loop_thread(threading.get_ident())
                    self.loop.run_forever()
                    self._runtime.set_loop_thread(0)
        if self._calls:
            with self._driving:
                self._cancel_calls()

    def _cancel_calls(self) -> None:
        """Cancel the calls that only this thread runs, in enough turns for their `finally`."""
        for future in list(self._calls):
            future.cancel()
        for _ in range(CANCELLING_TURNS):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def stop(self) -> None:
        """Join the thread and close the loop, but not after a fork; see LoopThread.stop."""
        if self.loop.is_closed() or os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
        self._recheck.set()
        while self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(0.01)
        self.loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return cast("asyncio.AbstractEventLoop", uvloop.new_event_loop())


class Interrupts:
    """Defers Ctrl-C between `hold` and `release`; calls may be nested.

    Has no effect in other threads, and where the program has its own handler for SIGINT. Such a
    handler must not raise during a client's call: it can set a flag, or call `wakeup`.
    """

    def __init__(self) -> None:
        self.is_pending = False
        self._depth = 0
        self._armed = False
        self._on_interrupt: Callable[[], object] | None = None

    def hold(self) -> None:
        """Start deferring; raises the KeyboardInterrupt that the last `release` kept."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth += 1
        if self._depth > 1:
            return
        try:
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._handle)
                self._armed = True
        except KeyboardInterrupt:  # just before the change of handlers
            self.is_pending = True
        if self.is_pending:
            self.release()

    def release(self, *, keep: bool = False) -> None:
        """Stop deferring; raise a pending KeyboardInterrupt, or keep it for the next `hold`."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if self._depth:
            return
        self._on_interrupt = None
        if self._armed:
            self._armed = False
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            except KeyboardInterrupt:  # just after the change of handlers
                self.is_pending = True
        if self.is_pending and not keep:
            self.is_pending = False
            raise KeyboardInterrupt from None

    def set_callback(self, on_interrupt: Callable[[], object] | None) -> None:
        """Set the function called on Ctrl-C, immediately if one is pending; None for none."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._on_interrupt = on_interrupt
        if self.is_pending and on_interrupt is not None:
            on_interrupt()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_pending:
            raise KeyboardInterrupt
        self.is_pending = True
        if self._on_interrupt is not None:
            self._on_interrupt()
