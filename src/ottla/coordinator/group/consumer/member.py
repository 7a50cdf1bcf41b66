"""A member of a consumer group: replayed state, replaced as a whole on every change.

Kafka: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember, modern.MemberState.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.types import Uuid

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2

TopicPartitions: TypeAlias = "Mapping[Uuid, tuple[int, ...]]"
"""Partitions by topic id, rising."""
EpochsByPartition: TypeAlias = "Mapping[Uuid, Mapping[int, int]]"
"""Partitions by topic id, each with the epoch in which it was assigned (KIP-1251)."""


class MemberState(IntEnum):
    """Progress of a member towards its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> MemberState:
        return cls.UNKNOWN  # of a later release


class ClassicMetadata(NamedTuple):
    """What a member that uses the classic protocol has sent when it joined.

    protocols holds name and subscription of each, in the member's order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol of the member's assignments."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member; the mappings are never changed in place. classic: it uses the classic protocol."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = ""
    server_assignor: str | None = None
    assigned: EpochsByPartition = field(default_factory=dict)
    pending_revocation: EpochsByPartition = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has reached the target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def moved(
        self,
        state: MemberState,
        epoch: int,
        assigned: EpochsByPartition,
        pending_revocation: EpochsByPartition,
    ) -> ConsumerMember:
        """Return the member with another state and assignment; its epoch becomes the previous."""
        return replace(
            self,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Return the epoch in which a partition was assigned; None if it is not the member's."""
        found = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if found is None else found


def without_epochs(assignment: EpochsByPartition) -> dict[Uuid, tuple[int, ...]]:
    """Return the partitions alone."""
    return {topic_id: tuple(sorted(one)) for topic_id, one in assignment.items()}
