"""One incarnation of a topic, and its partitions as the quorum decided them.

Kafka: org.apache.kafka.metadata.{PartitionRegistration, LeaderRecoveryState, DirectoryId};
org.apache.kafka.image.TopicImage.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.records.metadata import PartitionChangeRecord, PartitionRecord
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


class TopicImage:
    """One incarnation of a topic."""

    __slots__ = ("change_count", "encoded", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionRegistration] = {}
        """Read-only outside this class."""
        self.encoded: dict[Hashable, tuple[int, bytes]] = {}
        """Responses about this topic, each with the `ClusterImage.change_count` it is of."""
        self.change_count = 0

    def put(self, partition_id: int, partition: PartitionRegistration) -> None:
        """Add or replace a partition."""
        self.partitions[partition_id] = partition
        self.change_count += 1
        self.encoded.clear()

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"


NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2

MIGRATING_DIRECTORY: Final = Uuid()
UNASSIGNED_DIRECTORY: Final = Uuid(bytes(15) + b"\x01")
LOST_DIRECTORY: Final = Uuid(bytes(15) + b"\x02")
RESERVED_DIRECTORIES: Final = frozenset(
    {Uuid(bytes(15) + bytes([low])) for low in range(100)} | {ZERO_UUID}
)


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected uncleanly and has to recover first (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1
    NO_CHANGE = -1


class PartitionRegistration(NamedTuple):
    """Immutable; a change makes a new one. `directories` has one entry a replica, by position."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        """Whether a broker leads the partition."""
        return self.leader != NO_LEADER

    @property
    def preferred_replica(self) -> int:
        """The replica that leads when it is in sync."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.removing_replicas or self.adding_replicas)

    def directory_of(self, replica: int) -> Uuid:
        """Return the log directory that holds a replica; KeyError when it holds none."""
        try:
            return self.directories[self.replicas.index(replica)]
        except ValueError:
            raise KeyError(replica) from None

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """Return the registration after a change; epochs rise as Kafka's do."""
        directories: Sequence[Uuid] = self.directories
        replicas = self.replicas
        if change.replicas is not None:
            replicas = tuple(change.replicas)
            if change.directories is None:
                known = dict(zip(self.replicas, self.directories, strict=True))
                directories = tuple(
                    known.get(replica, UNASSIGNED_DIRECTORY) for replica in replicas
                )
        if change.directories is not None:
            directories = change.directories
        leader, leader_epoch = self.leader, self.leader_epoch
        if change.leader != NO_LEADER_CHANGE:
            leader, leader_epoch = change.leader, leader_epoch + 1
        state = change.leader_recovery_state
        return PartitionRegistration(
            replicas,
            tuple(directories),
            _changed(change.isr, self.isr),
            leader,
            leader_epoch,
            self.partition_epoch + 1,
            self.leader_recovery_state if state == LeaderRecoveryState.NO_CHANGE else state,
            _changed(change.removing_replicas, self.removing_replicas),
            _changed(change.adding_replicas, self.adding_replicas),
            _changed(change.eligible_leader_replicas, self.eligible_leader_replicas),
            _changed(change.last_known_elr, self.last_known_elr),
        )

    def without_elr(self) -> PartitionRegistration:
        """Return the registration with both lists of eligible leaders emptied (ClearElr).

        This raises the partition epoch, as every change does.
        """
        if not self.eligible_leader_replicas and not self.last_known_elr:
            return self
        return self._replace(
            partition_epoch=self.partition_epoch + 1, eligible_leader_replicas=(), last_known_elr=()
        )

    def to_record(self, topic_id: Uuid, partition_id: int, *, version: int = 2) -> PartitionRecord:
        """Return the record that makes this registration; ELR only where version carries it."""
        has_elr = version >= 2
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories) if version >= 1 else [],
            eligible_leader_replicas=_or_null(self.eligible_leader_replicas) if has_elr else None,
            last_known_elr=_or_null(self.last_known_elr) if has_elr else None,
        )


def registration_of(record: PartitionRecord) -> PartitionRegistration:
    """Read a registration from its record; replicas without a directory get MIGRATING."""
    replicas = tuple(record.replicas)
    directories = tuple(record.directories) or (MIGRATING_DIRECTORY,) * len(replicas)
    return PartitionRegistration(
        replicas,
        directories,
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        record.leader_recovery_state,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )


def _changed(new: Sequence[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _or_null(replicas: tuple[int, ...]) -> list[int] | None:
    return list(replicas) if replicas else None
