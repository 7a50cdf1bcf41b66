"""A connector's process: its connector and tasks on threads, their clients, a pipe to the worker.

The pipe brings what the herder decides, and takes states, offsets and lines of the log. Records go
between the tasks' own clients and the brokers.

Kafka: none; of org.apache.kafka.connect.runtime.Worker, the part that runs what one connector has.
"""

from __future__ import annotations

import faulthandler
import itertools
import logging
import os
import queue
import sys
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.distributed.settings import DISTRIBUTED
from ottla.connect.errors import ConnectException
from ottla.connect.plugins import Plugin, Plugins
from ottla.connect.processes.beans import encode_beans
from ottla.connect.processes.frames import MessageReader, encode_message
from ottla.connect.runtime.herder import StartTask
from ottla.connect.runtime.log_context import connector_context, set_connector_context
from ottla.connect.runtime.offsets import encode_json
from ottla.connect.runtime.state import ConnectorTaskId, RunState, TargetState
from ottla.connect.runtime.tolerance import trace_of
from ottla.connect.runtime.worker import TaskWorker
from ottla.connect.settings import STANDALONE
from ottla.errors import KafkaError

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Mapping, Sequence

log = logging.getLogger("ottla.connect")
_READ_BYTES: Final = 1 << 16
_TRACE_MAX: Final = 1 << 20
"""Characters of a trace: with more the failure itself could not be reported."""
_LOG_TEXT_MAX: Final = 1 << 16
"""Characters of a line of the log, so that no trace fills the pipe."""
_METRICS_S: Final = 1.0
"""Between two reports of metrics; a scrape shows the last one, as it waits for no process."""


class WorkerPipe:
    """The worker at the other end: messages to it from any thread, and answers of it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # reentrant: a collection of garbage in `send` may log
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._answers: dict[int, Future[Any]] = {}
        self.commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def send(self, **message: Any) -> None:
        """Send a message; without a worker this process ends."""
        data = encode_message(message)
        try:
            with self._lock:
                self._connection.sendall(data)
        except OSError:
            os._exit(1)

    def ask(self, **message: Any) -> Any:
        """Send a message and wait for its answer; raise the worker's error."""
        number = next(self._numbers)
        answer = self._answers[number] = Future()
        self.send(id=number, **message)
        return answer.result()

    def read(self) -> None:
        """Read to the worker's end, which is also that of this process."""
        frames = MessageReader()
        while True:
            try:
                data = self._connection.recv(_READ_BYTES)
            except OSError:
                data = b""
            if not data:
                # no clean stop: another worker may have the tasks by now
                os._exit(1)
            for message in frames.feed(data):
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "ping":
            self.send(type="pong")
        elif message["type"] == "answer":
            answer = self._answers.pop(message["id"])
            if "error" in message:
                answer.set_exception(_error_of(message))
            else:
                answer.set_result(message["value"])
        else:
            self.commands.put(message)


def _error_of(message: Mapping[str, Any]) -> Exception:
    """Return the worker's error as tasks tell errors apart: those of brokers and files may pass."""
    text = message["error"]
    if "code" in message:
        return KafkaError(message["code"], text)
    return OSError(text) if message["is_file"] else ConnectException(text)


