"""`ottla streams run` as a process of its own, with all processes that it starts."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from ottla import Admin, Producer
from tests.spark.streams_topics import written
from tests.waits import wait_for

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

PROGRAM = """
import os
import time
from pathlib import Path

from ottla.streams import Materialized, StreamsBuilder, StreamsConfig

MARKS = Path({marks!r})
(MARKS / "loaded").touch()


def slowly(value):
    (MARKS / "batch").touch()
    (MARKS / ("batch-" + os.environ[{mark!r}])).touch()
    end_s = time.monotonic() + value["pause_s"]
    while time.monotonic() < end_s and not (MARKS / "hurry").exists():
        time.sleep(0.02)
    return value["number"]


builder = StreamsBuilder(StreamsConfig(application_id="{name}"))
numbers = builder.stream("{name}-in").map_values(slowly)
numbers.to("{name}-out")
numbers.group_by_key().count(materialized=Materialized("counts"))
"""
MARK = "OTTLA_TEST_RUN"
"""The variable of the environment that all processes of a run have."""
START_S = 600.0


class SlowApplication:
    """A program whose records take a while, its topics, and what was sent to it."""

    def __init__(self, bootstrap: str, directory: Path, name: str) -> None:
        self.bootstrap, self.directory, self.name = bootstrap, directory, name
        self.program = directory / f"{name}.py"
        self.marks = directory / f"{name}-marks"
        self.marks.mkdir()
        self.program.write_text(PROGRAM.format(name=name, marks=str(self.marks), mark=MARK))
        self.checkpoint = str(directory / f"{name}-checkpoint")
        self.sent = 0
        with Admin(bootstrap_servers=bootstrap) as admin:
            for topic in (f"{name}-in", f"{name}-out"):
                admin.create_topic(topic, partitions=2)

    def send(self, count: int, pause_s: float = 0.0) -> None:
        """Send the next numbers, in turn to both partitions; the odd ones take a while.

        They take no longer once `hurry` is called.
        """
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(self.sent, self.sent + count):
                value = b'{"number": %d, "pause_s": %f}' % (number, number % 2 * pause_s)
                producer.send(f"{self.name}-in", value, "k", partition=number % 2)
        self.sent += count

    def results(self) -> list[int]:
        """Return the numbers that are written as committed, sorted."""
        return sorted(written(self.bootstrap, f"{self.name}-out").get("k", []))

    def wait_until_exact(self, limit_s: float = START_S) -> None:
        """Wait until all numbers have arrived; each must be there once."""
        wait_for(lambda: len(self.results()) >= self.sent, limit_s)
        assert self.results() == list(range(self.sent))

    def has(self, mark: str) -> bool:
        """Whether a run has come so far."""
        return (self.marks / mark).exists()

    def hurry(self) -> None:
        """End the pauses, of later runs, too, until the marks are deleted."""
        (self.marks / "hurry").touch()

    def forget(self) -> None:
        """Delete the marks of former runs."""
        for mark in self.marks.iterdir():
            mark.unlink()


class StreamsProcess:
    """One run of a program, ended with the block."""

    def __init__(self, app: SlowApplication, *options: str, checkpoint: str | None = None) -> None:
        self.token = secrets.token_hex(8)
        self.errors = app.directory / f"{self.token}.err"
        self.output = app.directory / f"{self.token}.out"
        command = [sys.executable, "-m", "ottla", "streams", "run", str(app.program)]
        command += ["--bootstrap-server", app.bootstrap]
        command += ["--checkpoint", checkpoint or app.checkpoint, *options]
        with self.errors.open("wb") as errors, self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, MARK: self.token},
                cwd=app.directory,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(self.told())

    def kill(self) -> None:
        """Kill it with all that it has started, as a machine that stops."""
        others = self.others()
        self.process.kill()
        for one in others:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()

    def others(self) -> list[psutil.Process]:
        """Return the processes that it has started, and that are not ended."""
        everything = psutil.process_iter()
        return [one for one in everything if one.pid != self.process.pid and self._has(one)]

    def _has(self, process: psutil.Process) -> bool:
        try:
            is_dead = process.status() == psutil.STATUS_ZOMBIE
            if is_dead or process.environ().get(MARK) != self.token:
                return False
            # what makes the archive of classes for later runs goes on by itself, with its Java
            return not any(map(_makes_archive, [process, *process.parents()]))
        except psutil.Error:
            return False

    def has_java(self) -> bool:
        """Whether its JVM is there."""
        return bool(self._java())

    def suspend_java(self) -> None:
        """Let its JVM answer no more, so that a stop in good order does not end."""
        for one in self._java():
            one.suspend()

    def _java(self) -> list[psutil.Process]:
        return [one for one in self.others() if "java" in _name(one)]

    def ended(self, limit_s: float) -> int:
        """Wait for its end, and for that of all its processes; return the exit status."""
        status = self.process.wait(limit_s)
        wait_for(lambda: not self.others(), limit_s)
        return status

    def lines(self) -> list[str]:
        """Return the lines of its standard error, without those of Spark's Python workers."""
        lines = self.errors.read_text(errors="replace").splitlines()
        return [one for one in lines if one and "Streaming TransformWithState" not in one]

    def told(self) -> str:
        """Return the ends of what it has written."""
        return "\n".join(
            f"{one.name}:\n{one.read_text(errors='replace')[-3000:]}"
            for one in (self.errors, self.output)
        )


def _makes_archive(process: psutil.Process) -> bool:
    return "ottla.spark.jvm.class_archive" in process.cmdline()


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""
