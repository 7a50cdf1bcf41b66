"""A member of a streams group: replayed state, replaced as a whole on every change.

Kafka: org.apache.kafka.coordinator.group.streams.{StreamsGroupMember, MemberState}.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.group.streams.tasks import AssignedTasks

if TYPE_CHECKING:
    from collections.abc import Mapping

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2


class StreamsMemberState(IntEnum):
    """Progress of a member towards its target assignment, by the numbers of its records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> StreamsMemberState:
        return cls.UNKNOWN  # of a later release


class Endpoint(NamedTuple):
    """Where a process answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member; the mappings are never changed in place."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: AssignedTasks = field(default_factory=AssignedTasks)
    pending_revocation: AssignedTasks = field(default_factory=AssignedTasks)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has reached the target assignment of an epoch."""
        return self.state is StreamsMemberState.STABLE and self.member_epoch == assignment_epoch

    def moved(
        self,
        state: StreamsMemberState,
        epoch: int,
        assigned: AssignedTasks,
        pending_revocation: AssignedTasks,
    ) -> StreamsMember:
        """Return the member with another state and assignment; its epoch becomes the previous."""
        return replace(
            self,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def assignment_epoch(self, subtopology_id: str, partition: int) -> int | None:
        """Return the epoch in which an active task was assigned; None if it is not the member's."""
        found = self.assigned.active.get(subtopology_id, {}).get(partition)
        if found is None:
            return self.pending_revocation.active.get(subtopology_id, {}).get(partition)
        return found
