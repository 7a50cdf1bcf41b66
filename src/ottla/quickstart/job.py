"""The Spark job of the quickstart in a process of its own, which is killed in its middle.

Kafka: none. Two are started before the node, whose address they get later: the second has its
session ready when the first is killed, goes on from the checkpoint, and fences the first. A process
ends with its parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

STOP_SECONDS = 10.0
POLL_SECONDS = 0.01
WARM_UP = "--warm-up"
ATTEMPTS = 5
SLOW_WORKER = "Python worker failed to connect back"
"""Spark gives a worker ten seconds to start; a busy machine exceeds them, and the job goes on."""


class Job:
    """A process with a Spark session; it waits for the order to run the job.

    One that warms up reads a topic first: Spark's Python processes are there when the job begins.
    """

    def __init__(self, temp_dir: Path, checkpoint: Path, *, warms_up: bool = False) -> None:
        self._checkpoint = checkpoint
        arguments = [str(temp_dir), str(checkpoint), *([WARM_UP] if warms_up else [])]
        self._process = subprocess.Popen(  # noqa: S603 - this module
            [sys.executable, "-m", "ottla.quickstart.job", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal reaches the parent only
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def session(self) -> str:
        """Wait for the session; return Spark's version. Raises OttlaError."""
        return str(self._answer()["spark"])

    def connect(self, bootstrap: str) -> None:
        """Name the node, once the topics are there."""
        self._send(bootstrap)

    def begin(self) -> None:
        """Let the job begin."""
        self._send("begin")

    def _send(self, word: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended; what it has answered says why
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()

    def wait(self, progress: Callable[[int], None]) -> None:
        """Wait for the end of the job and report the rows read; raises OttlaError if it fails."""
        while not (answer := self._answer()).get("is_done"):
            progress(int(answer["rows"]))

    def wait_for_second_batch(self, progress: Callable[[int], None]) -> None:
        """Wait until one micro-batch is done and the next one has begun."""
        while not self._is_in_second_batch():
            answer = self._answer()
            progress(int(answer.get("rows", 0)))
            if answer.get("is_done"):
                return

    def _is_in_second_batch(self) -> bool:
        logs = self._checkpoint / "commits" / "0", self._checkpoint / "offsets" / "1"
        return all(path.exists() for path in logs)

    def kill(self) -> None:
        """Kill the process, its JVM and its workers with SIGKILL, all at once."""
        try:
            killed = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            killed = []
        self._process.kill()
        for one in killed:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.communicate()
        # Wait until none of the processes runs; their parent may take a second to notice an end.
        deadline = time.monotonic() + STOP_SECONDS
        while any(_is_alive(process) for process in killed) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process ended"}
        if "error" in answer:
            raise OttlaError(f"Spark: {answer['error']}")
        return answer


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def main(arguments: list[str]) -> None:
    """Start a session, wait for the node and the word to begin, run the job; answers are lines."""
    from ottla.quickstart import pipeline
    from ottla.spark.jvm.local_session import make_class_archives, session

    temp_dir, checkpoint, *others = arguments
    try:
        spark = session(
            "ottla quickstart",
            memory="2g",
            fast_start=True,
            temp_dir=Path(temp_dir),
        )
        _report(spark=spark.version)
        if not (bootstrap := sys.stdin.readline().strip()):
            return
        if WARM_UP in others:
            with suppress(OttlaError), pipeline.failures_reported():
                pipeline.airlines_table(spark, bootstrap).count()
        if not sys.stdin.readline():
            return
        threading.Thread(target=_end_with_parent, daemon=True).start()
        for is_last in (*(ATTEMPTS - 1) * (False,), True):
            try:
                with pipeline.failures_reported():
                    query = pipeline.start_query(spark, bootstrap, checkpoint)
                    pipeline.wait(query, lambda rows: _report(rows=rows))
                break
            except OttlaError as error:
                if is_last or SLOW_WORKER not in str(error):
                    raise
        make_class_archives()  # this process does not exit, it is killed
        _report(is_done=True)
    except OttlaError as error:
        _report(error=str(error))
    sys.stdin.readline()  # the parent ends this process
    os._exit(0)


def _report(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    while sys.stdin.readline():
        pass
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
