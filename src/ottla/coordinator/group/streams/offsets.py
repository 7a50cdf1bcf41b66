"""Which member may commit offsets.

Kafka: StreamsGroup.{validateOffsetCommit, createAssignmentEpochValidator}
(KIP-1071, KIP-1251).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.context import MEMBER_EPOCH_VERSION
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.context import PartitionCheck
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.types import Uuid


def commit_validator(
    group: StreamsGroup, member_id: str, member_epoch: int, api_version: int
) -> PartitionCheck | None:
    """Raise for an invalid member; return a check of each partition, None if none is needed.

    A member may commit a partition at an older epoch if it has run the task since then.
    """
    if member_epoch < 0 and group.is_empty:
        return None
    member = group.member(member_id)
    if api_version < MEMBER_EPOCH_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the streams group "
            "protocol",
        )
    if member_epoch == member.member_epoch:
        return None
    if member_epoch > member.member_epoch:
        text = f"is newer than current member epoch {member.member_epoch}."
        raise group.stale(member, f"Received member epoch {member_epoch} {text}")
    topology = group.topology
    if topology is None:
        raise group.stale(member, "Topology is not available for offset commit validation.")

    def check(topic: str, index: int, _topic_id: Uuid) -> None:
        subtopology_id = topology.source_topics.get(topic)
        if subtopology_id is None:
            raise group.stale(member, f"Topic {topic} is not in the topology.")
        epoch = member.assignment_epoch(subtopology_id, index)
        if epoch is None:
            text = "is not assigned or pending revocation for member."
            raise group.stale(member, f"Task {subtopology_id}-{index} {text}")
        if member_epoch < epoch:
            text = f"is older than assignment epoch {epoch} for task {subtopology_id}-{index}."
            raise group.stale(member, f"Received member epoch {member_epoch} {text}")

    return check
