"""Moves of replicas between log directories: started, cancelled and listed.

Kafka: org.apache.kafka.tools.reassign.ReassignPartitionsCommand: executeMoves,
findLogDirMoveStates, replicaMoveStatesToString.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.options.failures import ToolError
from ottla.cli.reassign.plans import joined, plural
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.admin.replicas import ReplicaPlace
    from ottla.clients.blocking import Admin
    from ottla.types import TopicPartition

    Replica = tuple[TopicPartition, int]
    Places = dict[Replica, str]

_PAUSE_S: Final = 0.1


class TimedOut(Exception):
    """Replicas that did not appear on their brokers in time."""


def places_of(admin: Admin, replicas: Iterable[Replica]) -> Places:
    """Return the directories of those replicas that are found."""
    found = admin.describe_replica_log_dirs(replicas)
    return {
        replica: place.current_path
        for replica, place in found.items()
        if place.current_path is not None
    }


def replicas_in(assignment: Mapping[TopicPartition, Sequence[int]]) -> list[Replica]:
    """Return each replica of partitions as partition and broker."""
    return [
        (partition, replica) for partition, replicas in assignment.items() for replica in replicas
    ]


def start_moves(admin: Admin, targets: Places, timeout_ms: int) -> None:
    """Move replicas to directories; a replica that its broker does not have yet is retried."""
    deadline = time.monotonic() + timeout_ms / 1000
    waiting = dict(targets)
    while waiting:
        started = _start(admin, waiting)
        for replica in sorted(started):
            partition, broker = replica
            click.echo(
                f"Successfully started moving log directory to {waiting.pop(replica)} for replica "
                f"{partition} with broker {broker} "
            )
        if waiting and time.monotonic() >= deadline:
            names = joined(_name(replica) for replica in sorted(waiting))
            raise TimedOut(
                f"Timed out before log directory move{plural(waiting)} could be started "
                f"for: {names}"
            )
        if waiting:
            time.sleep(_PAUSE_S)


def _start(admin: Admin, targets: Places) -> list[Replica]:
    started = []
    for replica, error in admin.alter_replica_log_dirs(targets).items():
        if error is None:
            started.append(replica)
        elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise ToolError(f"Failed to alter dir for {_name(replica)}") from error
    return started


def _name(replica: Replica) -> str:
    partition, broker = replica
    return f"{partition}-{broker}"


def moves_under_way(admin: Admin, targets: Places) -> Places:
    """Return those replicas that move to any directory, each with the one it is in."""
    places = admin.describe_replica_log_dirs(targets) if targets else {}
    return {
        replica: place.current_path
        for replica, place in places.items()
        if place.current_path is not None and place.future_path is not None
    }


def state_lines(admin: Admin, targets: Places) -> list[str]:
    """Return the state of each replica with a directory."""
    places = admin.describe_replica_log_dirs(targets) if targets else {}
    return [_state(replica, places[replica], targets[replica]) for replica in sorted(targets)]


def _state(replica: Replica, place: ReplicaPlace, target: str) -> str:
    partition, broker = replica
    if place.current_path is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}. There is "
            "likely an offline log directory on the broker."
        )
    if place.future_path == target:
        return f"Reassignment of replica {_name(replica)} is still in progress."
    if place.future_path is not None:
        return (
            f"Partition {partition} on broker {broker} is being moved to log dir "
            f"{place.future_path} instead of {target}."
        )
    if place.current_path == target:
        return f"Reassignment of replica {_name(replica)} completed successfully."
    return (
        f"Partition {partition} on broker {broker} is not being moved from log dir "
        f"{place.current_path} to {target}."
    )
