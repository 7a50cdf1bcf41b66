"""OffsetFetch of one group, with the response of version 8 and newer.

Kafka: OffsetMetadataManager.{fetchOffsets, fetchAllOffsets}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.group.offsets.committed import CommittedOffset

    RequestGroup = OffsetFetchRequest.OffsetFetchRequestGroup

ResponseGroup = OffsetFetchResponse.OffsetFetchResponseGroup
ResponseTopic = ResponseGroup.OffsetFetchResponseTopics
ResponsePartition = ResponseTopic.OffsetFetchResponsePartitions


def fetch(
    groups: Groups, request: RequestGroup, epoch: int, *, require_stable: bool
) -> ResponseGroup:
    """Return the offsets at epoch of the named partitions, or of all when none are named.

    A member of a consumer group is refused unless it is at its epoch.
    With require_stable a partition in an open transaction gets UNSTABLE_OFFSET_COMMIT.
    """
    group = groups.by_id.get_at(request.group_id, epoch)
    if group is not None:
        group.check_offset_fetch(request.member_id, request.member_epoch, epoch)
    offsets = groups.offsets.of_group(request.group_id, epoch)
    staged = groups.offsets.staged_of_group(request.group_id, epoch) if require_stable else {}
    response = ResponseGroup(group_id=request.group_id, topics=[])
    if request.topics is None:
        topics: dict[str, ResponseTopic] = {}
        for key, committed in sorted(offsets.items(), key=lambda item: item[0].partition):
            topic = topics.setdefault(key.topic, ResponseTopic(name=key.topic, partitions=[]))
            topic.partitions.append(_answer(key.partition, committed, is_staged=key in staged))
        response.topics = list(topics.values())
        return response
    for named in request.topics:
        answer = ResponseTopic(name=named.name, topic_id=named.topic_id, partitions=[])
        response.topics.append(answer)
        for partition in named.partition_indexes:
            key = TopicPartition(named.name, partition)
            found = offsets.get(key)
            if found is not None and _is_other_topic(found.topic_id, named.topic_id):
                found = None
            answer.partitions.append(_answer(partition, found, is_staged=key in staged))
    return response


def _is_other_topic(stored: Uuid, requested: Uuid) -> bool:
    """Whether the offset belongs to a deleted topic of the same name."""
    return bool(stored) and bool(requested) and stored != requested


def _answer(
    partition: int, committed: CommittedOffset | None, *, is_staged: bool
) -> ResponsePartition:
    if committed is None or is_staged:
        return ResponsePartition(
            partition_index=partition,
            committed_offset=-1,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_staged else ErrorCode.NONE,
        )
    return ResponsePartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
