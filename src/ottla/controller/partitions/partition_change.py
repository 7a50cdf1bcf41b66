"""Builds the record that changes the ISR, leader or replicas of a partition.

Kafka: org.apache.kafka.controller.PartitionChangeBuilder. Eligible leader replicas (KIP-966): a
replica that leaves an ISR smaller than min.insync.replicas is known to hold all committed data
and may still lead; when none is left, the last known leader is elected.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.partition import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    UNASSIGNED_DIRECTORY,
    LeaderRecoveryState,
    PartitionRegistration,
)
from ottla.protocol.records.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.types import Uuid


_DIRECTORIES_FROM: Final = 1
"""The first version of the record with directories."""


class Election(Enum):
    """The kind of leader election."""

    ONLINE = 0
    """Keep the leader if it is acceptable; otherwise any in-sync replica."""
    PREFERRED = 1
    """Elect the first replica if it is in sync."""
    UNCLEAN = 2
    """Elect an out-of-sync replica if no other is available."""


class PartitionChange:
    """Set the target, then call `build` once."""

    __slots__ = (
        "_default_directory",
        "_is_acceptable",
        "_partition",
        "_topic_id",
        "adding_replicas",
        "bumps_epoch_on_shrink",
        "directories",
        "election",
        "elr_enabled",
        "isr",
        "min_isr",
        "partition_id",
        "recovery_state",
        "removing_replicas",
        "replicas",
        "unclean_replicas",
    )

    def __init__(
        self,
        topic_id: Uuid,
        partition_id: int,
        partition: PartitionRegistration,
        is_acceptable: Callable[[int], bool],
        default_directory: Callable[[int], Uuid] = lambda _: UNASSIGNED_DIRECTORY,
    ) -> None:
        """Start from the current partition.

        is_acceptable returns whether a broker can lead, default_directory where a new replica goes.
        """
        self._topic_id = topic_id
        self._partition = partition
        self._is_acceptable = is_acceptable
        self._default_directory = default_directory
        self.partition_id = partition_id
        self.isr: list[int] = list(partition.isr)
        self.replicas: list[int] = list(partition.replicas)
        self.adding_replicas: list[int] = list(partition.adding_replicas)
        self.removing_replicas: list[int] = list(partition.removing_replicas)
        self.directories: dict[int, Uuid] = {}
        """Directories that differ from those of the partition, by replica."""
        self.recovery_state = partition.leader_recovery_state
        self.election = Election.ONLINE
        self.min_isr = 1
        self.elr_enabled = False
        self.bumps_epoch_on_shrink = False
        self.unclean_replicas: tuple[int, ...] = ()

    def build(self, version: int) -> MessageAndVersion | None:
        """Return the record, None without a change."""
        old = self._partition
        record = PartitionChangeRecord(topic_id=self._topic_id, partition_id=self.partition_id)
        self._complete_reassignment()
        elr = self._elect(record, self._eligible_replicas())
        if _shrinks(old.replicas, self.replicas):
            self._bump_epoch(record)  # so that followers notice
        is_clean = record.isr is None
        if not is_clean or not self.elr_enabled:
            elr = []
        _set_if_changed(record, "eligible_leader_replicas", elr, old.eligible_leader_replicas)
        if is_clean and (self.isr or self.elr_enabled) and self.isr != list(old.isr):
            record.isr = list(self.isr)
        if self.bumps_epoch_on_shrink and record.isr and _shrinks(old.isr, record.isr):
            self._bump_epoch(record)
        if self.elr_enabled:
            last = self._partition.last_known_elr
            if record.leader == NO_LEADER and not last:
                record.last_known_elr = [self._partition.leader]
            elif record.leader >= 0 and last:
                record.last_known_elr = []
        self._set_assignment(record, version)
        if is_clean and self.recovery_state != old.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        return None if _is_no_op(record) else MessageAndVersion(record, version)

    def _complete_reassignment(self) -> None:
        """Drop the removed replicas once the added ones are in sync.

        Where more replicas are removed than added, all that stay must be in sync.
        """
        adding, removing = self.adding_replicas, self.removing_replicas
        if not adding and not removing:
            return
        stay = [replica for replica in self.replicas if replica not in removing]
        isr = [replica for replica in self.isr if replica not in removing]
        if removing and not (stay and isr):
            return
        required = stay if len(adding) < len(removing) else adding
        if all(replica in isr for replica in (*adding, *required)):
            self.replicas, self.isr = stay, isr
            self.adding_replicas, self.removing_replicas = [], []

    def _eligible_replicas(self) -> list[int]:
        """Return the replicas outside the ISR that hold all committed records.

        A replica that is no longer assigned is not among them, other than in Kafka: it may be
        assigned again, without its data.
        """
        if not self.elr_enabled or len(self.isr) >= self.min_isr:
            return []
        old = self._partition
        before = dict.fromkeys((*old.eligible_leader_replicas, *old.isr))
        leaving = {*self.isr, *self.unclean_replicas}
        eligible = (
            replica for replica in before if replica in self.replicas and replica not in leaving
        )
        return sorted(eligible, key=_hash_bucket)

    def _elect(self, record: PartitionChangeRecord, elr: list[int]) -> list[int]:
        """Choose the leader; return the remaining eligible replicas."""
        leader, is_unclean = self._choose(elr)
        if leader == self._partition.leader:
            return elr
        record.leader = leader
        if leader in elr:
            self.isr = [leader]
            elr = [replica for replica in elr if replica != leader]
        if is_unclean:
            self.isr = [leader]
            record.isr = [leader]
            if self._partition.leader_recovery_state != LeaderRecoveryState.RECOVERING:
                record.leader_recovery_state = LeaderRecoveryState.RECOVERING
        return elr

    def _choose(self, elr: list[int]) -> tuple[int, bool]:
        candidates = self.isr or elr  # an eligible replica leads only when none is in sync
        valid = [
            replica
            for replica in self.replicas
            if replica in candidates and self._is_acceptable(replica)
        ]
        current = self._partition.leader
        if self.election is Election.PREFERRED and valid and valid[0] == self.replicas[0]:
            return valid[0], False
        if current in valid:
            return current, False
        if valid:
            return valid[0], False
        return self._choose_uncleanly(elr)

    def _choose_uncleanly(self, elr: list[int]) -> tuple[int, bool]:
        last = self._partition.last_known_elr
        can_elect_last = self.elr_enabled and not self.isr and not elr and len(last) == 1
        if can_elect_last and last[0] in self.replicas and self._is_acceptable(last[0]):
            return last[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._is_acceptable(replica):
                    return replica, True
        return NO_LEADER, False

    def _bump_epoch(self, record: PartitionChangeRecord) -> None:
        if record.leader == NO_LEADER_CHANGE:
            record.leader = self._partition.leader

    def _set_assignment(self, record: PartitionChangeRecord, version: int) -> None:
        old = self._partition
        is_reassigned = self.replicas != list(old.replicas)
        if version >= _DIRECTORIES_FROM and (self.directories or is_reassigned):
            directories = [self._directory(replica) for replica in self.replicas]
            if directories != list(old.directories):
                record.directories = directories
        _set_if_changed(record, "replicas", self.replicas, old.replicas)
        _set_if_changed(record, "removing_replicas", self.removing_replicas, old.removing_replicas)
        _set_if_changed(record, "adding_replicas", self.adding_replicas, old.adding_replicas)

    def _directory(self, replica: int) -> Uuid:
        if replica in self.directories:
            return self.directories[replica]
        if replica in self._partition.replicas:
            return self._partition.directory_of(replica)
        return self._default_directory(replica)


def _shrinks(old: Sequence[int], new: Sequence[int]) -> bool:
    return any(replica not in new for replica in old)


def _hash_bucket(replica: int) -> int:
    """Return the position of an id in a small Java HashSet, whose order Kafka records."""
    return (replica ^ replica >> 16) & 15


def _set_if_changed(
    record: PartitionChangeRecord, name: str, new: Sequence[int], old: Sequence[int]
) -> None:
    if list(new) != list(old):
        setattr(record, name, list(new))


def _is_no_op(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == LeaderRecoveryState.NO_CHANGE
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
