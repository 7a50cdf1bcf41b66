"""The records of a distributed worker's config and status topics, byte for byte as Kafka's.

Keys are texts, values JSON without a schema; malformed ones are None, and skipped.

Kafka: org.apache.kafka.connect.storage.{KafkaConfigBackingStore, KafkaStatusBackingStore}.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.connect.runtime.state import ConnectorTaskId, RunState, RunStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

SESSION_KEY: Final = "session-key"
RESTART: Final = "restart-connector-"
_CONNECTOR: Final = "status-connector-"
_TASK: Final = "status-task-"
_TOPIC: Final = "status-topic-"
_OF_CONNECTOR: Final = ":connector-"


def encode(value: Mapping[str, Any] | None) -> bytes | None:
    """Return the bytes of a value, None for a deletion."""
    if value is None:
        return None
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="backslashreplace")  # of half a character JSON's escape


def decode(data: bytes | None) -> dict[str, Any] | None:
    """Return a value; None for a deletion. ValueError for anything but an object."""
    if data is None:
        return None
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("the value is no object")  # noqa: TRY004 - one error of bad bytes
    return value


class TopicUse(NamedTuple):
    """A topic that a connector uses."""

    connector: str
    topic: str


def status_key(of: ConnectorTaskId | TopicUse | str) -> str:
    """Return the key of a task's, a connector's or a used topic's record."""
    if isinstance(of, ConnectorTaskId):
        return f"{_TASK}{of.connector}-{of.task}"
    if isinstance(of, TopicUse):
        return f"{_TOPIC}{of.topic}{_OF_CONNECTOR}{of.connector}"
    return _CONNECTOR + of


def parse_status_key(key: str) -> ConnectorTaskId | TopicUse | str | None:
    """Return what a record of the status topic is about; None for something else."""
    if key.startswith(_CONNECTOR):
        return key.removeprefix(_CONNECTOR)
    if key.startswith(_TASK):
        name, _, number = key.removeprefix(_TASK).rpartition("-")
        return ConnectorTaskId(name, int(number)) if number.isdecimal() and name else None
    if key.startswith(_TOPIC):
        topic, separator, name = key.removeprefix(_TOPIC).partition(_OF_CONNECTOR)
        return TopicUse(name, topic) if separator else None
    return None


def status_value(status: RunStatus | None) -> dict[str, Any] | None:
    """Return the value of a status."""
    if status is None:
        return None
    return {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version,
    }


def parse_status(value: Mapping[str, Any]) -> RunStatus | None:
    """Return a status; None for a malformed value, and for a state that is never shown."""
    try:
        state = RunState(value.get("state"))
    except ValueError:  # also DESTROYED
        return None
    worker_id, generation = value.get("worker_id"), value.get("generation")
    if not isinstance(worker_id, str) or not isinstance(generation, int):
        return None
    return RunStatus(state, worker_id, generation, value.get("trace"), value.get("version"))


def topic_value(use: TopicUse, task: int, now_ms: int) -> dict[str, Any]:
    """Return the value of a used topic."""
    named = {"name": use.topic, "connector": use.connector, "task": task}
    return {"topic": {**named, "discoverTimestamp": now_ms}}
