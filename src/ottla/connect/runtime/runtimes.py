"""Where connectors run: chooses a runtime for each, and passes the herder's calls on to it.

A runtime is chosen by the connector's `ottla.runtime`, else by the worker's, else by the class
of the connector. It is imported and made when the first connector needs it.

Kafka: none; there all of a worker is in one process, as with the runtime `thread`.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.connect.errors import ConnectException
from ottla.connect.settings import BY_DEFAULT, PYTHON_MODULES, RUNTIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.plugins import Plugins
    from ottla.connect.runtime.herder import StartTask
    from ottla.connect.runtime.metrics import TaskMetrics
    from ottla.connect.runtime.offsets import OffsetStore
    from ottla.connect.runtime.state import ConnectorTaskId, TargetState
    from ottla.connect.runtime.worker import Reports

_CLASSES: Final = {
    "thread": "ottla.connect.runtime.worker:TaskWorker",
    "process": "ottla.connect.processes.runtime:ProcessRuntime",
    "spark": "ottla.connect.spark.runtime:SparkRuntime",
}
"""By the values of `ottla.runtime` (`settings.RUNTIMES`); made of the fields of `WorkerParts`."""


class WorkerParts(NamedTuple):
    """What runtimes get of their worker."""

    settings: Mapping[str, str]
    values: Mapping[str, Any]
    """The settings, parsed."""
    plugins: Plugins
    store: OffsetStore
    reports: Reports


class ConnectorRuntime(Protocol):
    """Runs connectors and tasks, and reports what becomes of them.

    Calls come from the herder's thread and do not wait, but for `stop_tasks` and `stop`. What is
    known to fail raises; the rest is reported as a state.
    """

    def start_connector(self, name: str, config: Mapping[str, str], target: TargetState) -> None:
        """Start a connector in its target state, and report the state that it comes to."""

    def stop_connector(self, name: str) -> None:
        """Stop a connector, if it runs here; its tasks go on."""

    def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop a connector and its tasks, as far as they run here."""

    def make_task_configs(self, name: str) -> None:
        """Have a connector report the settings of its tasks."""

    def start_task(self, start: StartTask) -> None:
        """Start a task; its connector may run elsewhere."""

    def task_metrics(self) -> Mapping[ConnectorTaskId, TaskMetrics]:
        """Return the metrics of tasks that run here."""

    def end_tasks(self, tasks: Sequence[ConnectorTaskId] | None = None) -> None:
        """Have tasks end, all by default; from any thread, and without waiting."""

    def stop_tasks(
        self, tasks: Sequence[ConnectorTaskId], end_s: float
    ) -> Sequence[ConnectorTaskId]:
        """Stop tasks and wait for them until a monotonic time, after which they write nothing.

        Returns those that were not at their end by then.
        """

    def stop(self, end_s: float) -> None:
        """Stop everything in the same way, and release what the runtime has."""


class Runtimes:
    """The connectors and tasks of a worker, each in its runtime."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        parts.plugins.allow_python(parts.values[PYTHON_MODULES])
        self._grace_s = parts.values["task.shutdown.graceful.timeout.ms"] / 1000
        self._runtimes: dict[str, ConnectorRuntime] = {}
        self._connectors: dict[str, ConnectorRuntime] = {}
        self._tasks: dict[ConnectorTaskId, ConnectorRuntime] = {}

    def of(self, config: Mapping[str, str]) -> ConnectorRuntime:
        """Return the runtime of a connector."""
        name = config.get(RUNTIME, BY_DEFAULT)
        if name == BY_DEFAULT:
            name = self._parts.values[RUNTIME]
        if name == BY_DEFAULT:
            plugin = self._parts.plugins.find(config.get("connector.class", ""), "source", "sink")
            name = plugin.load().runtime
        if name not in _CLASSES:
            raise ConnectException(f"{RUNTIME}={name}: the runtimes are {', '.join(_CLASSES)}")
        if name not in self._runtimes:
            module, _, of = _CLASSES[name].partition(":")
            self._runtimes[name] = getattr(import_module(module), of)(*self._parts)
        return self._runtimes[name]

    @property
    def connectors(self) -> list[str]:
        """The connectors that run here."""
        return list(self._connectors)

    @property
    def tasks(self) -> list[ConnectorTaskId]:
        """The tasks that run here."""
        return list(self._tasks)

    def task_metrics(self) -> dict[ConnectorTaskId, TaskMetrics]:
        """Return the metrics of tasks, by task."""
        made: dict[ConnectorTaskId, TaskMetrics] = {}
        for runtime in self._runtimes.values():
            made.update(runtime.task_metrics())
        return made

    def start_connector(self, name: str, config: Mapping[str, str], target: TargetState) -> None:
        """Start a connector."""
        runtime = self.of(config)
        self._connectors[name] = runtime
        runtime.start_connector(name, config, target)

    def stop_connector(self, name: str) -> None:
        """Stop a connector, without waiting."""
        runtime = self._connectors.pop(name, None)
        if runtime is not None:
            runtime.stop_connector(name)

    def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop a connector and its tasks."""
        for runtime in self._runtimes.values():
            runtime.set_target(name, target)

    def make_task_configs(self, name: str) -> None:
        """Have a connector report the settings of its tasks."""
        if name in self._connectors:
            self._connectors[name].make_task_configs(name)

    def start_task(self, start: StartTask) -> None:
        """Start a task."""
        runtime = self.of(start.connector_config)
        self._tasks[start.task] = runtime
        runtime.start_task(start)

    def end_tasks(self) -> None:
        """Have all tasks end, from any thread; `stop_tasks` waits for them."""
        for runtime in list(self._runtimes.values()):
            runtime.end_tasks()

    def stop_tasks(self, tasks: Sequence[ConnectorTaskId]) -> None:
        """Stop tasks and wait for them, task.shutdown.graceful.timeout.ms for all together."""
        by_runtime: dict[int, tuple[ConnectorRuntime, list[ConnectorTaskId]]] = {}
        for task in tasks:
            runtime = self._tasks.pop(task, None)
            if runtime is not None:
                by_runtime.setdefault(id(runtime), (runtime, []))[1].append(task)
        for runtime, own in by_runtime.values():
            runtime.end_tasks(own)
        end_s = time.monotonic() + self._grace_s
        for runtime, own in by_runtime.values():
            runtime.stop_tasks(own, end_s)

    def stop(self) -> None:
        """Stop everything; offsets are committed."""
        for name in list(self._connectors):
            self.stop_connector(name)
        self.stop_tasks(list(self._tasks))
        end_s = time.monotonic() + self._grace_s
        for runtime in self._runtimes.values():
            runtime.stop(end_s)
