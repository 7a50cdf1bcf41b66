"""The runtime `process`: the worker's side of connectors that run in processes of their own.

Kafka: none; this is the other end of `child`.
"""

from __future__ import annotations

import itertools
import logging
import queue
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.errors import ConnectException
from ottla.connect.processes.beans import decode_metrics
from ottla.connect.processes.host import ProcessHost
from ottla.connect.runtime.state import ConnectorTaskId, RunState
from ottla.connect.runtime.tolerance import trace_of
from ottla.connect.settings import PROCESS_MEMORY
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.plugins import Plugins
    from ottla.connect.runtime.herder import StartTask
    from ottla.connect.runtime.metrics import ReportedMetrics, TaskMetrics
    from ottla.connect.runtime.offsets import OffsetStore
    from ottla.connect.runtime.state import TargetState
    from ottla.connect.runtime.worker import Reports

log = logging.getLogger("ottla.connect")
_ANSWER_S: Final = 0.5
"""Time for the answer of a process beyond that of its tasks."""
_KILL_S: Final = 5.0
"""Time for the end of a process that was killed."""


class ProcessRuntime:
    """Connectors and tasks in processes, one for each connector: a `ConnectorRuntime`."""

    def __init__(
        self,
        settings: Mapping[str, str],
        values: Mapping[str, Any],
        plugins: Plugins,
        store: OffsetStore,
        reports: Reports,
    ) -> None:
        """Take the worker's settings as texts and parsed."""
        self.settings, self.values, self.plugins = settings, values, plugins
        self.store, self.reports = store, reports
        self.host = ProcessHost.acquire()
        self.lock = threading.RLock()
        self._processes: dict[str, _Process] = {}
        self._ending: set[_Process] = set()

    def _process(self, name: str, config: Mapping[str, str]) -> _Process:
        """Return a connector's process, which is started if there is none."""
        process = self._processes.get(name)
        if process is None:
            limit_mb = int(config.get(PROCESS_MEMORY, self.values[PROCESS_MEMORY]))
            process = self._processes[name] = _Process(self, name, limit_mb)
        return process

    def start_connector(self, name: str, config: Mapping[str, str], target: TargetState) -> None:
        """Start a connector."""
        with self.lock:
            process = self._process(name, config)
            process.start_connector(config, target)

    def stop_connector(self, name: str) -> None:
        """Stop a connector, without waiting."""
        with self.lock:
            process = self._processes.get(name)
            if process is not None and process.connector is not None:
                process.stop_connector()
                self._end_if_empty(process)

    def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop a connector and its tasks."""
        with self.lock:
            process = self._processes.get(name)
            if process is not None:
                if process.connector is not None:
                    process.connector = process.connector[0], target
                process.send(type="set_target", target=target.value)

    def make_task_configs(self, name: str) -> None:
        """Have a connector report the settings of its tasks."""
        with self.lock:
            if name in self._processes:
                self._processes[name].send(type="make_task_configs")

    def start_task(self, start: StartTask) -> None:
        """Start a task."""
        with self.lock:
            process = self._process(start.task.connector, start.connector_config)
            process.tasks.add(start.task.task)
            process.send(
                type="start_task",
                task=start.task.task,
                connector_config=dict(start.connector_config),
                config=dict(start.config),
                target=start.target.value,
            )

    def task_metrics(self) -> Mapping[ConnectorTaskId, TaskMetrics]:
        """Return what processes have last reported of tasks that run here."""
        with self.lock:
            return {
                ConnectorTaskId(name, number): metrics
                for name, process in self._processes.items()
                for number, metrics in process.metrics.items()
                if number in process.tasks
            }

    def end_tasks(self, tasks: Sequence[ConnectorTaskId] | None = None) -> None:
        """Have tasks end, from any thread."""
        with self.lock:
            for name, process in self._processes.items():
                numbers = process.tasks
                if tasks is not None:
                    numbers = numbers.intersection(it.task for it in tasks if it.connector == name)
                if numbers:
                    process.send(type="end_tasks", tasks=sorted(numbers))

    def stop_tasks(
        self, tasks: Sequence[ConnectorTaskId], end_s: float
    ) -> Sequence[ConnectorTaskId]:
        """Stop tasks and wait for them; one that takes too long ends with its process.

        While other tasks run there it is abandoned, as on a thread.
        """
        pending: list[tuple[_Process, Future[list[int]]]] = []
        with self.lock:
            for name, process in self._processes.items():
                numbers = process.tasks.intersection(
                    it.task for it in tasks if it.connector == name
                )
                if numbers:
                    process.tasks -= numbers
                    timeout_s = max(0.0, end_s - time.monotonic())
                    pending.append((process, process.stop_tasks(sorted(numbers), timeout_s)))
        unfinished: list[ConnectorTaskId] = []
        for process, answer in pending:
            try:
                numbers_left = answer.result(max(0.0, end_s - time.monotonic()) + _ANSWER_S)
            except TimeoutError:
                numbers_left = [-1]  # the process hangs as a whole
            if numbers_left and not process.tasks:
                self._replace(process)
            with self.lock:
                self._end_if_empty(process)
            unfinished += [ConnectorTaskId(process.name, it) for it in numbers_left if it >= 0]
        return unfinished

    def _replace(self, process: _Process) -> None:
        """Kill a process whose tasks do not end; its connector goes on in another one."""
        with self.lock:
            if self._processes.get(process.name) is process:
                del self._processes[process.name]
            connector, process.connector = process.connector, None
        log.error("Graceful stop of tasks of %s failed: its process is killed.", process.name)
        process.kill("was killed: a task did not stop in time")
        if connector is None:
            return
        try:
            self.start_connector(process.name, *connector)
        except Exception as error:  # noqa: BLE001 - its state; other tasks are still to be stopped
            trace = trace_of(error)
            self.reports.connector_state(process.name, RunState.FAILED, trace, process.version)

    def _end_if_empty(self, process: _Process) -> None:
        if (
            process.connector is None
            and not process.tasks
            and self._processes.get(process.name) is process
        ):
            del self._processes[process.name]
            self._ending.add(process)
            process.end(self.values["task.shutdown.graceful.timeout.ms"] / 1000)

    def stop(self, end_s: float) -> None:
        """Stop everything; offsets are committed."""
        with self.lock:
            running = dict(self._processes)
        for name in running:
            self.stop_connector(name)
        self.stop_tasks(
            [ConnectorTaskId(name, it) for name, of in running.items() for it in of.tasks], end_s
        )
        with self.lock:
            ending = list(self._ending)
        for process in ending:
            process.wait(max(0.0, end_s - time.monotonic()) + _ANSWER_S)
        ProcessHost.release()

    def ended(self, process: _Process, reason: str) -> None:
        """Report what has failed with a process."""
        with self.lock:
            self._ending.discard(process)
            if self._processes.get(process.name) is process:
                del self._processes[process.name]
            connector, process.connector = process.connector, None
            tasks, process.tasks = sorted(process.tasks), set()
        name, version = process.name, process.version
        if connector is not None or tasks:
            log.error("the process of connector %s %s", name, reason)
        if connector is not None:
            trace = trace_of(ConnectException(f"The connector's process {reason}"))
            self.reports.connector_state(name, RunState.FAILED, trace, version)
        for number in tasks:
            trace = trace_of(ConnectException(f"The task's process {reason}"))
            self.reports.task_state(ConnectorTaskId(name, number), RunState.FAILED, trace, version)


class _Process:
    """A connector's process, and what runs in it; the runtime's lock guards its fields."""

    def __init__(self, runtime: ProcessRuntime, name: str, limit_mb: int) -> None:
        self.name = name
        self.connector: tuple[Mapping[str, str], TargetState] | None = None
        self.tasks: set[int] = set()
        self.metrics: Mapping[int, ReportedMetrics] = {}
        """By task; the host's thread replaces it as a whole."""
        self.version: str | None = None
        self._runtime = runtime
        self._run = 0
        self._numbers = itertools.count(1)
        self._answers: dict[int, Future[list[int]]] = {}
        self._questions: queue.SimpleQueue[dict[str, Any] | str] = queue.SimpleQueue()
        """Ends with the reason of the process's end."""
        self._has_asked = self._is_killed = self._is_closed = False
        loggers = [logging.getLogger()] + [
            it
            for it in list(logging.Logger.manager.loggerDict.values())  # other threads add some
            if isinstance(it, logging.Logger)
        ]
        begin = {
            "type": "begin",
            "name": name,
            "path": [it for it in sys.path if isinstance(it, str)],  # imports ignore the others
            "levels": {it.name: it.level for it in loggers if it.level},
            "plugins": [asdict(it) for it in runtime.plugins.plugins],
            "settings": dict(runtime.settings),
            "is_distributed": "group.id" in runtime.values,
        }
        self._process = runtime.host.start(f"[{name}|worker] ", limit_mb, self, begin)

    def send(self, **message: Any) -> None:
        self._process.send(message)

    def start_connector(self, config: Mapping[str, str], target: TargetState) -> None:
        self.connector = config, target
        self._run += 1
        self.send(type="start_connector", run=self._run, config=dict(config), target=target.value)

    def stop_connector(self) -> None:
        self.connector = None
        self._run += 1
        self.send(type="stop_connector")

    def stop_tasks(self, numbers: list[int], timeout_s: float) -> Future[list[int]]:
        number, answer = next(self._numbers), Future[list[int]]()
        self._answers[number] = answer
        self.send(type="stop_tasks", id=number, tasks=numbers, timeout_s=timeout_s)
        if self._is_closed:
            _settle(answer, [])
        return answer

    def end(self, timeout_s: float) -> None:
        self.send(type="end", timeout_s=timeout_s)
        self._process.end_within(timeout_s + _ANSWER_S)

    def kill(self, reason: str) -> None:
        """Kill the process; nothing more is heard of it."""
        self._is_killed = True
        self._process.kill(reason)
        self.wait(_KILL_S)

    def wait(self, timeout_s: float) -> None:
        if not self._process.ended.wait(timeout_s):
            log.error("the process of connector %s does not end", self.name)

    # ------------------------------------------------------------ on the host's thread

    def on_message(self, message: dict[str, Any]) -> None:
        """Take a message."""
        if self._is_killed:
            return
        if message.get("run", self._run) != self._run:
            return  # of a connector that was stopped
        match message:
            case {"type": "stopped", "id": int(number), "unfinished": list(unfinished)}:
                numbers = [int(it) for it in unfinished]
                _settle(self._answers.pop(number), numbers)
            case {"type": "offsets" | "put_offsets", "id": int()}:
                self._ask(message)
            case {"type": "metrics", "tasks": tasks}:
                self.metrics = decode_metrics(tasks)
            case _:
                self._report(message)

    def _report(self, message: dict[str, Any]) -> None:
        reports, name = self._runtime.reports, self.name
        match message:
            case {"type": "connector_state", "state": state, "trace": trace, "version": version}:
                self.version = version
                reports.connector_state(name, RunState(state), trace, version)
            case {"type": "task_state", "task": int(task), "state": state, "version": version}:
                self.version, trace = version, message["trace"]
                reports.task_state(ConnectorTaskId(name, task), RunState(state), trace, version)
            case {"type": "task_configs", "configs": list(configs)}:
                reports.task_configs(name, configs)
            case {"type": "task_configs_requested"}:
                reports.task_configs_requested(name)
            case {"type": "topic_used", "task": int(task), "topic": str(topic)}:
                reports.topic_used(ConnectorTaskId(name, task), topic)
            case _:
                raise ValueError(f"unknown message {message.get('type')!r}")

    def _ask(self, message: dict[str, Any]) -> None:
        """Ask the store, on another thread, as it may wait for brokers."""
        if not self._has_asked:
            self._has_asked = True
            name = f"offsets-{self.name}"
            threading.Thread(target=self._answer, name=name, daemon=True).start()
        self._questions.put(message)

    def _answer(self) -> None:
        """Answer the questions of the process, and close it after its end."""
        store, has_ended = self._runtime.store, self._process.ended.is_set
        has_failed = False
        while isinstance(message := self._questions.get(), dict):
            answer: dict[str, Any] = {"type": "answer", "id": message["id"]}
            try:
                if self._is_killed:
                    continue  # the offsets are another task's by now, or an operator's
                if has_failed or (has_ended() and message["type"] == "offsets"):
                    continue  # no task waits, and an outage delays the failure by one timeout only
                if message["type"] == "offsets":
                    answer["value"] = store.get_all(self.name, message["partitions"])
                else:
                    store.put(self.name, message["entries"])
                    answer["value"] = None
            except Exception as error:  # noqa: BLE001 - the task's answer
                has_failed = has_ended()
                answer["error"] = str(error)
                answer["is_file"] = isinstance(error, OSError)
                if isinstance(error, KafkaError):
                    answer["code"] = int(error.code)
            try:
                self.send(**answer)
            except ValueError as error:  # of a size that no message has; the task waits for one
                self.send(type="answer", id=message["id"], error=str(error), is_file=False)
        self._close(message)

    def on_end(self, reason: str) -> None:
        """Fail what has run in the process, once the offsets that it has sent are stored."""
        if self._has_asked:
            self._questions.put(reason)
        else:
            self._close(reason)

    def _close(self, reason: str) -> None:
        with self._runtime.lock:
            self._is_closed = True
            answers, self._answers = self._answers, {}
        for answer in answers.values():
            _settle(answer, [])
        self._runtime.ended(self, reason)


def _settle(answer: Future[list[int]], unfinished: list[int]) -> None:
    if not answer.done():
        answer.set_result(unfinished)
