"""Signals to a command that starts processes: one stops it, a second one at once.

Ctrl-C, SIGTERM, and SIGHUP, which the end of a terminal sends.

Kafka: none; a JVM runs its shutdown hooks.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Self

_HANGUP: Final = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()  # Windows has none
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, *_HANGUP)
_ALARM: Final = (signal.SIGALRM,) if hasattr(signal, "SIGALRM") else ()  # Windows has none
_AGAIN_S: Final = 0.25
STOP_S: Final = 8.0
"""After that time of stopping in good order everything is ended by force."""


class _Interrupt(KeyboardInterrupt):
    """Ends a command with its own status.

    `python -m` ends by SIGINT whatever the status, once a KeyboardInterrupt of exactly that class
    has left the `exec` of a text, as of a named tuple, even if it is caught afterwards.
    """


class StopSignals:
    """Turns the first signal into KeyboardInterrupt.

    Foreign code may catch it (a destructor, a callback), so it is raised again at intervals until
    `settle`. `end_now` is called by a second signal, or when stopping takes too long, before the
    process ends. `is_endless` says that the command has no other end.
    """

    def __init__(self, end_now: Callable[[], None], *, is_endless: bool) -> None:
        self._end_now = end_now
        self._is_endless = is_endless
        self._is_settled = self._is_held = False
        self._number = 0

    @property
    def is_stopping(self) -> bool:
        """Whether a signal has arrived."""
        return self._number != 0

    @property
    def status(self) -> int:
        """The exit status of the command that a signal has stopped."""
        return 0 if self._is_endless else 128 + (self._number or signal.SIGINT)

    def __enter__(self) -> Self:
        for number in _STOPPING:
            if number not in _HANGUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                signal.signal(number, self._receive)
        for number in _ALARM:
            signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_settled = True  # an alarm may be on its way: it must not interrupt the last line
        _set_alarm(0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay the interrupt, so that everything created inside is registered for the stop."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self.is_stopping:
            raise _Interrupt

    def settle(self) -> None:
        """Interrupt no more: the stop follows, and its time is limited after a signal."""
        self._is_settled = True
        for number in _ALARM:
            signal.signal(number, self._give_up)
        _set_alarm(STOP_S if self._number else 0)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._number or self._is_settled:
            self._end("stopped at once", 128 + number)
        self._number = number
        logging.disable()  # py4j logs the interrupt of a call with its stack trace
        _set_alarm(_AGAIN_S, _AGAIN_S)
        self._interrupt(number, _frame)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if not (self._is_settled or self._is_held):
            raise _Interrupt

    def _give_up(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self._end("stopped", self.status)

    def _end(self, line: str, status: int) -> NoReturn:
        try:
            with suppress(OSError, RuntimeError):  # no reader, or interrupted in a line of its own
                click.echo(line, err=True)
            self._end_now()
        finally:
            os._exit(status)


def _set_alarm(first_s: float, again_s: float = 0) -> None:
    if _ALARM:
        signal.setitimer(signal.ITIMER_REAL, first_s, again_s)
