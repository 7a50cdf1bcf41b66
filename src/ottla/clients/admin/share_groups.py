"""Admin calls for share groups (KIP-932): members, and start offsets with lag (KIP-1226).

Kafka: org.apache.kafka.clients.admin.{ShareGroupDescription, SharePartitionOffsetInfo,
DescribeShareGroupsHandler, ListShareGroupOffsetsHandler, AlterShareGroupOffsetsHandler,
DeleteShareGroupOffsetsHandler}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import error_or_none
from ottla.clients.admin.groups import (
    GroupDescription,
    GroupsAdmin,
    MemberDescription,
    partitions_of,
    retriable_group_code,
)
from ottla.clients.arguments import as_partition, by_topic, listed
from ottla.errors import KafkaError
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.apis.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AlteredTopic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
_DeletedTopic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
_DescribedGroup = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
_DescribedTopic = _DescribedGroup.DescribeShareGroupOffsetsRequestTopic


class SharePartitionOffset(NamedTuple):
    """The first offset that a share group has not completed, and the lag; None where unknown."""

    start_offset: int
    leader_epoch: int | None
    lag: int | None


class ShareGroupsAdmin(GroupsAdmin):
    """The part of the admin for share groups; `delete_groups` deletes them, too."""

    async def describe_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription | KafkaError]:
        """Describe share groups; returns an outcome for each."""

        async def describe(group_id: str, remaining: float | None) -> GroupDescription:
            request = ShareGroupDescribeRequest(
                group_ids=[group_id], include_authorized_operations=include_authorized_operations
            )
            answer = await self._coordinator_call(
                group_id, request, error_of=retriable_group_code, timeout=remaining
            )
            group = answer.groups[0]
            coordinator = self._coordinator_node(group_id)
            _raise_error(group)
            return GroupDescription(
                group.group_id,
                group.group_state,
                "Share",
                "share",
                group.assignor_name,
                coordinator,
                tuple(
                    MemberDescription(
                        member.member_id,
                        None,
                        member.client_id,
                        member.client_host,
                        partitions_of(member.assignment),
                        member_epoch=member.member_epoch,
                        subscribed_topics=tuple(member.subscribed_topic_names),
                        rack_id=member.rack_id,
                    )
                    for member in group.members
                ),
                group.group_epoch,
                group.assignment_epoch,
                group.authorized_operations,
            )

        return await self._outcomes(group_ids, timeout, describe)

    async def list_share_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, SharePartitionOffset | KafkaError | None]:
        """Return a share group's start offsets, of some partitions or of all that have a state.

        None stands for a partition that the group has not begun to read.
        """
        topics = None
        if partitions is not None:
            topics = [
                _DescribedTopic(topic_name=name, partitions=indexes)
                for name, indexes in by_topic(partitions).items()
            ]
        request = DescribeShareGroupOffsetsRequest(
            groups=[_DescribedGroup(group_id=group_id, topics=topics)]
        )
        answer = await self._coordinator_call(
            group_id, request, error_of=retriable_group_code, timeout=timeout
        )
        _raise_error(answer.groups[0])
        return {
            TopicPartition(topic.topic_name, partition.partition_index): _offset(partition)
            for topic in answer.groups[0].topics
            for partition in topic.partitions
        }

    async def alter_share_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the start offsets of a share group without members; an outcome for each partition."""
        partition_type = _AlteredTopic.AlterShareGroupOffsetsRequestPartition
        topics: dict[str, Any] = {}
        for given, offset in offsets.items():
            name, index = as_partition(given)
            topic = topics.setdefault(name, _AlteredTopic(topic_name=name, partitions=[]))
            topic.partitions.append(partition_type(partition_index=index, start_offset=offset))
        request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values()))
        answer = await self._coordinator_call(
            group_id, request, error_of=_retriable_code, timeout=timeout
        )
        _raise_error(answer)
        return {
            TopicPartition(topic.topic_name, partition.partition_index): error_or_none(
                partition.error_code, partition.error_message
            )
            for topic in answer.responses
            for partition in topic.partitions
        }

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete the offsets of topics of a share group without members; an outcome for each."""
        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[_DeletedTopic(topic_name=name) for name in listed("topics", topics)],
        )
        answer = await self._coordinator_call(
            group_id, request, error_of=_retriable_code, timeout=timeout
        )
        _raise_error(answer)
        return {
            topic.topic_name: error_or_none(topic.error_code, topic.error_message)
            for topic in answer.responses
        }


def _retriable_code(answer: Any) -> int:
    code: int = answer.error_code
    return code if code and KafkaError(code).is_retriable else 0


def _raise_error(one: Any) -> None:
    if one.error_code:
        raise KafkaError(one.error_code, one.error_message)


def _offset(one: Any) -> SharePartitionOffset | KafkaError | None:
    if one.error_code:
        return KafkaError(one.error_code, one.error_message)
    if one.start_offset < 0:
        return None
    known = [value if value >= 0 else None for value in (one.leader_epoch, one.lag)]
    return SharePartitionOffset(one.start_offset, *known)