class PipeOffsets:
    """The offsets of this connector, which the worker reads and stores."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe

    def get(self, connector: str, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the offset of a partition, None without one."""
        return self.get_all(connector, [partition])[0]

    def get_all(
        self, connector: str, partitions: Iterable[Mapping[str, Any]]
    ) -> list[dict[str, Any] | None]:
        """Return the offsets of several partitions, in their order."""
        del connector
        requested = [dict(it) for it in partitions]
        encode_json(requested)
        stored: list[dict[str, Any] | None] = self._pipe.ask(type="offsets", partitions=requested)
        return stored

    def put(
        self,
        connector: str,
        offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> None:
        """Store offsets; None forgets one."""
        del connector
        entries = [(dict(of), None if it is None else dict(it)) for of, it in offsets]
        encode_json(entries)
        self._pipe.ask(type="put_offsets", entries=entries)


class PipeReports:
    """What becomes of the connector and its tasks, for the worker."""

    def __init__(self, pipe: WorkerPipe) -> None:
        self._pipe = pipe
        self.run = 0
        """The number of the connector's start: what an earlier one says is void by then."""

    def connector_state(
        self, name: str, state: RunState, trace: str | None, version: str | None
    ) -> None:
        """Report the state of the connector."""
        del name
        trace = trace and trace[:_TRACE_MAX]
        self._pipe.send(
            type="connector_state", run=self.run, state=state.value, trace=trace, version=version
        )

    def task_state(
        self, task: ConnectorTaskId, state: RunState, trace: str | None, version: str | None
    ) -> None:
        """Report the state of a task."""
        trace = trace and trace[:_TRACE_MAX]
        self._pipe.send(
            type="task_state", task=task.task, state=state.value, trace=trace, version=version
        )

    def task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Report the settings of tasks."""
        del name
        try:
            self._pipe.send(type="task_configs", run=self.run, configs=[dict(it) for it in configs])
        except TypeError as error:
            raise ConnectException("The settings of tasks may only be texts") from error

    def task_configs_requested(self, name: str) -> None:
        """Report that the connector's tasks need new settings."""
        del name
        self._pipe.send(type="task_configs_requested", run=self.run)

    def topic_used(self, task: ConnectorTaskId, topic: str) -> None:
        """Report a topic that a task uses for the first time."""
        self._pipe.send(type="topic_used", task=task.task, topic=topic)


class PipeLog(logging.Handler):
    """Sends lines of the log to the worker's."""

    def __init__(self, pipe: WorkerPipe) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line, with its connector and task."""
        try:
            text = self.format(record)[:_LOG_TEXT_MAX]
        except Exception:  # noqa: BLE001 - as logging itself does
            self.handleError(record)
            return
        self._pipe.send(
            type="log",
            level=record.levelno,
            logger=record.name,
            text=text,
            context=connector_context(),
        )


class ConnectorChild:
    """The connector and the tasks of this process."""

    def __init__(self, pipe: WorkerPipe, begin: Mapping[str, Any]) -> None:
        """Take the worker's settings, in its first message."""
        self._pipe, self._name = pipe, begin["name"]
        sys.path[:] = begin["path"]
        set_connector_context(f"[{self._name}|worker] ", is_default=True)
        root = logging.getLogger()
        root.addHandler(PipeLog(pipe))
        for logger, level in begin["levels"].items():
            logging.getLogger(logger).setLevel(level)
        values = (DISTRIBUTED if begin["is_distributed"] else STANDALONE).parse(begin["settings"])
        plugins = Plugins()
        plugins.plugins = tuple(_plugin(it) for it in begin["plugins"])
        self._reports = PipeReports(pipe)
        store: Any = PipeOffsets(pipe)
        self._worker = TaskWorker(begin["settings"], values, plugins, store, self._reports)

    def run(self) -> None:
        """Carry out commands until the one that ends the process."""
        threading.Thread(target=self._report_metrics, name="metrics", daemon=True).start()
        while (command := self._pipe.commands.get())["type"] != "end":
            self._do(command)
        self._worker.stop(time.monotonic() + command["timeout_s"])

    def _report_metrics(self) -> None:
        while True:
            try:
                tasks = list(self._worker.task_metrics().items())
                self._pipe.send(
                    type="metrics",
                    tasks=[[it.task, encode_beans(of.beans(it, ""))] for it, of in tasks],
                )
            except Exception:
                log.exception("The metrics of the tasks cannot be sent")
            time.sleep(_METRICS_S)

    def _do(self, command: dict[str, Any]) -> None:
        worker, name = self._worker, self._name
        match command:
            case {"type": "start_connector", "config": config, "target": target, "run": run}:
                self._reports.run = run
                try:
                    worker.start_connector(name, config, TargetState(target))
                except Exception as error:  # noqa: BLE001 - its state
                    self._reports.connector_state(name, RunState.FAILED, trace_of(error), None)
            case {"type": "stop_connector"}:
                worker.stop_connector(name)
            case {"type": "set_target", "target": target}:
                worker.set_target(name, TargetState(target))
            case {"type": "make_task_configs"}:
                worker.make_task_configs(name)
            case {"type": "start_task", "task": number, "target": target}:
                task = ConnectorTaskId(name, number)
                configs = command["connector_config"], command["config"]
                try:
                    worker.start_task(StartTask(task, *configs, TargetState(target)))
                except Exception as error:  # noqa: BLE001 - its state
                    self._reports.task_state(task, RunState.FAILED, trace_of(error), None)
            case {"type": "end_tasks", "tasks": numbers}:
                worker.end_tasks(self._tasks(numbers))
            case {"type": "stop_tasks", "tasks": numbers, "timeout_s": timeout_s, "id": id_}:
                unfinished = worker.stop_tasks(
                    self._tasks(numbers), time.monotonic() + max(0.0, timeout_s)
                )
                self._pipe.send(type="stopped", id=id_, unfinished=[it.task for it in unfinished])

    def _tasks(self, numbers: Sequence[int]) -> list[ConnectorTaskId]:
        return [ConnectorTaskId(self._name, it) for it in numbers]


def _plugin(fields: Mapping[str, Any]) -> Plugin:
    modules = fields["modules"]
    return Plugin(**{**fields, "modules": None if modules is None else tuple(modules)})


def run_fork(connection: socket.socket, output: int) -> None:
    """Be the process of a connector, in a fork of the server; returns at its clean end."""
    sys.stdout.flush()
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # a real file
    faulthandler.enable()
    pipe = WorkerPipe(connection)
    threading.Thread(target=pipe.read, name="worker-pipe", daemon=True).start()
    ConnectorChild(pipe, pipe.commands.get()).run()
