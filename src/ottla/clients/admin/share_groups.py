"""Admin calls for share groups (KIP-932): members, and start offsets with lag (KIP-1226).

Kafka: org.apache.kafka.clients.admin.{ShareGroupDescription, SharePartitionOffsetInfo,
DescribeShareGroupsHandler, ListShareGroupOffsetsHandler, AlterShareGroupOffsetsHandler,
DeleteShareGroupOffsetsHandler}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import by_partition, error_of, raise_error
from ottla.clients.admin.groups import GroupsAdmin, retriable_code
from ottla.clients.arguments import by_topic, listed, values_by_topic
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.apis.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.admin.groups import GroupDescription
    from ottla.errors import KafkaError
    from ottla.types import TopicPartition

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

        async def describe(group_id: str, remaining: float) -> GroupDescription:
            request = ShareGroupDescribeRequest(
                group_ids=[group_id], include_authorized_operations=include_authorized_operations
            )
            group = await self._described_group(group_id, request, remaining)
            return self._modern_group(group, "Share")

        return await self._call_each(listed("group_ids", group_ids), describe, timeout)

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
        seconds = self._remaining_seconds(self._deadline_ms(timeout))
        group = await self._described_group(group_id, request, seconds)
        return by_partition(group.topics, _offset, "topic_name")

    async def alter_share_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the start offsets of a share group without members; an outcome for each partition."""
        partition_type = _AlteredTopic.AlterShareGroupOffsetsRequestPartition
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[
                _AlteredTopic(
                    topic_name=name,
                    partitions=[
                        partition_type(partition_index=index, start_offset=offset)
                        for index, offset in starts.items()
                    ],
                )
                for name, starts in values_by_topic(offsets).items()
            ],
        )
        answer = await self._coordinator_call(
            group_id, request, error_of=_retriable_code, timeout=timeout
        )
        raise_error(answer)
        return by_partition(answer.responses, error_of, "topic_name")

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
        raise_error(answer)
        return {topic.topic_name: error_of(topic) for topic in answer.responses}


def _retriable_code(answer: Any) -> int:
    return retriable_code([answer.error_code])


def _offset(partition: Any) -> SharePartitionOffset | KafkaError | None:
    if partition.error_code or partition.start_offset < 0:
        return error_of(partition)
    known = [value if value >= 0 else None for value in (partition.leader_epoch, partition.lag)]
    return SharePartitionOffset(partition.start_offset, *known)
