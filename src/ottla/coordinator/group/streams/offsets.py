"""Which member may commit and fetch offsets.

Kafka: StreamsGroup.{validateOffsetCommit, createAssignmentEpochValidator, validateOffsetFetch}
(KIP-1071, KIP-1251).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.context import MEMBER_EPOCH_VERSION
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.context import PartitionCheck
    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.member import StreamsMember
    from ottla.coordinator.group.streams.topology import StreamsTopology


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
        raise _stale(
            f"Received member epoch {member_epoch} is newer than current member epoch "
            f"{member.member_epoch}."
        )
    topology = group.topology
    if topology is None:
        raise _stale("Topology is not available for offset commit validation.")
    return lambda topic, partition, _topic_id: _check(
        topology, member, member_epoch, (topic, partition)
    )


def _check(
    topology: StreamsTopology, member: StreamsMember, member_epoch: int, partition: tuple[str, int]
) -> None:
    topic, index = partition
    subtopology_id = topology.source_topics.get(topic)
    if subtopology_id is None:
        raise _stale(f"Topic {topic} is not in the topology.")
    epoch = member.assignment_epoch(subtopology_id, index)
    if epoch is None:
        raise _stale(
            f"Task {subtopology_id}-{index} is not assigned or pending revocation for member."
        )
    if member_epoch < epoch:
        raise _stale(
            f"Received member epoch {member_epoch} is older than assignment epoch {epoch} for "
            f"task {subtopology_id}-{index}."
        )


def check_fetch(group: StreamsGroup, member_id: str | None, member_epoch: int, epoch: int) -> None:
    """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH; requests without a member pass."""
    if member_id is None and member_epoch < 0:
        return
    member = group.member_at(member_id, epoch)
    if member_epoch != member.member_epoch:
        raise _stale(
            f"The received member epoch {member_epoch} does not match the expected member epoch "
            f"{member.member_epoch}."
        )


def _stale(text: str) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, text)
