"""The stop of a command by a signal is not interrupted by that signal's repetitions."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.options.stop_signals import StopSignals

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_alarm_that_comes_while_the_stop_begins_does_not_interrupt_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would leave the session, and its JVM, as they are."""
    set_handler = signal.signal
    with StopSignals(lambda: None, is_endless=True) as signals:

        def late(number: int, handler: Any) -> Any:
            signal.raise_signal(signal.SIGALRM)
            return set_handler(number, handler)

        monkeypatch.setattr(signal, "signal", late)
        signals.settle()
        monkeypatch.undo()
    assert signal.getsignal(signal.SIGALRM) == signals._give_up
