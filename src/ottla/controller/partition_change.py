"""Builds the record that changes the ISR, leader or replicas of a partition.

Kafka: org.apache.kafka.controller.PartitionChangeBuilder. Eligible leader replicas (KIP-966): a
replica that leaves an ISR smaller than min.insync.replicas is known to hold all committed data
and may still lead; when none is left, the last known leader is elected.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.partition import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    LeaderRecoveryState,
    PartitionRegistration,
)
from ottla.protocol.records.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.types import Uuid


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
        "_is_acceptable",
        "_partition",
        "_topic_id",
        "adding_replicas",
        "directories",
        "elected_uncleanly",
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
    ) -> None:
        """Start from the current partition; is_acceptable returns whether a broker can lead."""
        self._topic_id = topic_id
        self._partition = partition
        self._is_acceptable = is_acceptable
        self.partition_id = partition_id
        self.isr: list[int] = list(partition.isr)
        self.replicas: list[int] = list(partition.replicas)
        self.adding_replicas: list[int] = list(partition.adding_replicas)
        self.removing_replicas: list[int] = list(partition.removing_replicas)
        self.directories: tuple[Uuid, ...] | None = None
        self.recovery_state = partition.leader_recovery_state
        self.election = Election.ONLINE
        self.min_isr = 1
        self.elr_enabled = False
        self.unclean_replicas: tuple[int, ...] = ()
        self.elected_uncleanly = False

    def build(self, version: int) -> MessageAndVersion | None:
        """Return the record, None without a change."""
        old = self._partition
        record = PartitionChangeRecord(topic_id=self._topic_id, partition_id=self.partition_id)
        self._complete_reassignment()
        elr = self._eligible_replicas()
        elr = self._elect(record, elr)
        if self.elected_uncleanly or not self.elr_enabled:
            elr = []
        if record.isr is None and (self.isr or self.elr_enabled) and self.isr != list(old.isr):
            record.isr = list(self.isr)
        self._bump_epoch_when_needed(record)
        if self.elr_enabled or old.eligible_leader_replicas:
            _set_if_changed(record, "eligible_leader_replicas", elr, old.eligible_leader_replicas)
        self._remember_last_leader(record)
        _set_if_changed(record, "replicas", self.replicas, old.replicas)
        _set_if_changed(record, "removing_replicas", self.removing_replicas, old.removing_replicas)
        _set_if_changed(record, "adding_replicas", self.adding_replicas, old.adding_replicas)
        keeps_state = record.leader_recovery_state == LeaderRecoveryState.NO_CHANGE
        if keeps_state and self.recovery_state != old.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        if self.directories is not None and self.directories != old.directories:
            record.directories = list(self.directories)
        return None if _is_no_op(record) else MessageAndVersion(record, version)

    def _complete_reassignment(self) -> None:
        """Drop the removed replicas when all others are in sync."""
        if not self.adding_replicas and not self.removing_replicas:
            return
        stay = [replica for replica in self.replicas if replica not in self.removing_replicas]
        isr = [replica for replica in self.isr if replica in stay]
        if stay and isr and all(replica in self.isr for replica in self.adding_replicas):
            self.replicas, self.isr = stay, isr
            self.adding_replicas, self.removing_replicas = [], []

    def _eligible_replicas(self) -> list[int]:
        if not self.elr_enabled or len(self.isr) >= min(self.min_isr, len(self.replicas)):
            return []
        before = (*self._partition.eligible_leader_replicas, *self._partition.isr)
        elr: list[int] = []
        for replica in before:
            if replica not in (*elr, *self.isr, *self.unclean_replicas):
                elr.append(replica)
        return elr

    def _elect(self, record: PartitionChangeRecord, elr: list[int]) -> list[int]:
        """Choose the leader; return the remaining eligible replicas."""
        old = self._partition
        leader = self._choose(elr)
        if leader == old.leader:
            return elr
        record.leader = leader
        if self.elected_uncleanly:
            self.isr = [leader]
            record.isr = [leader]
            if old.leader_recovery_state != LeaderRecoveryState.RECOVERING:
                record.leader_recovery_state = LeaderRecoveryState.RECOVERING
        elif leader != NO_LEADER and leader in elr:
            self.isr = [leader]
            return [replica for replica in elr if replica != leader]
        return elr

    def _choose(self, elr: list[int]) -> int:
        valid = [
            replica
            for replica in self.replicas
            if (replica in self.isr or replica in elr) and self._is_acceptable(replica)
        ]
        current = self._partition.leader
        if self.election is Election.PREFERRED and self.replicas[:1] == valid[:1] and valid:
            return valid[0]
        if current in valid:
            return current
        if valid:
            return valid[0]
        return self._choose_uncleanly(elr)

    def _choose_uncleanly(self, elr: list[int]) -> int:
        last = self._partition.last_known_elr
        can_elect_last = self.elr_enabled and not self.isr and not elr and len(last) == 1
        if can_elect_last and self._is_acceptable(last[0]) and last[0] in self.replicas:
            self.elected_uncleanly = True
            return last[0]
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._is_acceptable(replica):
                    self.elected_uncleanly = True
                    return replica
        return NO_LEADER

    def _bump_epoch_when_needed(self, record: PartitionChangeRecord) -> None:
        """Bump the leader epoch when replicas are removed, so that followers notice."""
        old = self._partition
        shrinks = any(replica not in self.replicas for replica in old.replicas)
        if record.leader == NO_LEADER_CHANGE and shrinks:
            record.leader = old.leader

    def _remember_last_leader(self, record: PartitionChangeRecord) -> None:
        if not self.elr_enabled:
            return
        old = self._partition
        if record.isr is not None and not record.isr:
            if list(old.last_known_elr) != [old.leader] and old.leader != NO_LEADER:
                record.last_known_elr = [old.leader]
        elif old.last_known_elr and (
            record.leader >= 0 or (old.has_leader and record.leader != NO_LEADER)
        ):
            record.last_known_elr = []


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
