"""Input of an assignor: members with their previous tasks, and subtopologies.

Kafka: org.apache.kafka.coordinator.group.streams.assignor.{GroupSpec, AssignmentMemberSpec,
TopologyDescriber}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordinator.group.streams.tasks import Tasks

Task: TypeAlias = tuple[str, int]


class MemberSpec(NamedTuple):
    """A member: its process, and its tasks in the last target assignment."""

    process_id: str
    tasks: Tasks


class SubtopologySpec(NamedTuple):
    """A subtopology: how many tasks, and whether they have state."""

    task_count: int
    is_stateful: bool


class StreamsAssignorInput(NamedTuple):
    """Members by id, subtopologies by id in rising order, and the standby tasks of each task."""

    members: Mapping[str, MemberSpec]
    subtopologies: Mapping[str, SubtopologySpec]
    standby_replicas: int
