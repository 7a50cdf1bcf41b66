"""The states of an application, its listener, and whether it is paused.

Kafka: org.apache.kafka.streams.KafkaStreams.{State, StateListener}, TopologyMetadata.pauseTopology
(KIP-834).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Final

from ottla.streams.errors import StreamsException


class ApplicationState(Enum):
    """A state, with Kafka's name; docs/streams.md says what each means here."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


StateListener = Callable[[ApplicationState, ApplicationState], object]
"""Is called with the new state and the old one."""

_CREATED, _STARTING, _RUNNING, _STOPPING, _STOPPED, _FAILING, _FAILED = ApplicationState
NEXT: Final = {
    _CREATED: {_STARTING, _STOPPING},
    _STARTING: {_RUNNING, _STOPPING, _FAILING},
    _RUNNING: {_STARTING, _STOPPING, _FAILING},
    _STOPPING: {_STOPPED},
    _STOPPED: {_STARTING},
    _FAILING: {_FAILED},
    _FAILED: {_STARTING},
}
"""Kafka's, less RUNNING after RUNNING; unlike there an application may be started again."""


class Lifecycle:
    """The state of an application, which several threads may read and change."""

    def __init__(self) -> None:
        self.state = _CREATED
        self.is_paused = False
        self._listener: StateListener | None = None
        self._changed = threading.Condition()

    @property
    def has_listener(self) -> bool:
        """Whether changes are to be found as they come."""
        return self._listener is not None

    @property
    def is_started(self) -> bool:
        """Whether the application runs, or is about to."""
        return self.state in {_STARTING, _RUNNING}

    def set_listener(self, listener: StateListener | None) -> None:
        """Set what is called with each change; StreamsException after the first start."""
        with self._changed:
            if self.state is not _CREATED:
                raise StreamsException(
                    "Can only set StateListener before calling start(). Current state is: "
                    f"{self.state.name}"
                )
            self._listener = listener

    def starting(self) -> None:
        """Note that topics are checked and the query is planned."""
        self._move(_STARTING)

    def running(self) -> None:
        """Note that the query runs."""
        self._move(_RUNNING)

    def failed(self) -> None:
        """Note an error, if it comes while the application runs."""
        self._move(_FAILING, _FAILED)

    def ended(self) -> None:
        """Note the end, unless there was an error before."""
        self._move(_STOPPING, _STOPPED)

    def stopping(self) -> None:
        """Note that the application is being stopped; `ended` follows."""
        self._move(_STOPPING)

    def pause(self, *, is_paused: bool) -> None:
        """Set whether it is paused."""
        with self._changed:
            self.is_paused = is_paused
            self._changed.notify_all()

    def wait_while_paused(self, timeout_s: float | None) -> bool:
        """Return whether the pause, or the application, has ended within a time."""
        ended = {_STOPPED, _FAILED}
        with self._changed:
            return self._changed.wait_for(
                lambda: not self.is_paused or self.state in ended, timeout_s
            )

    def _move(self, *states: ApplicationState) -> None:
        """Go through states; nothing happens where they do not follow."""
        with self._changed:
            for state in states:
                if state not in NEXT[self.state]:
                    continue
                old, self.state = self.state, state
                if self._listener is not None:
                    self._listener(state, old)
            self._changed.notify_all()
