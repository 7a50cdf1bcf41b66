"""The process that Spark's Python processes are forked from.

It imports what they need and waits for `launcher` on a socket of the user's own. It ends with its
parent, whose end of a pipe is its standard input.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import time
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from ottla.spark.forking.launcher import NUMBER_SIZE, PREFIX, TAKEN, TEXT, environment
from ottla.spark.processes import DAEMON

TASKS: Final = "pyspark.worker"
PRELOADED: Final = (
    DAEMON,
    TASKS,
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyarrow",
    "ottla.spark.source",
    "ottla.spark.batch_reader",
    "ottla.spark.stream",
    "ottla.spark.sink",
)
"""Not pandas, which takes as long as all others, and which only functions over it need."""
THREADS: Final = "OMP_NUM_THREADS"
"""What libraries read when they are imported; Spark sets it for tasks."""
IMPORT_PATH: Final = "PYTHONPATH"
READ_LATE: Final = ("OTTLA_", "PYSPARK_", "PYTHON_", "SPARK_", "_PYSPARK_")
"""How variables start that PySpark reads where it needs them."""
READ_LATE_TOO: Final = frozenset({IMPORT_PATH, "PYTHONUNBUFFERED", "PWD", "OLDPWD", "SHLVL", "_"})
READ_EARLY: Final = frozenset({"PYSPARK_ENABLE_NAMEDTUPLE_PATCH", "SPARK_TESTING"})
"""Those of PySpark that it reads when it is imported."""
IGNORED: Final = (signal.SIGHUP, signal.SIGTERM)
"""What ends a group of processes, among which the driver is: it ends with that."""
MAX_REQUEST_BYTES: Final = 1 << 20
REQUEST_SECONDS: Final = 5.0
TOUCH_SECONDS: Final = 3600.0
"""How often the files get a new time: a session may last longer than the system keeps old ones."""
NOISY: Final = frozenset({"pyspark.sql.streaming.transform_with_state_driver_worker"})
"""Modules of PySpark that print their steps, for each stage with state of a query."""
_STREAMS: Final = 3


class Request(NamedTuple):
    """What a launcher asks for: a module of PySpark to run in its place."""

    connection: socket.socket
    """It is open as long as the fork, for whose end the launcher waits, and what that forks."""
    streams: list[int]
    arguments: list[str]
    """The name of the module and what follows it."""
    environment: dict[str, str]
    directory: str
    """Both as the launcher's `TEXT`."""

    def is_taken(self) -> bool:
        """Whether the launcher still waits: one that has not is Python by now, with its streams."""
        with suppress(OSError):
            return self.connection.recv(1) == TAKEN
        return False

    def close(self) -> None:
        """Leave the streams and the connection to the fork."""
        for stream in self.streams:
            os.close(stream)
        self.connection.close()


