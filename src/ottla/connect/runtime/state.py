"""What the config and status topics say: pure replays of their records.

Values are the JSON objects of records, None for a deletion.

Kafka: org.apache.kafka.connect.storage.{KafkaConfigBackingStore, KafkaStatusBackingStore,
ClusterConfigState}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class TargetState(Enum):
    """The state in which an operator wants a connector."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class RunState(Enum):
    """The state of a connector or of a task."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


class ConnectorTaskId(NamedTuple):
    """A connector's task by number."""

    connector: str
    task: int

    def __str__(self) -> str:
        """Return Kafka's name of the task."""
        return f"{self.connector}-{self.task}"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A connector's or a task's state, who says so, and why it failed."""

    state: RunState
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None


class ConnectorChange(NamedTuple):
    """A change that a record of the config topic made: `kind` is connector, tasks or target."""

    kind: str
    connector: str


CONNECTOR: Final = "connector-"
COMMIT: Final = "commit-"
TARGET: Final = "target-state-"
_TASK: Final = "task-"


def target_record(state: TargetState) -> dict[str, str]:
    """Return the value of a target state; workers before KIP-875 take STOPPED for PAUSED."""
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return {"state": old.value, "state.v2": state.value}


@dataclass(slots=True)
class ConfigState:
    """The configurations of all connectors."""

    connectors: dict[str, dict[str, str]] = field(default_factory=dict)
    tasks: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """The configurations of tasks, as of the last commit."""
    targets: dict[str, TargetState] = field(default_factory=dict)
    inconsistent: set[str] = field(default_factory=set)
    """Connectors whose last commit lacks configurations of tasks."""
    _deferred: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)

    def target(self, name: str) -> TargetState:
        """Return a connector's target state."""
        return self.targets.get(name, TargetState.STARTED)

    def apply(self, key: str, value: Mapping[str, Any] | None) -> ConnectorChange | None:
        """Take a record; None if it changes nothing that a worker does, or is malformed."""
        if key.startswith(TARGET):
            return self._apply_target(key.removeprefix(TARGET), value)
        if key.startswith(CONNECTOR):
            return self._apply_connector(key.removeprefix(CONNECTOR), value)
        if key.startswith(COMMIT):
            return self._apply_commit(key.removeprefix(COMMIT), value)
        if key.startswith(_TASK) and value is not None:
            name, _, number = key.removeprefix(_TASK).rpartition("-")
            properties = value.get("properties")
            if number.isdecimal() and isinstance(properties, dict):
                self._deferred.setdefault(name, {})[int(number)] = properties
        return None

    def _apply_connector(
        self, name: str, value: Mapping[str, Any] | None
    ) -> ConnectorChange | None:
        if value is None:
            for by_name in (self.connectors, self.tasks, self.targets, self._deferred):
                by_name.pop(name, None)
            self.inconsistent.discard(name)
        else:
            properties = value.get("properties")
            if not isinstance(properties, dict):
                return None
            self.connectors[name] = properties
            self.targets.setdefault(name, TargetState.STARTED)
        return ConnectorChange("connector", name)

    def _apply_target(self, name: str, value: Mapping[str, Any] | None) -> ConnectorChange | None:
        if value is None:
            self.targets.pop(name, None)
            return None
        try:
            state = TargetState(value.get("state.v2", value.get("state")))
        except ValueError:
            return None
        self.targets[name] = state
        return ConnectorChange("target", name) if name in self.connectors else None

    def _apply_commit(self, name: str, value: Mapping[str, Any] | None) -> ConnectorChange | None:
        count = (value or {}).get("tasks")
        if not isinstance(count, int) or count < 0:
            return None
        deferred = self._deferred.pop(name, {})
        # without new ones a commit may only repeat the number of tasks
        known = deferred or dict(enumerate(self.tasks.get(name, [])))
        if any(number not in known for number in range(count)):
            self.inconsistent.add(name)
            self.tasks.pop(name, None)  # half of a new configuration is never used, nor the old one
            return None
        self.tasks[name] = [known[number] for number in range(count)]
        self.inconsistent.discard(name)
        return ConnectorChange("tasks", name)


@dataclass(slots=True)
class StatusState:
    """The last status of each connector and task, and the topics that connectors used."""

    connectors: dict[str, RunStatus] = field(default_factory=dict)
    tasks: dict[ConnectorTaskId, RunStatus] = field(default_factory=dict)
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    """By connector: its topics, and the time in ms at which a task first used each."""

    def get(self, of: ConnectorTaskId | str) -> RunStatus | None:
        """Return the status of a task, or of a connector by name."""
        return self._of_kind(of).get(of)

    def put(self, of: ConnectorTaskId | str, status: RunStatus | None) -> None:
        """Replace a status; None removes it."""
        if status is None:
            self._of_kind(of).pop(of, None)
        else:
            self._of_kind(of)[of] = status

    def _of_kind(self, of: ConnectorTaskId | str) -> dict[Any, RunStatus]:
        return self.tasks if isinstance(of, ConnectorTaskId) else self.connectors

    def tasks_of(self, name: str) -> list[tuple[ConnectorTaskId, RunStatus]]:
        """Return the tasks of a connector that have a status, in their order."""
        return sorted((it for it in self.tasks.items() if it[0].connector == name), key=_task)


def _task(entry: tuple[ConnectorTaskId, RunStatus]) -> ConnectorTaskId:
    return entry[0]
