"""Which member may commit and fetch offsets.

Kafka: ConsumerGroup.{validateOffsetCommit, createAssignmentEpochValidator, validateOffsetFetch}
(KIP-848, KIP-1251).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.context import MEMBER_EPOCH_VERSION
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.member import ConsumerMember
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
        raise _stale(
            member,
            f"Received {_epoch_name(member)} {member_epoch} is newer than current member epoch "
            f"{member.member_epoch}.",
        )
    return lambda topic, partition, topic_id: _check(
        member, member_epoch, (topic, partition), topic_id
    )


def _check(
    member: ConsumerMember, member_epoch: int, partition: tuple[str, int], topic_id: Uuid
) -> None:
    topic, index = partition
    epoch = member.assignment_epoch(topic_id, index)
    if epoch is None:
        raise _stale(
            member, f"Partition {topic}-{index} is not assigned or pending revocation for member."
        )
    if member_epoch < epoch:
        raise _stale(
            member,
            f"Received {_epoch_name(member)} {member_epoch} is older than assignment epoch "
            f"{epoch} for partition {topic}-{index}.",
        )


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int, epoch: int) -> None:
    """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH; requests without a member pass."""
    if member_id is None and member_epoch < 0:
        return
    member = group.member_at(member_id, epoch)
    if member_epoch != member.member_epoch:
        raise _stale(
            member,
            f"The received {_epoch_name(member)} {member_epoch} does not match the expected member "
            f"epoch {member.member_epoch}.",
        )


def _epoch_name(member: ConsumerMember) -> str:
    return "member epoch" if member.classic is None else "generation id"


def _stale(member: ConsumerMember, text: str) -> KafkaError:
    is_classic = member.classic is not None
    code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, text)