def main(listener_number: int) -> None:
    """Import, then fork a process for each request until the standard input ends."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        return  # a fork has their objects
    before = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    request = None
    with socket.socket(fileno=listener_number) as listener:
        directory = Path(listener.getsockname()).parent
        preload()
        while request is None and _waits_for_request(listener, directory):
            request = forked(listener)
    if request is None:
        shutil.rmtree(directory, ignore_errors=True)
        return
    for number, handler in {**before, signal.SIGCHLD: signal.SIG_DFL}.items():
        signal.signal(number, handler)
    if request.is_taken():
        run(request)


def preload() -> None:
    """Import the modules; what cannot be imported here fails, or does not, where it is needed.

    What is there now is no garbage: the daemon of each fork collects after each task.
    """
    for name in PRELOADED:
        with suppress(Exception):
            import_module(name)
    gc.collect()
    gc.freeze()


def _waits_for_request(listener: socket.socket, directory: Path) -> bool:
    """Whether a request has come before the end of the standard input."""
    ready: list[int] = []
    while not ready:
        with suppress(OSError):
            for path in (directory, *directory.iterdir()):
                os.utime(path)
        ready, _, _ = select.select([0, listener.fileno()], [], [], TOUCH_SECONDS)
    return 0 not in ready


def forked(listener: socket.socket) -> Request | None:
    """Fork a process for the next request; return that in the fork, None in this process."""
    request = _accepted(listener)
    if request is None:
        return None
    with suppress(OSError):
        if (process_id := _fork()) == 0:
            return request
        request.connection.sendall(process_id.to_bytes(NUMBER_SIZE, "big"))
    request.close()
    return None


def _accepted(listener: socket.socket) -> Request | None:
    """Return the next valid request; None for a malformed one or one a fork cannot serve."""
    connection: socket.socket | None = None
    streams: list[int] = []
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        connection, _ = listener.accept()
        connection.settimeout(REQUEST_SECONDS)
        head, streams, _, _ = socket.recv_fds(connection, NUMBER_SIZE, _STREAMS)
        size = int.from_bytes(head, "big")
        if len(streams) == _STREAMS and size <= MAX_REQUEST_BYTES:
            with connection.makefile("rb") as file:
                request = Request(connection, streams, **json.loads(file.read(size)))
            if request.arguments[0].startswith(PREFIX) and _fits(request):
                return request
    for stream in streams:
        os.close(stream)
    if connection is not None:
        connection.close()
    return None


def _fits(request: Request) -> bool:
    """Whether a process with this environment can be forked from this one.

    This one has the number of threads of tasks; other processes compute nothing with threads.
    """
    own = environment()
    is_task = TASKS in request.arguments
    return all(
        own.get(name) == value or _is_read_late(name) or (name == THREADS and not is_task)
        for name, value in request.environment.items()
    )


def _is_read_late(name: str) -> bool:
    """Whether neither Python nor a library reads a variable at its start."""
    return name in READ_LATE_TOO or (name.startswith(READ_LATE) and name not in READ_EARLY)


def _fork() -> int:
    with warnings.catch_warnings():
        # the other threads are pyarrow's allocator's, which follows forks
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def run(request: Request) -> None:
    """Be the process that asked, in its fork."""
    become(request)
    module = request.arguments[0]
    sys.modules.pop(module, None)  # it is the main module now
    own = {"print": _print_nothing} if module in NOISY else None
    runpy.run_module(module, init_globals=own, run_name="__main__", alter_sys=True)


def _print_nothing(*_: object) -> None:
    """Take the place of a module's `print`."""


def become(request: Request) -> None:
    """Take the streams, the environment, the arguments and the import path of a process."""
    for number, one in enumerate(request.streams):
        os.dup2(one, number)
        os.close(one)
    os.environ.clear()
    for name, value in request.environment.items():
        os.environb[name.encode(TEXT)] = value.encode(TEXT)
    directory = os.fsdecode(request.directory.encode(TEXT))
    os.chdir(directory)
    sys.path[:] = import_path(directory, os.environ.get(IMPORT_PATH, ""))
    sys.argv[1:] = request.arguments[1:]
    time.tzset()
    _seed_numpy(of_workers=request.arguments[0] == DAEMON)


def import_path(directory: str, given: str) -> list[str]:
    """Return what Python has for a module with this PYTHONPATH, in this directory."""
    first, rest = ([], sys.path) if sys.flags.safe_path else ([directory], sys.path[1:])
    named = [os.path.abspath(one) for one in given.split(os.pathsep) if one]  # noqa: PTH100
    return [*dict.fromkeys([*first, *named, *rest])]


def _seed_numpy(*, of_workers: bool) -> None:
    """Give each process numbers of its own, as Python's `random` does, and those that it forks.

    Before version 2.3 NumPy imports its random numbers with itself: so they are in this process.
    """
    daemon = os.getpid()

    def seed() -> None:
        random = sys.modules.get("numpy.random")
        if random is not None and daemon in (os.getpid(), os.getppid()):
            random.seed()

    seed()
    if of_workers:  # a user's function may fork, too, and rely on what it has set
        os.register_at_fork(after_in_child=seed)


if __name__ == "__main__":
    main(int(sys.argv[1]))
