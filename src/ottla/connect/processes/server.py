"""The process that connectors' processes are forked from: `python -m` this module, for a worker.

It has one thread and has imported what tasks need, so a fork is safe, takes milliseconds and shares
its memory. At the end of its worker's socket it kills all forks; at its own end the system does.

Kafka: none; a JVM cannot be forked.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NamedTuple

REQUEST: Final = struct.Struct("!cI")
"""FORK or KILL, and the number that the worker gives a process."""
REPLY: Final = struct.Struct("!cIi")
"""STARTED with the process id, ENDED with the status as of `os.waitpid`, or REFUSED with the errno
of the fork; after its number."""
FORK: Final = b"F"
KILL: Final = b"K"
STARTED: Final = b"S"
ENDED: Final = b"E"
REFUSED: Final = b"R"
_PRELOADED: Final = (
    "ottla.connect.processes.child",
    "ottla.connect.converters.json",
    "ottla.connect.converters.primitive",
    "ottla.connect.transforms",
    "ottla.connect.file.source",
    "ottla.connect.file.sink",
)
"""What most tasks need. No library that starts threads when it is imported, as pyarrow."""
_DESCRIPTORS: Final = 2
_SET_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


class Fork(NamedTuple):
    """What a fork has of its worker."""

    connection: socket.socket
    output: int
    """A pipe for what it prints."""


class ConnectorForks:
    """Forks and kills processes for a worker, and says when they have ended."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ids: dict[int, int] = {}
        self._wakeups, self._wakeup = os.pipe()
        for number in (self._wakeups, self._wakeup):
            os.set_blocking(number, False)

    def serve(self) -> Fork | None:
        """Serve until the worker's end; in each fork return what it has."""
        # SIGTERM comes to all processes of a service: the worker stops its connectors itself
        for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, _ignore)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        waited: list[Any] = [self._connection, self._wakeups]
        while True:
            ready, _, _ = select.select(waited, [], [])
            if self._wakeups in ready:
                with suppress(BlockingIOError):
                    os.read(self._wakeups, 4096)
                self._reap()
            if self._connection in ready:
                request, numbers, _, _ = socket.recv_fds(
                    self._connection, REQUEST.size, _DESCRIPTORS
                )
                if len(request) < REQUEST.size:
                    break
                kind, number = REQUEST.unpack(request)
                if kind == KILL:
                    self._kill(number)
                elif (fork := self._fork(number, numbers)) is not None:
                    return fork
        for number in self._ids:
            self._kill(number)
        return None

    def _fork(self, number: int, descriptors: list[int]) -> Fork | None:
        try:
            process_id = os.fork()
        except OSError as error:  # no memory, or no more processes: those that run go on
            self._reply(REFUSED, number, error.errno or 0)
            process_id = -1
        if process_id == 0:
            self._connection.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for own in (self._wakeups, self._wakeup):
                os.close(own)
            os.setsid()  # what the connector starts ends with it
            for received in descriptors:
                os.set_inheritable(received, False)  # programs that the connector starts need none
            return Fork(socket.socket(fileno=descriptors[0]), descriptors[1])
        for descriptor in descriptors:
            os.close(descriptor)
        if process_id > 0:
            self._ids[number] = process_id
            self._reply(STARTED, number, process_id)
        return None

    def _kill(self, number: int) -> None:
        process_id = self._ids.get(number)  # else it has ended: its id may be another's by now
        if process_id is not None:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)  # it may not have its group yet
            with suppress(ProcessLookupError):
                os.killpg(process_id, signal.SIGKILL)

    def _reap(self) -> None:
        numbers = {process_id: number for number, process_id in self._ids.items()}
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            with suppress(ProcessLookupError, PermissionError):
                # before its id is free: what it has left behind
                os.killpg(ended.si_pid, signal.SIGKILL)
            _, status = os.waitpid(ended.si_pid, 0)
            number = numbers.get(ended.si_pid)
            if number is not None:
                del self._ids[number]
                self._reply(ENDED, number, status)

    def _reply(self, kind: bytes, number: int, value: int) -> None:
        with suppress(OSError):  # the worker's end is seen by `serve`
            self._connection.sendall(REPLY.pack(kind, number, value))


def _ignore(*_: object) -> None:
    """Take a signal; other than SIG_IGN this is not inherited by programs that connectors start."""


def die_with_parent() -> None:
    """Have the system kill this process at the end of the one that forked it, on Linux."""
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Import, freeze what is there for all forks to share, and serve."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    for name in _PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    fork = ConnectorForks(connection).serve()
    if fork is not None:
        die_with_parent()
        from ottla.connect.processes.child import run_fork

        run_fork(fork.connection, fork.output)


if __name__ == "__main__":
    main()
