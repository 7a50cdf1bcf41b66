"""The bytes that workers of a group exchange through its coordinator, in versions 0 to 2.

Version 0 is the eager protocol `default`, 1 the cooperative one `compatible` (KIP-415), 2 is
`sessioned`: 1 with signed requests between workers (KIP-507).

Kafka: org.apache.kafka.connect.runtime.distributed.{ConnectProtocol,
IncrementalCooperativeConnectProtocol, ExtendedAssignment}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.connect.runtime.state import ConnectorTaskId
from ottla.errors import CorruptMessage
from ottla.protocol import codec
from ottla.protocol.schema import Struct, field, int16, int32, int64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.types import Buffer

PROTOCOL_TYPE: Final = "connect"
VERSIONS: Final = {"sessioned": 2, "compatible": 1, "default": 0}
"""Versions by the protocol's name in JoinGroup, the preferred one first."""
NO_ERROR: Final = 0
CONFIG_MISMATCH: Final = 1
"""The leader has not read the newest configuration: all read it, and join again."""
NO_OFFSET: Final = -1
_CONNECTOR: Final = -1
"""The number that stands for the connector itself among its tasks."""


class Work(NamedTuple):
    """Connectors and tasks."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[ConnectorTaskId] = frozenset()

    def __or__(self, other: Work) -> Work:
        """Return what is in either."""
        return Work(self.connectors | other.connectors, self.tasks | other.tasks)

    def __and__(self, other: Work) -> Work:
        """Return what is in both."""
        return Work(self.connectors & other.connectors, self.tasks & other.tasks)

    def __sub__(self, other: Work) -> Work:
        """Return what is not in the other."""
        return Work(self.connectors - other.connectors, self.tasks - other.tasks)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.connectors or self.tasks)


NO_WORK: Final = Work()


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work of one worker, as the leader of a generation has decided."""

    leader_id: str
    leader_url: str
    offset: int
    """The end of the config topic that the leader has read."""
    assigned: Work = NO_WORK
    """From version 1 on only what is new."""
    revoked: Work = NO_WORK
    delay_ms: int = 0
    """Time until all join again, since lost work may come back until then."""
    error: int = NO_ERROR


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The metadata with which a worker joins."""

    url: str
    offset: int
    work: Work = NO_WORK
    """The work that it goes on with during the rebalance."""


class _ConnectorWork(Struct, versions="0-2", flexible="none"):
    connector: str
    tasks: list[int32]


class _Assignment(Struct, versions="0-2", flexible="none"):
    error: int16
    leader: str
    leader_url: str
    config_offset: int64
    assigned: list[_ConnectorWork] | None = field(nullable="1+")
    revoked: list[_ConnectorWork] | None = field("1+", nullable="1+", default=None)
    delay_ms: int32 = field("1+", default=0)


class _WorkerState(Struct, versions="0-2", flexible="none"):
    url: str
    config_offset: int64
    current: bytes | None = field("1+", nullable="1+", default=None)


def _entries(work: Work) -> list[_ConnectorWork]:
    numbers: dict[str, list[int]] = {name: [_CONNECTOR] for name in sorted(work.connectors)}
    for task in sorted(work.tasks):
        numbers.setdefault(task.connector, []).append(task.task)
    return [_ConnectorWork(connector=name, tasks=tasks) for name, tasks in numbers.items()]


def _work(entries: Iterable[_ConnectorWork] | None) -> Work:
    connectors, tasks = set(), set()
    for entry in entries or ():
        for number in entry.tasks:
            if number == _CONNECTOR:
                connectors.add(entry.connector)
            else:
                tasks.add(ConnectorTaskId(entry.connector, number))
    return Work(frozenset(connectors), frozenset(tasks))


def encode_assignment(assignment: Assignment, version: int) -> bytes:
    """Return the bytes that SyncGroup brings to a worker."""
    # Java's workers read null as a list that they cannot change later, and end
    assigned, revoked = _entries(assignment.assigned), _entries(assignment.revoked)
    body = _Assignment(
        error=assignment.error,
        leader=assignment.leader_id,
        leader_url=assignment.leader_url,
        config_offset=assignment.offset,
        assigned=assigned,
        revoked=revoked or None if version else None,
        delay_ms=assignment.delay_ms if version else 0,
    )
    return version.to_bytes(2, "big") + codec.to_bytes(body, version)


def decode_assignment(data: Buffer) -> Assignment:
    """Read the bytes of SyncGroup; CorruptMessage for invalid ones."""
    version, view = _split(data)
    body = codec.decode(_Assignment, version, view)
    return Assignment(
        body.leader,
        body.leader_url,
        body.config_offset,
        _work(body.assigned),
        _work(body.revoked),
        body.delay_ms,
        body.error,
    )


def encode_state(state: WorkerState, version: int, current: Assignment | None = None) -> bytes:
    """Return the bytes of JoinGroup; the current assignment is that of the worker's work."""
    has_current = version and current is not None and state.work
    body = _WorkerState(
        url=state.url,
        config_offset=state.offset,
        current=encode_assignment(current, version) if has_current and current else None,
    )
    return version.to_bytes(2, "big") + codec.to_bytes(body, version)


def decode_state(data: Buffer) -> WorkerState:
    """Read the bytes of JoinGroup; CorruptMessage for invalid ones."""
    version, view = _split(data)
    body = codec.decode(_WorkerState, version, view)
    current = body.current
    work = decode_assignment(current).assigned if current else NO_WORK
    return WorkerState(body.url, body.config_offset, work)


def _split(data: Buffer) -> tuple[int, memoryview]:
    view = memoryview(data)
    version = int.from_bytes(view[:2], "big", signed=True)
    if len(view) < 2 or version < 0:
        raise CorruptMessage("a message of Connect's group protocol starts with its version")
    return min(version, max(VERSIONS.values())), view[2:]
