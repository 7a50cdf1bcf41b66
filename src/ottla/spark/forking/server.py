"""The process that Spark's Python daemons are forked from.

It imports what they need and waits for `launcher` on a socket of the user's own. It ends with its
parent, whose end of a pipe is its standard input.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.forking.launcher import HEAD_SIZE, TAKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

PRELOADED: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyarrow",
    "ottla.spark.source",
    "ottla.spark.batch_reader",
    "ottla.spark.stream",
    "ottla.spark.sink",
)
"""Not pandas, which takes as long as all others, and which only functions over it need."""
AT_START: Final = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""Variables that Python and its libraries read once, and what Spark sets them to."""
IMPORT_PATH: Final = "PYTHONPATH"
MAX_REQUEST_BYTES: Final = 1 << 20
REQUEST_SECONDS: Final = 5.0
_STREAMS: Final = 3


def main(listener_number: int) -> None:
    """Import, then fork a daemon for each request until the standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    with socket.socket(fileno=listener_number) as listener:
        preload()
        while _waits_for_request(listener):
            with suppress(OSError, ValueError, LookupError):
                connection, _ = listener.accept()
                with connection:
                    serve(connection, listener)
        directory = Path(listener.getsockname()).parent
    shutil.rmtree(directory, ignore_errors=True)


def preload() -> None:
    """Import the modules; a PySpark that lacks one does without it.

    What is there now is no garbage: the daemon of each fork collects after each task.
    """
    for name in PRELOADED:
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()


def _waits_for_request(listener: socket.socket) -> bool:
    """Whether a request has come before the end of the standard input."""
    ready, _, _ = select.select([0, listener.fileno()], [], [])
    return 0 not in ready


def serve(connection: socket.socket, listener: socket.socket) -> None:
    """Fork a daemon for a request; OSError, ValueError, LookupError for what is none."""
    connection.settimeout(REQUEST_SECONDS)
    head, streams, _, _ = socket.recv_fds(connection, HEAD_SIZE, _STREAMS)
    try:
        request = _read_request(connection, int.from_bytes(head, "big"))
        if len(streams) < _STREAMS or not _fits(request["environment"]):
            return
        if _fork() == 0:  # keeps the connection, whose end the launcher waits for
            listener.close()
            _run(request, streams)
        connection.sendall(TAKEN)
    finally:
        for one in streams:
            os.close(one)


def _read_request(connection: socket.socket, size: int) -> dict[str, Any]:
    if size > MAX_REQUEST_BYTES:
        raise ValueError(f"a request of {size} bytes")
    with connection.makefile("rb") as file:
        request: dict[str, Any] = json.loads(file.read(size))
    return request


def _fits(environment: dict[str, str]) -> bool:
    """Whether a process with this environment can be forked from this one."""
    return all(environment.get(name, os.environ[name]) == os.environ[name] for name in AT_START)


def _fork() -> int:
    with warnings.catch_warnings():
        # the other threads are pyarrow's allocator's, which follows forks
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _run(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Be the daemon that asked, in this fork; does not return."""
    status = 1
    try:
        _become(request, streams)
        from pyspark.daemon import manager

        manager()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - the fork ends here, not in the server's loop
        traceback.print_exc()
    finally:
        os._exit(status)


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Take the streams, the environment, the arguments and the import path of a process."""
    for number, one in enumerate(streams):
        os.dup2(one, number)
        os.close(one)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    known = sys.path if sys.flags.safe_path else [request["directory"], *sys.path[1:]]
    given = os.environ.get(IMPORT_PATH, "").split(os.pathsep)
    sys.path[:] = [*known[:1], *(one for one in given if one and one not in known), *known[1:]]
    sys.argv[1:] = request["arguments"]
    time.tzset()
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()  # each process has numbers of its own, as Python's `random` sees to


if __name__ == "__main__":
    main(int(sys.argv[1]))
