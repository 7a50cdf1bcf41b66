"""The stop of a command by a signal is not interrupted by that signal's repetitions."""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from ottla.cli.commands import streams as command
from ottla.cli.options.stop_signals import StopSignals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


@pytest.mark.parametrize("status", [0, 1])
def test_an_error_that_the_stop_has_caused_is_not_reported(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Foreign code caught the interrupt; a call of the JVM failed before the next one."""

    def run(*_: Any) -> None:
        if status == 0:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        raise click.ClickException("the connection to Java is lost")

    monkeypatch.setattr(command, "_run_program", run)
    monkeypatch.setattr(logging, "disable", lambda: None)
    (tmp_path / "app.py").touch()
    arguments = ["run", str(tmp_path / "app.py"), "--bootstrap-server", "host:1"]
    done = CliRunner().invoke(command.streams, [*arguments, "--checkpoint", str(tmp_path)])
    assert done.exit_code == status
    assert ("stopped" in done.output) == (status == 0)
