"""The herder: decides which connectors and tasks run, from requests and from its records.

A request is a call that returns its answer or raises ConnectException; records of the config topic
come by `read_config`, reports of the worker by `connector_report` and `task_report`. Each may leave
effects, which the caller takes by `take_effects` and carries out in their order. No clock, no
thread, no socket.

Kafka: org.apache.kafka.connect.runtime.{AbstractHerder, standalone.StandaloneHerder, RestartPlan}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.connect.errors import AlreadyExistsException, BadRequestException, NotFoundException
from ottla.connect.runtime.state import (
    COMMIT,
    CONNECTOR,
    TARGET,
    ConfigState,
    ConnectorTaskId,
    RunState,
    RunStatus,
    StatusState,
    TargetState,
    target_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class WriteConfig:
    """Append a record to the config topic; it comes back by `read_config`."""

    key: str
    value: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Append a status to the status topic, None deletes it."""

    of: ConnectorTaskId | str
    """A task, or a connector by name."""
    status: RunStatus | None


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Start a connector in its target state; the worker reports the outcome."""

    name: str
    config: Mapping[str, str]
    target: TargetState


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stop a connector, if it runs."""

    name: str


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start a task in the target state of its connector."""

    task: ConnectorTaskId
    connector_config: Mapping[str, str]
    config: Mapping[str, str]
    target: TargetState


@dataclass(frozen=True, slots=True)
class StopTasks:
    """Stop tasks and wait for them, within the worker's limit."""

    tasks: tuple[ConnectorTaskId, ...]


@dataclass(frozen=True, slots=True)
class SetTarget:
    """Pause, resume or stop a running connector and its tasks."""

    name: str
    target: TargetState


@dataclass(frozen=True, slots=True)
class MakeTaskConfigs:
    """Ask a running connector for the settings of its tasks; `task_configs_made` takes them."""

    name: str


if TYPE_CHECKING:
    Effect: TypeAlias = (
        WriteConfig
        | WriteStatus
        | StartConnector
        | StopConnector
        | StartTask
        | StopTasks
        | SetTarget
        | MakeTaskConfigs
    )


