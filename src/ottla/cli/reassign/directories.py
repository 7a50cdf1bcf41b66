"""Log directories of replicas in plans: shown, and compared with where the replicas lie.

Kafka: org.apache.kafka.tools.reassign.ReassignPartitionsCommand, executeMoves, verifyReplicaMoves.
Brokers do not move replicas between their directories, so plans may only name what holds anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.options.failures import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.blocking import Admin
    from ottla.types import TopicPartition

    Places = dict[tuple[TopicPartition, int], str]


def places_of(admin: Admin, replicas: Iterable[tuple[TopicPartition, int]]) -> Places:
    """Return the directories of those replicas that are found."""
    found = admin.describe_replica_log_dirs(replicas)
    return {
        replica: place.current_path
        for replica, place in found.items()
        if place.current_path is not None
    }


def replicas_in(
    assignment: Mapping[TopicPartition, Sequence[int]],
) -> list[tuple[TopicPartition, int]]:
    """Return each replica of partitions as partition and broker."""
    return [(partition, one) for partition, replicas in assignment.items() for one in replicas]


def check_directories(admin: Admin, wanted: Places) -> None:
    """Refuse directories that replicas would have to be moved to."""
    places = places_of(admin, wanted)
    for (partition, broker), directory in sorted(wanted.items()):
        if places.get((partition, broker)) == directory:
            continue
        paths = [one.path for one in admin.describe_log_dirs([broker])[broker]]
        if paths != [directory]:
            raise ToolError(
                f"Replica {partition}-{broker} is not in {directory}: moves between log "
                'directories are not supported; use "any"'
            )


def started_lines(wanted: Places) -> list[str]:
    """Return a line for each replica with a directory, as if a move had been started."""
    return [
        f"Successfully started moving log directory to {directory} for replica {partition} "
        f"with broker {broker} "
        for (partition, broker), directory in sorted(wanted.items())
    ]


def state_lines(admin: Admin, wanted: Places) -> list[str]:
    """Return the state of each replica with a directory."""
    places = places_of(admin, wanted) if wanted else {}
    return [
        _state(partition, broker, places.get((partition, broker)), directory)
        for (partition, broker), directory in sorted(wanted.items())
    ]


def _state(partition: TopicPartition, broker: int, place: str | None, wanted: str) -> str:
    if place is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}. There is "
            "likely an offline log directory on the broker."
        )
    if place == wanted:
        return f"Reassignment of replica {partition}-{broker} completed successfully."
    return (
        f"Partition {partition} on broker {broker} is not being moved from log dir {place} to "
        f"{wanted}."
    )
