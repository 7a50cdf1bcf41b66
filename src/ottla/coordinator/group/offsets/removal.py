"""Removal of offsets: by request, with their group or topic, or by expiry.

Kafka: OffsetMetadataManager.{deleteOffsets, deleteAllOffsets, cleanupExpiredOffsets,
onTopicsDeleted}, ClassicGroup.offsetExpirationCondition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.offsets.records import offset_tombstone
from ottla.coordinator.runtime import CoordinatorRecord, Result
from ottla.coordinator.runtime.shard import EXAMINED_AS_A_RECORD, RECORDS_AT_ONCE
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.group.member_group import Group
    from ottla.coordinator.group.offsets.committed import CommittedOffset

ResponseTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
ResponsePartition = ResponseTopic.OffsetDeleteResponsePartition


def delete_offsets(groups: Groups, request: OffsetDeleteRequest) -> Result[OffsetDeleteResponse]:
    """Delete the named offsets of topics to which no member subscribes.

    Raises GROUP_ID_NOT_FOUND, also for share groups, and NON_EMPTY_GROUP for members whose topics
    are unknown.
    """
    group = groups.get(request.group_id)
    if not group.has_offsets:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    result = Result(OffsetDeleteResponse(topics=[]))
    for topic in request.topics:
        answer = ResponseTopic(name=topic.name, partitions=[])
        result.response.topics.append(answer)
        is_subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        for partition in topic.partitions:
            index = partition.partition_index
            answer.partitions.append(ResponsePartition(partition_index=index, error_code=code))
            name = TopicPartition(topic.name, index)
            if not is_subscribed and _is_known(groups, group, name):
                result.records.append(offset_tombstone(group.group_id, name))
    groups.offsets.deletions += len(result.records)
    return result


def _is_known(groups: Groups, group: Group, partition: TopicPartition) -> bool:
    offsets = groups.offsets
    return offsets.get(group.group_id, partition) is not None or offsets.has_staged(
        group.group_id, partition
    )


def delete_all(groups: Groups, group_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of all committed and staged offsets of a group."""
    known = dict.fromkeys(groups.offsets.by_group.get(group_id, ()))
    known.update(dict.fromkeys(groups.offsets.staged_partitions(group_id)))
    return [offset_tombstone(group_id, partition) for partition in known]


def ids_by_name(topics: Iterable[tuple[str, Uuid]]) -> dict[str, list[Uuid]]:
    """Return the ids of topics, given by name and id, by name."""
    ids: dict[str, list[Uuid]] = {}
    for name, topic_id in topics:
        ids.setdefault(name, []).append(topic_id)
    return ids


def deleted_of_group(
    groups: Groups, ids: Mapping[str, Sequence[Uuid]], group_id: str
) -> tuple[list[CoordinatorRecord], float]:
    """Return the tombstones of a slice of a group's offsets of deleted topics, and the cost.

    The cost is in records. ids holds the ids of the deleted topics by name. Offsets of a new topic
    of the same name stay.
    """
    expired: dict[TopicPartition, None] = {}
    count = 1
    for partition, committed in groups.offsets.all_of_group(group_id):
        count += 1
        for topic_id in ids.get(partition.topic, ()):
            if not committed.topic_id or not topic_id or committed.topic_id == topic_id:
                expired[partition] = None
        if len(expired) == RECORDS_AT_ONCE:
            break
    tombstones = [offset_tombstone(group_id, partition) for partition in expired]
    return tombstones, count / EXAMINED_AS_A_RECORD


def expire(groups: Groups, group: Group, max_count: int) -> tuple[list[CoordinatorRecord], bool]:
    """Return the tombstones of at most max_count expired offsets, and whether no offset remains.

    Offsets of subscribed topics and of open transactions do not expire.
    """
    offsets = groups.offsets
    committed = offsets.by_group.get(group.group_id)
    if committed is None:
        return [], not offsets.has_staged(group.group_id)
    base_timestamp = _expiry_base(group)
    if base_timestamp is None:
        return [], False
    now_ms = groups.classic.clock.now_ms()
    retention_ms = groups.classic.config.offsets_retention_ms
    tombstones = []
    for partition, offset in committed.items():
        if offset.expire_timestamp_ms != -1:
            is_expired = now_ms >= offset.expire_timestamp_ms
        else:
            is_expired = now_ms - base_timestamp(offset) >= retention_ms
        if (
            is_expired
            and not group.is_subscribed_to(partition.topic)
            and not offsets.has_staged(group.group_id, partition)
        ):
            tombstones.append(offset_tombstone(group.group_id, partition))
            if len(tombstones) == max_count:
                break
    offsets.expirations += len(tombstones)
    is_all = len(tombstones) == len(committed) and not offsets.has_staged(group.group_id)
    return tombstones, is_all


def _expiry_base(group: Group) -> Callable[[CommittedOffset], int] | None:
    """Return the start of an offset's retention; None if the group's offsets do not expire.

    The retention starts when the group becomes empty, or at the commit in Stable consumer groups
    and simple groups; offsets of other groups with members do not expire. Groups of the consumer
    protocol count from the commit.
    """

    def since_commit(offset: CommittedOffset) -> int:
        return offset.commit_timestamp_ms

    if not isinstance(group, ClassicGroup) or group.protocol_type is None:
        return since_commit
    if group.is_in(ClassicState.EMPTY):
        emptied_ms = group.state_timestamp_ms
        return since_commit if emptied_ms is None else lambda _offset: emptied_ms
    is_readable = group.uses_consumer_protocol and group.subscribed_topics is not None
    return since_commit if is_readable and group.is_in(ClassicState.STABLE) else None
