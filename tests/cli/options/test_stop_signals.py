"""The stop of a command by a signal: once, at any point, in order; at once by a second one."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Self

import click
import pytest
from click.testing import CliRunner

from ottla.cli.commands import streams as command
from ottla.cli.commands.quickstart import run_quickstart
from ottla.cli.options.stop_signals import StopSignals
from ottla.errors import OttlaError
from ottla.quickstart import job
from ottla.quickstart import run as quickstart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logging, "disable", lambda: None)
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
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


def test_an_alarm_that_comes_after_the_command_interrupts_nothing() -> None:
    """It was on its way when the alarm was switched off; the last line is still printed."""
    with suppress(KeyboardInterrupt), StopSignals(lambda: None, is_endless=False):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGALRM)


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
    (tmp_path / "app.py").touch()
    arguments = ["run", str(tmp_path / "app.py"), "--bootstrap-server", "host:1"]
    done = CliRunner().invoke(command.streams, [*arguments, "--checkpoint", str(tmp_path)])
    assert done.exit_code == status
    assert ("stopped" in done.output) == (status == 0)


def test_the_status_is_that_of_the_signal_wherever_it_comes(tmp_path: Path) -> None:
    """A plain KeyboardInterrupt that leaves an `exec` makes `python -m` end by SIGINT."""
    (tmp_path / "program.py").write_text("""
import signal, sys
from ottla.cli.options.stop_signals import StopSignals

with StopSignals(lambda: None, is_endless=False) as signals:
    try:
        exec("signal.raise_signal(signal.SIGTERM)")
    except KeyboardInterrupt:
        sys.exit(signals.status)
""")
    done = subprocess.run([sys.executable, "-m", "program"], cwd=tmp_path, check=False)
    assert done.returncode == 128 + signal.SIGTERM


def test_signals_wait_while_a_directory_is_made() -> None:
    """An interrupt while mkdtemp probes the directory with a file leaves no file."""
    done = []

    def make() -> None:
        with StopSignals(lambda: None, is_endless=False) as signals, signals.held():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGALRM)
            done.append("made and noted")

    with pytest.raises(KeyboardInterrupt):
        make()
    assert done == ["made and noted"]


def test_a_second_signal_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After what must not be left, with the status of that signal."""

    def end(status: int) -> NoReturn:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", end)
    steps: list[str] = []
    signals = StopSignals(lambda: steps.append("killed"), is_endless=False)
    with signals, suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signals.settle()
    with pytest.raises(SystemExit) as ended:
        signal.raise_signal(signal.SIGTERM)
    assert (ended.value.code, steps) == (143, ["killed"])
    assert capsys.readouterr().err == "stopped at once\n"
    signal.setitimer(signal.ITIMER_REAL, 0)


def test_what_must_not_be_left_ends_where_nobody_reads_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The terminal is gone, or the reader of a pipe; a signal may come within another line."""

    def end(status: int) -> NoReturn:
        raise SystemExit(status)

    def echo(*_: Any, **__: Any) -> NoReturn:
        raise errors.pop()

    errors = [BrokenPipeError(), RuntimeError("reentrant call")]
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(click, "echo", echo)
    steps: list[str] = []
    while errors:
        signals = StopSignals(lambda: steps.append("killed"), is_endless=False)
        with signals:
            signals.settle()
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGTERM)
    assert steps == ["killed", "killed"]


def test_a_process_that_ignores_the_end_of_its_terminal_goes_on() -> None:
    """As nohup starts it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignals(lambda: None, is_endless=False) as signals:
        signal.raise_signal(signal.SIGHUP)
        assert not signals.is_stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("error", [None, OttlaError("the node is away"), OSError("away")])
def test_a_quickstart_that_a_signal_has_stopped(
    number: signal.Signals,
    error: Exception | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Foreign code caught the interrupt: it comes to its end, or fails by the interrupt."""

    def run(*_: object) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        if error is not None:
            raise error

    monkeypatch.setattr(quickstart, "_run", run)
    with pytest.raises(SystemExit) as ended:
        run_quickstart(with_spark=False)
    assert ended.value.code == 128 + number
    assert capsys.readouterr().err == "\nstopped; nothing is left running\n"


def test_a_process_that_starts_when_a_signal_comes_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupt within its start would leave it, and its JVM, to themselves."""
    steps: list[str] = []

    class Starting:
        """A job."""

        def __init__(self, *_: Any, **__: Any) -> None:
            if not steps:
                signal.raise_signal(signal.SIGINT)
            steps.append("started")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            steps.append("ended")

    monkeypatch.setattr(job, "Job", Starting)
    monkeypatch.setattr(quickstart, "SPARK_NEEDS", ())
    with pytest.raises(SystemExit) as ended:
        run_quickstart()
    assert ended.value.code == 128 + signal.SIGINT
    assert steps == ["started", "started", "ended", "ended"]


def test_a_quickstart_that_is_stopped_while_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a moment, in which Ctrl-C has the same status as later."""

    class Importing:
        """Finds no module."""

        def find_spec(self, name: str, *_: object) -> None:
            """Be interrupted."""
            if name == quickstart.__name__:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.delitem(sys.modules, quickstart.__name__)
    monkeypatch.setattr(sys, "meta_path", [Importing(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        run_quickstart()
    assert ended.value.code == 128 + signal.SIGINT
