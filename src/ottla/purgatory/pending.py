"""The result of an operation that is not complete yet, and the queue of waiters for commits.

Kafka: CompletableFuture as its coordinators and controller use it, but for one thread; and
org.apache.kafka.deferred.DeferredEventQueue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

T = TypeVar("T")
U = TypeVar("U")
_UNSET: Any = object()
W = TypeVar("W")


class Pending(Generic[T]):
    """Holds a value or an exception; callbacks run on completion, in the order they were added.

    A callback must not raise: the first error reaches the caller that completes this, not `error`,
    after all callbacks have run.
    """

    __slots__ = ("_callbacks", "_error", "_value")

    def __init__(self) -> None:
        self._value: T = _UNSET
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Pending[T]], None]] = []

    @classmethod
    def of(cls, value: T) -> Pending[T]:
        """Return a Pending that is complete with value."""
        pending = cls()
        pending._value = value
        return pending

    @classmethod
    def failed(cls, error: Exception) -> Self:
        """Return a failed one."""
        pending = cls()
        pending._error = error
        return pending

    @property
    def done(self) -> bool:
        """Whether a value or an error has arrived."""
        return self._value is not _UNSET or self._error is not None

    @property
    def succeeded(self) -> bool:
        """Whether a value has arrived."""
        return self._value is not _UNSET

    @property
    def value(self) -> T:
        """The value; raises the error it failed with."""
        if self._value is _UNSET:
            assert self._error is not None, "not complete yet"
            raise self._error
        return self._value

    @property
    def error(self) -> Exception | None:
        """The error it failed with, if any."""
        return self._error

    def complete(self, value: T) -> bool:
        """Set the value; return False when it is complete already."""
        if self._value is not _UNSET or self._error is not None:
            return False
        self._value = value
        callbacks = self._callbacks
        if callbacks:
            self._callbacks = []
            _call_all(callbacks, self)
        return True

    def fail(self, error: Exception) -> bool:
        """Set the error; return False when it is complete already."""
        if self.done:
            return False
        self._error = error
        self._run()
        return True

    def job_done(self, value: T | None, error: Exception | None) -> None:
        """Complete with the result of a worker's job; passed to the worker as its `done`."""
        if error is not None:
            self.fail(error)
        else:
            self.complete(value)  # type: ignore[arg-type] # the job's own result

    def on_done(self, callback: Callable[[Pending[T]], None]) -> None:
        """Call back with this object on completion, or now if it is complete already."""
        if self._value is not _UNSET or self._error is not None:
            callback(self)
        else:
            self._callbacks.append(callback)

    def pass_to(self, other: Pending[T]) -> None:
        """Complete another one with the same value or error."""

        def forward(done: Pending[T]) -> None:
            if done.error is not None:
                other.fail(done.error)
            else:
                other.complete(done.value)

        self.on_done(forward)

    def then(self, function: Callable[[T], U]) -> Pending[U]:
        """Return a Pending of function(value); errors, function's own included, pass through."""
        result: Pending[U] = Pending()

        def forward(done: Pending[T]) -> None:
            try:
                value = function(done.value)
            except Exception as error:  # noqa: BLE001 - raised when the value is read
                result.fail(error)
            else:  # an error of a callback is not function's: it is raised here
                result.complete(value)

        self.on_done(forward)
        return result

    def _run(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        _call_all(callbacks, self)


def _call_all(callbacks: list[Callable[[Pending[T]], None]], done: Pending[T]) -> None:
    """Run callbacks; raise the first error after the last one, with notes of the others."""
    failed: Exception | None = None
    for callback in callbacks:
        try:
            callback(done)
        except Exception as error:  # noqa: BLE001 - raised below
            if failed is None:
                failed = error
            else:
                failed.add_note(f"another callback raised {error!r}")
    if failed is not None:
        raise failed


class Steps(Pending[T]):
    """The value of an operation of several steps, complete when the last step is.

    Add each step before `begin`; a step in progress may add further ones.
    """

    __slots__ = ("_open", "_result")

    def __init__(self, result: Callable[[], T]) -> None:
        """Take the function that makes the value after the last step; it must not raise."""
        super().__init__()
        self._result = result
        self._open = 1

    def add(self, step: Pending[Any]) -> None:
        """Wait for another step, whether it succeeds or fails."""
        self._open += 1
        step.on_done(self._step_done)

    def begin(self) -> Steps[T]:
        """Complete when the added steps are done, which may be now; return self."""
        self._step_done(self)
        return self

    def _step_done(self, _step: Pending[Any]) -> None:
        self._open -= 1
        if not self._open:
            self.complete(self._result())


def all_done(steps: Iterable[Pending[Any]]) -> Pending[None]:
    """Return what is complete when the last step is, whether or not some failed."""
    result: Steps[None] = Steps(lambda: None)
    for step in steps:
        result.add(step)
    return result.begin()


def as_pending(result: Any) -> Pending[Any]:
    """Return what may be complete already as a Pending."""
    return result if isinstance(result, Pending) else Pending.of(result)


class OffsetQueue(Generic[W]):
    """Waiters by offset; those of one offset keep the order in which they were added."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, W]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that is waited for."""
        return self._waiting[0][0] if self._waiting else None

    def add(self, offset: int, waiter: W) -> None:
        """Add a waiter for an offset that is not lower than that of the waiter added last."""
        self._waiting.append((offset, waiter))

    def take(self, committed_offset: int) -> Iterator[W]:
        """Remove and yield the waiters for offsets up to the committed one.

        Waiters may be added meanwhile.
        """
        waiting = self._waiting
        while waiting and waiting[0][0] <= committed_offset:
            yield waiting.popleft()[1]

    def take_all(self) -> list[W]:
        """Remove and return all waiters: what they wait for will not be committed here."""
        waiting = [waiter for _, waiter in self._waiting]
        self._waiting.clear()  # the same deque, of which `take` may be in the middle
        return waiting
