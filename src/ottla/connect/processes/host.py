"""The processes of connectors as their worker sees them: one thread for all of its process.

It forks them by `server`, passes messages on, logs what they print, watches their memory and
whether they answer, and says how they ended.

Kafka: none.
"""

from __future__ import annotations

import itertools
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.connect.errors import ConnectException
from ottla.connect.processes import server
from ottla.connect.processes.frames import MessageReader, encode_message
from ottla.connect.settings import PROCESS_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    class Listener(Protocol):
        """Who hears of a process; calls come from the host's thread, and may not wait."""

        def on_message(self, message: dict[str, Any]) -> None:
            """Take a message."""

        def on_end(self, reason: str) -> None:
            """Hear that the process has ended, and how: the rest of a sentence."""


log = logging.getLogger("ottla.connect")
_READ_BYTES: Final = 1 << 16
_LINE_BYTES: Final = 8192
"""Longest line that a connector prints, after which it is cut."""
_LOGGER_CHARACTERS: Final = 256
"""Of a logger's name that are looked up, in parts."""
_LAST_READS: Final = 64
"""Of each pipe at the end of a process: more than it has room for. What the process has started may
go on and print without end."""
_LOOK_S: Final = 0.25
"""Between looks at memory: a leak of 1 GB/s gets this much further than its limit."""
_PING_S: Final = 20.0
_PINGS: Final = 3
"""Pings without an answer after which a process is taken to hang: each of its threads can answer,
unless one holds the interpreter for ever, or the process is stopped."""
_CLOSED_S: Final = 2.0
"""Time to end for a process whose pipe is closed."""
_SERVER_END_S: Final = 5.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class ConnectorProcess:
    """A process; its fields belong to the host's thread, its methods are for all."""

    def __init__(
        self, host: ProcessHost, number: int, context: str, limit_mb: int, listener: Listener
    ) -> None:
        """Take its memory's limit, 0 for none."""
        self.number, self.limit_mb = number, limit_mb
        self.process_id: int | None = None
        self.ended = threading.Event()
        self._host, self._context, self._listener = host, context, listener
        self.connection, self.child_connection = socket.socketpair()
        self.output, self.child_output = os.pipe()
        self.connection.setblocking(False)
        os.set_blocking(self.output, False)
        self._frames = MessageReader()
        self._out, self._line = bytearray(), bytearray()
        self._unanswered = 0
        self._reason: str | None = None
        self._end: tuple[float, str] | None = None

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; a process that has ended gets none."""
        data = encode_message(message)
        self._host.call(lambda: self.queue(data))

    def kill(self, reason: str) -> None:
        """Kill the process and all that it has started; the first reason counts."""
        self._host.call(lambda: self._kill(reason))

    def end_within(self, timeout_s: float) -> None:
        """Kill the process unless it ends by itself until then."""
        self._host.call(lambda: self._set_end(timeout_s, "was killed: it did not end in time"))

    # ------------------------------------------------------------ on the host's thread

    def _set_end(self, timeout_s: float, reason: str) -> None:
        if self._end is None:
            self._end = time.monotonic() + timeout_s, reason

    def queue(self, data: bytes) -> None:
        """Send the bytes of a message."""
        if not self.ended.is_set():
            self._out += data
            self._flush()

    def _flush(self) -> None:
        try:
            del self._out[: self.connection.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # its end comes
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        self._host.watch(self.connection, mask, self.on_ready)

    def on_ready(self, mask: int) -> None:
        """Read or write what the pipe takes."""
        if self.ended.is_set():
            return  # in the same turn of the host
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and not self._read():
            # mostly it ends just now, and the server is about to say how
            self._host.ignore(self.connection)
            self._set_end(_CLOSED_S, "has closed its pipe")

    def _read(self) -> bool:
        """Take messages; False at the end of the pipe."""
        try:
            data = self.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        try:
            for message in self._frames.feed(data):
                self._take(message)
        except Exception:
            log.exception("%sa message is not understood", self._context)
            self._kill("has sent what is no message")
            return False
        return bool(data)

    def _take(self, message: dict[str, Any]) -> None:
        self._unanswered = 0
        if message["type"] == "log":
            self._log(message["logger"], message["level"], message["text"], message["context"])
        elif message["type"] != "pong":
            self._listener.on_message(message)

    def _log(self, name: str, level: int, text: str, context: str) -> None:
        known = name[:_LOGGER_CHARACTERS]
        while known and known not in logging.Logger.manager.loggerDict:
            known = known.rpartition(".")[0]
        # a logger is never freed: a name that is new here takes level and handlers of its parent
        logger = logging.getLogger(known)
        if logger.isEnabledFor(level):
            extra = {"connector_context": context}
            logger.handle(logger.makeRecord(name, level, "", 0, text, (), None, extra=extra))

    def read_output(self, _mask: int = 0) -> bool:
        """Log what the connector has printed; whether there may be more at once."""
        if self.ended.is_set():
            return False  # in the same turn of the host: the number may be another file's by now
        try:
            data = os.read(self.output, _READ_BYTES)
        except BlockingIOError:
            return False
        self._line += data
        if not data:
            self._host.ignore(self.output)
        while (end := self._line.find(b"\n")) >= 0 or len(self._line) > _LINE_BYTES or not data:
            end = min(end if end >= 0 else len(self._line), _LINE_BYTES)
            text = self._line[:end].decode(errors="replace").rstrip("\r")
            del self._line[: end + self._line.startswith(b"\n", end)]
            if text:
                self._log("ottla.connect", logging.INFO, f"output: {text}", self._context)
            if not self._line:
                break
        return bool(data)

    def look(self, now_s: float, *, pings: bool) -> None:
        """Watch memory, answers, and the time to end by."""
        if self._end is not None and now_s >= self._end[0]:
            self._kill(self._end[1])
        if self.limit_mb and self.process_id is not None:
            used_mb = memory_mb(self.process_id)
            if used_mb > self.limit_mb:
                self._kill(
                    f"was killed: it used {used_mb} MB, more than {PROCESS_MEMORY}={self.limit_mb}"
                )
        if pings:
            if self._unanswered >= _PINGS:
                self._kill(f"was killed: it has not answered for {_PINGS * _PING_S:g} s")
            self._unanswered += 1
            self.queue(encode_message({"type": "ping"}))

    def _kill(self, reason: str) -> None:
        if self._reason is None and not self.ended.is_set():
            self._reason = reason
            self._host.kill(self.number)

    def refuse(self, reason: str) -> None:
        """Take why the process cannot start; its end follows."""
        log.error("%sa process cannot start: %s", self._context, reason)
        self._reason = f"could not start: {reason}"

    def on_end(self, status: int | None) -> None:
        """Take the last messages, and tell how the process has ended."""
        if status is not None and self._reason is None:
            all(self._read_more() for _ in range(_LAST_READS))
        all(self.read_output() for _ in range(_LAST_READS))
        for file in (self.connection, self.output):
            self._host.ignore(file)
        self.connection.close()
        os.close(self.output)
        self.ended.set()
        self._listener.on_end(self._reason or _ending(status))

    def _read_more(self) -> bool:
        with suppress(OSError):
            return bool(self.connection.recv(1, socket.MSG_PEEK)) and self._read()
        return False


def memory_mb(process_id: int) -> int:
    """Return the memory that is a process's own, without pages of files; 0 after its end.

    RLIMIT_AS and RLIMIT_DATA count what libraries reserve: 2 GB of the former and 1.2 GB of the
    latter with pyarrow's first array, which has 65 MB of its own.
    """
    try:
        _, resident, shared, *_ = Path(f"/proc/{process_id}/statm").read_text().split()
    except (OSError, ValueError):
        return _memory_elsewhere_mb(process_id)
    return (int(resident) - int(shared)) * _PAGE_BYTES >> 20


def _memory_elsewhere_mb(process_id: int) -> int:
    import psutil

    try:
        return int(psutil.Process(process_id).memory_info().rss) >> 20
    except psutil.Error:
        return 0


def _ending(status: int | None) -> str:
    if status is None:
        return "ended with the process that had forked it"
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        return "ended by signal SIGKILL, not of its worker: the system may be out of memory"
    return f"ended by signal {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


class ProcessHost:
    """Starts and watches the processes of all workers of this process."""

    _shared: ProcessHost | None = None
    _users = 0
    _shared_lock = threading.Lock()

    @classmethod
    def acquire(cls) -> ProcessHost:
        """Return the host of this process, which ends with the last `release`."""
        with cls._shared_lock:
            if cls._shared is None:
                cls._shared = cls()
            cls._users += 1
            return cls._shared

    @classmethod
    def release(cls) -> None:
        """End the host unless another worker uses it."""
        with cls._shared_lock:
            cls._users -= 1
            if cls._users or cls._shared is None:
                return
            ending, cls._shared = cls._shared, None
        ending.stop()

    def __init__(self) -> None:
        if not hasattr(os, "fork"):
            raise ConnectException("ottla.runtime=process needs a system with fork: set thread")
        self._selector = selectors.DefaultSelector()
        self._wakeups, self._wakeup = socket.socketpair()
        self._wakeups.setblocking(False)
        self._wakeup.setblocking(False)
        self._calls: deque[Callable[[], None]] = deque()
        self._numbers = itertools.count(1)
        self._processes: dict[int, ConnectorProcess] = {}
        self._server: socket.socket | None = None
        self._server_process: subprocess.Popen[bytes] | None = None
        self._server_data = bytearray()
        self._look_s = self._pinged_s = 0.0
        self._is_stopping = False
        self.watch(self._wakeups, selectors.EVENT_READ, self._on_wakeup)
        self._thread = threading.Thread(target=self._run, name="connector-processes", daemon=True)
        self._thread.start()

    def start(
        self, context: str, limit_mb: int, listener: Listener, begin: Mapping[str, Any]
    ) -> ConnectorProcess:
        """Start a process with its first message; `context` is for the log."""
        data = encode_message(begin)  # may fail, while there is no process yet
        made = ConnectorProcess(self, next(self._numbers), context, limit_mb, listener)
        self.call(lambda: self._start(made, data))
        return made

    def call(self, step: Callable[[], None]) -> None:
        """Run a step on the host's thread."""
        self._calls.append(step)
        if threading.current_thread() is not self._thread:
            with suppress(OSError):  # full: it wakes up anyway
                self._wakeup.send(b".")

    def stop(self) -> None:
        """Kill what still runs, and end."""

        def end() -> None:
            self._is_stopping = True

        self.call(end)
        self._thread.join()
        self._close_server()
        for process in list(self._processes.values()):
            process.on_end(None)
        self._selector.close()
        self._wakeups.close()
        self._wakeup.close()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._is_stopping:
            timeout_s = max(0.0, self._look_s - time.monotonic()) if self._processes else None
            if self._calls:
                timeout_s = 0.0
            for key, mask in self._selector.select(timeout_s):
                self._step(lambda key=key, mask=mask: key.data(mask))  # type: ignore[misc]
            for _ in range(len(self._calls)):
                self._step(self._calls.popleft())
            now_s = time.monotonic()
            if now_s >= self._look_s:
                self._look_s = now_s + _LOOK_S
                pings = now_s >= self._pinged_s + _PING_S
                if pings:
                    self._pinged_s = now_s
                for process in list(self._processes.values()):
                    self._step(partial(process.look, now_s, pings=pings))

    @staticmethod
    def _step(step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # of one process; the others are served
            log.exception("a step for a connector's process failed")

    def _on_wakeup(self, _mask: int) -> None:
        with suppress(BlockingIOError):
            self._wakeups.recv(4096)

    def watch(self, file: socket.socket | int, mask: int, step: Callable[[int], Any]) -> None:
        """Call a step whenever a file is ready."""
        try:
            if self._selector.get_key(file).events != mask:
                self._selector.modify(file, mask, step)
        except KeyError:
            self._selector.register(file, mask, step)

    def ignore(self, file: socket.socket | int) -> None:
        """Watch a file no more."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(file)

    # ------------------------------------------------------------ the server

    def _start(self, process: ConnectorProcess, begin: bytes) -> None:
        self._processes[process.number] = process
        self.watch(process.output, selectors.EVENT_READ, process.read_output)
        self.watch(process.connection, selectors.EVENT_READ, process.on_ready)
        descriptors = [process.child_connection.fileno(), process.child_output]
        try:
            request = server.REQUEST.pack(server.FORK, process.number)
            socket.send_fds(self._get_server(), [request], descriptors)
            process.queue(begin)
        except OSError as error:
            process.refuse(str(error))
            self._end(process.number, None)
        finally:
            process.child_connection.close()
            os.close(process.child_output)

    def _get_server(self) -> socket.socket:
        """Return the server's socket; the server starts with the first process."""
        if self._server is None:
            own, other = socket.socketpair()
            with other, ExitStack() as failing:
                failing.callback(own.close)
                number = str(other.fileno())
                # no settings: other users can read arguments
                self._server_process = subprocess.Popen(  # noqa: S603 - this interpreter
                    [sys.executable, "-P", "-m", server.__name__, number],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[other.fileno()],
                    start_new_session=True,  # Ctrl-C is for the worker, which stops connectors
                )
                failing.pop_all()
            # not before: without a process the next start tries again
            self._server = own
            self.watch(own, selectors.EVENT_READ, self._on_reply)
        return self._server

    def _on_reply(self, _mask: int) -> None:
        assert self._server is not None
        try:
            data = self._server.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            log.error("the process that connectors' processes are forked from has ended")
            self._close_server()
            for number in list(self._processes):
                self._end(number, None)
            return
        self._server_data += data
        while len(self._server_data) >= server.REPLY.size:
            kind, number, value = server.REPLY.unpack_from(self._server_data)
            del self._server_data[: server.REPLY.size]
            if kind == server.ENDED:
                self._end(number, value)
            elif number in self._processes:
                if kind == server.REFUSED:
                    self._processes[number].refuse(os.strerror(value))
                    self._end(number, None)
                else:
                    self._processes[number].process_id = value

    def _end(self, number: int, status: int | None) -> None:
        process = self._processes.pop(number, None)
        if process is not None:
            process.on_end(status)

    def kill(self, number: int) -> None:
        """Have the server kill a process, which it knows to be still there."""
        if self._server is not None:
            with suppress(OSError):
                self._server.sendall(server.REQUEST.pack(server.KILL, number))

    def _close_server(self) -> None:
        """Close the server's socket, at whose end it kills its forks, and wait for it."""
        closing, self._server = self._server, None
        if closing is None or self._server_process is None:
            return
        self.ignore(closing)
        closing.close()
        self._server_data.clear()
        try:
            self._server_process.wait(_SERVER_END_S)
        except subprocess.TimeoutExpired:
            self._server_process.kill()
            self._server_process.wait()
