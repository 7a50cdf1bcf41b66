"""Which member may commit offsets.

Kafka: ConsumerGroup.{validateOffsetCommit, createAssignmentEpochValidator}
(KIP-848, KIP-1251).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.context import MEMBER_EPOCH_VERSION
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.context import PartitionCheck
    from ottla.types import Uuid


def commit_validator(
    group: ConsumerGroup,
    member_id: str,
    member_epoch: int,
    api_version: int,
) -> PartitionCheck | None:
    """Raise for an invalid member; return a check of each partition, None if none is needed.

    A member may commit a partition at an older epoch if it has owned the partition since then.
    """
    if member_epoch < 0 and group.is_empty:
        return None
    member = group.member(member_id)
    if member.classic is None and api_version < MEMBER_EPOCH_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group "
            "protocol",
        )
    if member_epoch == member.member_epoch:
        return None
    if member_epoch > member.member_epoch:
        text = f"is newer than current member epoch {member.member_epoch}."
        raise group.stale(member, f"Received {group.epoch_name(member)} {member_epoch} {text}")

    def check(topic: str, index: int, topic_id: Uuid) -> None:
        epoch = member.assignment_epoch(topic_id, index)
        if epoch is None:
            text = "is not assigned or pending revocation for member."
            raise group.stale(member, f"Partition {topic}-{index} {text}")
        if member_epoch < epoch:
            text = f"is older than assignment epoch {epoch} for partition {topic}-{index}."
            raise group.stale(member, f"Received {group.epoch_name(member)} {member_epoch} {text}")

    return check