class Herder:
    """The decisions of one worker that owns all connectors and tasks."""

    def __init__(self, worker_id: str, type_of: Callable[[Mapping[str, str]], str]) -> None:
        """Take the worker's address, and who says whether a configuration is source or sink."""
        self.worker_id = worker_id
        self.generation = 0
        self.configs = ConfigState()
        self.statuses = StatusState()
        self._type_of = type_of
        self._effects: list[Any] = []
        self._running: set[ConnectorTaskId] = set()
        self._applied: dict[str, Mapping[str, str]] = {}
        """The configuration of which each connector last made the settings of its tasks."""

    def take_effects(self) -> list[Any]:
        """Return the effects since the last call: `Effect`s, and those of a subclass."""
        effects, self._effects = self._effects, []
        return effects

    # ------------------------------------------------------------ questions

    def names(self) -> list[str]:
        """Return the names of all connectors."""
        return list(self.configs.connectors)

    def config(self, name: str) -> dict[str, str]:
        """Return a connector's configuration."""
        return self._known(name, f"Connector {name} not found")

    def info(self, name: str) -> dict[str, Any]:
        """Return a connector as `GET /connectors/{name}` does."""
        config = self.config(name)
        count = len(self.configs.tasks.get(name, ()))
        tasks = [{"connector": name, "task": number} for number in range(count)]
        return {"name": name, "config": config, "tasks": tasks, "type": self._type_of(config)}

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """Return the configurations of a connector's tasks."""
        self.config(name)
        return [
            {"id": {"connector": name, "task": number}, "config": config}
            for number, config in enumerate(self.configs.tasks.get(name, ()))
        ]

    def status(self, name: str) -> dict[str, Any]:
        """Return the states of a connector and its tasks."""
        status = self.statuses.connectors.get(name)
        if status is None:
            raise NotFoundException(f"No status found for connector {name}")
        tasks = [{"id": task.task, **_shown(of)} for task, of in self.statuses.tasks_of(name)]
        config = self.configs.connectors.get(name)
        kind = "unknown" if config is None else self._type_of(config)
        return {"name": name, "connector": _shown(status), "tasks": tasks, "type": kind}

    def task_status(self, task: ConnectorTaskId) -> dict[str, Any]:
        """Return the state of a task."""
        status = self.statuses.tasks.get(task)
        if status is None:
            raise NotFoundException(f"No status found for task {task}")
        return {"id": task.task, **_shown(status)}

    # ------------------------------------------------------------ requests

    def put(
        self,
        name: str,
        config: Mapping[str, str],
        *,
        may_replace: bool,
        initial: TargetState | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Create or replace a connector whose configuration was validated.

        Returns whether it is new, and its description; a new one has no tasks yet.
        """
        is_new = name not in self.configs.connectors
        if not is_new and not may_replace:
            raise AlreadyExistsException(f"Connector {name} already exists")
        kind = self._type_of(config)
        if is_new and initial is not None:
            self._effects.append(WriteConfig(TARGET + name, target_record(initial)))
        self._effects.append(WriteConfig(CONNECTOR + name, {"properties": dict(config)}))
        tasks = [] if is_new else self.info(name)["tasks"]
        return is_new, {"name": name, "config": dict(config), "tasks": tasks, "type": kind}

    def delete(self, name: str) -> None:
        """Delete a connector."""
        self.config(name)
        self._effects += [WriteConfig(CONNECTOR + name, None), WriteConfig(TARGET + name, None)]

    def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop a connector; repeated, nothing changes."""
        text = f"Unknown connector {name}"
        self._known(name, text)
        if target is TargetState.STOPPED:
            self._effects.append(WriteConfig(COMMIT + name, {"tasks": 0}))
        self._effects.append(WriteConfig(TARGET + name, target_record(target)))

    def restart(self, name: str) -> None:
        """Restart a connector, not its tasks."""
        config = self._known(name, f"Unknown connector: {name}")
        self._effects += [
            StopConnector(name),
            StartConnector(name, config, self.configs.target(name)),
        ]

    def restart_with_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> dict[str, Any]:
        """Restart a connector and its tasks, as far as they are meant; return their states."""
        config = self._known(name, f"Unknown connector: {name}")
        if name not in self.statuses.connectors:
            raise NotFoundException(f"Status for connector {name} not found")
        target = self.configs.target(name)
        restarts_connector, tasks = self._restart_plan(name, include_tasks, only_failed)
        if restarts_connector:
            self._set_status(name, RunState.RESTARTING)
        for task in tasks:
            self._set_status(task, RunState.RESTARTING)
        answer = self.status(name)
        self._stop_tasks(tasks)
        if restarts_connector:
            self._effects += [StopConnector(name), StartConnector(name, config, target)]
        self._start_tasks(name, [it.task for it in tasks])
        return answer

    def _restart_plan(
        self,
        name: str,
        include_tasks: bool,  # noqa: FBT001 - the two fields of the record
        only_failed: bool,  # noqa: FBT001
    ) -> tuple[bool, list[ConnectorTaskId]]:
        """Return whether a connector restarts, and the tasks that do (KIP-745)."""
        status = self.statuses.connectors.get(name)
        failed = status is not None and status.state is RunState.FAILED
        tasks = [
            task
            for task, of in self.statuses.tasks_of(name)
            if include_tasks and (not only_failed or of.state is RunState.FAILED)
        ]
        return not only_failed or failed, tasks

    def restart_task(self, task: ConnectorTaskId) -> None:
        """Restart a task."""
        self._known(task.connector, f"Unknown connector: {task.connector}")
        if task.task >= len(self.configs.tasks.get(task.connector, ())):
            raise NotFoundException(f"Unknown task: {task}")
        self._stop_tasks([task])
        self._start_tasks(task.connector, [task.task])

    def request_task_configs(self, name: str) -> None:
        """Have a connector make new settings of its tasks, unless it was deleted meanwhile."""
        if name in self.configs.connectors:
            self._effects.append(MakeTaskConfigs(name))

    def require_stopped(self, name: str) -> dict[str, str]:
        """Return the configuration of a connector whose offsets may change now."""
        config = self.config(name)
        is_stopped = self.configs.target(name) is TargetState.STOPPED
        if not is_stopped or self.configs.tasks.get(name):
            raise BadRequestException(
                "Connectors must be in the STOPPED state before their offsets can be modified. "
                "This can be done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint"
            )
        return config

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector has used."""
        return list(self.statuses.topics.get(name, ()))

    def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has used."""
        self.statuses.topics.pop(name, None)

    def _known(self, name: str, text: str) -> dict[str, str]:
        config = self.configs.connectors.get(name)
        if config is None:
            raise NotFoundException(text)
        return config

    # ------------------------------------------------------------ records

    def read_config(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Take a record of the config topic."""
        change = self.configs.apply(key, value)
        if change is None:
            return
        name = change.connector
        if change.kind == "tasks":
            if name not in self.configs.connectors:
                return  # a commit that a deletion left behind
            self._stop_tasks(self._running_of(name))
            count = len(self.configs.tasks[name])
            for task, _ in self.statuses.tasks_of(name):
                if task.task >= count:
                    self._write_status(task, None)
            self._start_tasks(name, range(count))
        elif change.kind == "target":
            target = self.configs.target(name)
            self._effects.append(SetTarget(name, target))
        elif name in self.configs.connectors:
            config, target = self.configs.connectors[name], self.configs.target(name)
            self._effects += [StopConnector(name), StartConnector(name, config, target)]
        else:
            self._stop_tasks(self._running_of(name))
            self._effects.append(StopConnector(name))
            for task, _ in self.statuses.tasks_of(name):
                self._write_status(task, None)
            self._write_status(name, None)
            self._applied.pop(name, None)
            self.reset_topics(name)

    def _running_of(self, name: str) -> list[ConnectorTaskId]:
        """Return the tasks of a connector that run here, in their order."""
        return sorted(it for it in self._running if it.connector == name)

    def _stop_tasks(self, tasks: Sequence[ConnectorTaskId]) -> None:
        if tasks:
            self._effects.append(StopTasks(tuple(tasks)))
            self._running.difference_update(tasks)

    def _start_tasks(self, name: str, numbers: Sequence[int]) -> None:
        configs, config = self.configs.tasks.get(name, ()), self.configs.connectors[name]
        for number in numbers:
            if number < len(configs):
                task = ConnectorTaskId(name, number)
                target = self.configs.target(name)
                self._effects.append(StartTask(task, config, configs[number], target))
                self._running.add(task)

    # ------------------------------------------------------------ reports

    def connector_report(
        self, name: str, state: RunState, *, trace: str | None = None, version: str | None = None
    ) -> None:
        """Take the state of a connector; one that runs makes the settings of its tasks."""
        if name not in self.configs.connectors:
            return  # it ended after its deletion
        self._set_status(name, state, trace, version)
        if state is RunState.RUNNING:
            self._effects.append(MakeTaskConfigs(name))

    def task_report(
        self,
        task: ConnectorTaskId,
        state: RunState,
        *,
        trace: str | None = None,
        version: str | None = None,
    ) -> None:
        """Take the state of a task."""
        if task in self._running:
            self._set_status(task, state, trace, version)

    def task_configs_made(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Take the settings of tasks; they and the tasks change if something is new."""
        if self._is_new(name, configs):
            self._applied[name] = self.configs.connectors[name]
            self._write_task_configs(name, configs)

    def _is_new(self, name: str, configs: Sequence[Mapping[str, str]]) -> bool:
        """Whether settings differ from those committed, or the connector has changed since."""
        config = self.configs.connectors.get(name)
        if config is None or self.configs.target(name) is TargetState.STOPPED:
            return False  # made before it was deleted, or stopped: it has no tasks
        is_applied = self._applied.get(name) == config
        return not is_applied or [dict(it) for it in configs] != self.configs.tasks.get(name)

    def _write_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        self._effects += [
            WriteConfig(f"task-{name}-{number}", {"properties": dict(it)})
            for number, it in enumerate(configs)
        ]
        self._effects.append(WriteConfig(COMMIT + name, {"tasks": len(configs)}))

    def topic_used(self, task: ConnectorTaskId, topic: str, now_ms: int) -> None:
        """Take a topic that a task has read or written for the first time."""
        self.statuses.topics.setdefault(task.connector, {}).setdefault(topic, now_ms)

    def _set_status(
        self,
        of: ConnectorTaskId | str,
        state: RunState,
        trace: str | None = None,
        version: str | None = None,
    ) -> None:
        self._write_status(of, RunStatus(state, self.worker_id, self.generation, trace, version))

    def _write_status(self, of: ConnectorTaskId | str, status: RunStatus | None) -> None:
        self.statuses.put(of, status)
        self._effects.append(WriteStatus(of, status))


def _shown(status: RunStatus) -> dict[str, Any]:
    shown = {
        "state": status.state.value,
        "worker_id": status.worker_id,
        "version": status.version,
    }
    return shown if status.trace is None else {**shown, "trace": status.trace}
