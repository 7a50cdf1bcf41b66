"""Admin calls for groups and their offsets.

Kafka: org.apache.kafka.clients.admin.{ConsumerGroupDescription, GroupListing, MemberDescription}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import AdminCalls, by_partition, error_of, raise_error
from ottla.clients.arguments import as_partition, by_topic, listed
from ottla.clients.consumer.assignors import PROTOCOL_TYPE, decode_assignment
from ottla.clients.coordinator import GROUP
from ottla.clients.offsets import (
    CommitIdentity,
    OffsetAndMetadata,
    as_offsets,
    offset_commit_request,
    offset_fetch_request,
    read_offset_fetch,
)
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.apis.delete_groups import DeleteGroupsRequest
from ottla.protocol.apis.describe_groups import DescribeGroupsRequest
from ottla.protocol.apis.leave_group import LeaveGroupRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.protocol.schema import Request
    from ottla.types import Uuid

_log = logging.getLogger("ottla.clients")
_LEAVE_REASON = "member was removed by an admin"
_MAX_REASON_CHARACTERS = 255


class GroupListing(NamedTuple):
    """One entry of `list_groups`."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(NamedTuple):
    """A group member and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    subscribed_topics: tuple[str, ...] = ()
    rack_id: str | None = None


class GroupDescription(NamedTuple):
    """A group with its members; coordinator is a node id."""

    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: int = -2147483648


class GroupsAdmin(AdminCalls):
    """The part of the admin for groups."""

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        protocol_types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """Return the groups of all coordinators, by id; of some states, types or protocols only.

        The protocol type is "consumer" for consumers, "" for groups that only commit offsets.
        """
        requested = frozenset(protocol_types)
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answers = await self._call_brokers(request, timeout)
        return sorted(
            GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type)
            for answer in answers.values()
            for group in answer.groups
            if not requested or group.protocol_type in requested
        )

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups of the consumer or classic protocol; returns an outcome for each."""

        async def describe(group_id: str, remaining: float) -> GroupDescription:
            return await self._describe_group(
                group_id, remaining, with_operations=include_authorized_operations
            )

        return await self._call_each(listed("group_ids", group_ids), describe, timeout)

    async def _described_group(self, group_id: str, request: Request, timeout: float) -> Any:
        """Return the only group of the coordinator's response; raises its error."""
        answer = await self._coordinator_call(
            group_id,
            request,
            error_of=lambda answer: retriable_code(group.error_code for group in answer.groups),
            timeout=timeout,
        )
        raise_error(answer.groups[0])
        return answer.groups[0]

    async def _describe_group(
        self, group_id: str, timeout: float, *, with_operations: bool
    ) -> GroupDescription:
        """Describe a group of the consumer protocol (KIP-848), or else of the classic one."""
        try:
            group = await self._described_group(
                group_id,
                ConsumerGroupDescribeRequest(
                    group_ids=[group_id], include_authorized_operations=with_operations
                ),
                timeout,
            )
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        else:
            return self._modern_group(group, "Consumer")
        group = await self._described_group(
            group_id,
            DescribeGroupsRequest(groups=[group_id], include_authorized_operations=with_operations),
            timeout,
        )
        return GroupDescription(
            group.group_id,
            group.group_state,
            "Classic",
            group.protocol_type,
            group.protocol_data,
            self._coordinator_node(group_id),
            tuple(_classic_member(member, group.protocol_type) for member in group.members),
            authorized_operations=group.authorized_operations,
        )

    def _modern_group(self, group: Any, kind: str) -> GroupDescription:
        """Return the description of a consumer or share group (KIP-848, KIP-932)."""
        return GroupDescription(
            group.group_id,
            group.group_state,
            kind,
            kind.lower(),
            group.assignor_name,
            self._coordinator_node(group.group_id),
            tuple(map(_modern_member, group.members)),
            group.group_epoch,
            group.assignment_epoch,
            group.authorized_operations,
        )

    def _coordinator_node(self, group_id: str) -> int:
        return self._coordinators[GROUP, group_id].node_id

    async def delete_groups(
        self,
        group_ids: Iterable[str],
        *,
        timeout: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Delete empty groups with their offsets; returns an outcome for each."""

        async def delete(group_id: str, remaining: float) -> KafkaError | None:
            answer = await self._coordinator_call(
                group_id,
                DeleteGroupsRequest(groups_names=[group_id]),
                error_of=lambda answer: retriable_code(
                    result.error_code for result in answer.results
                ),
                timeout=remaining,
            )
            return error_of(answer.results[0])

        return await self._call_each(listed("group_ids", group_ids), delete, timeout)

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return a group's committed offsets, of some partitions or of all that have one.

        A partition with an error is omitted, and the error is logged.
        """
        requested = None if partitions is None else list(map(as_partition, partitions))
        request, limit = offset_fetch_request(
            group_id, requested, None, require_stable=require_stable
        )
        answer = await self._coordinator_call(
            group_id,
            request,
            error_of=lambda answer: answer.groups[0].error_code,
            timeout=timeout,
            max_version=limit,
        )
        names: dict[Uuid, str] = {}
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition, outcome in read_offset_fetch(answer, names).items():
            if isinstance(outcome, KafkaError):
                _log.warning("offset of %s-%d in %s omitted: %s", *partition, group_id, outcome)
            else:
                committed[partition] = outcome
        return committed

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set the offsets of a group without members; returns an outcome for each partition."""
        requested = as_offsets(offsets)
        request, limit = offset_commit_request(group_id, requested, CommitIdentity(), None)
        answer = await self._coordinator_call(
            group_id,
            request,
            error_of=_retriable_partition_code,
            timeout=timeout,
            max_version=limit,
        )
        return by_partition(answer.topics, error_of)

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of topics that the group is not subscribed to."""
        topic_type = OffsetDeleteRequest.OffsetDeleteRequestTopic
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                topic_type(
                    name=name,
                    partitions=[
                        topic_type.OffsetDeleteRequestPartition(partition_index=index)
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )
        answer = await self._coordinator_call(group_id, request, timeout=timeout)
        return by_partition(answer.topics, error_of)

    async def remove_group_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] | None = None,
        reason: str = "",
        timeout: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Remove static members from their group, or all members without instance_ids (None).

        Returns an outcome for each, by instance id or else by member id.
        """
        deadline_ms = self._deadline_ms(timeout)
        if instance_ids is None:
            remaining = self._remaining_seconds(deadline_ms)
            group = await self._describe_group(group_id, remaining, with_operations=False)
            leaving = [(member.member_id, member.instance_id) for member in group.members]
        else:
            leaving = [("", instance_id) for instance_id in instance_ids]
            if not leaving:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "instance_ids is empty: pass None to remove all members",
                )
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                LeaveGroupRequest.MemberIdentity(
                    member_id="" if instance_id is not None else member_id,
                    group_instance_id=instance_id,
                    reason=reason[:_MAX_REASON_CHARACTERS] or _LEAVE_REASON,
                )
                for member_id, instance_id in leaving
            ],
        )
        remaining = self._remaining_seconds(deadline_ms)
        answer = await self._coordinator_call(group_id, request, timeout=remaining)
        return {
            member.group_instance_id or member.member_id: error_of(member)
            for member in answer.members
        }


def _classic_member(member: Any, protocol_type: str) -> MemberDescription:
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        try:
            assignment = tuple(decode_assignment(member.member_assignment))
        except CorruptMessage:
            assignment = ()  # a foreign client's own format
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assignment,
    )


def _modern_member(member: Any) -> MemberDescription:
    target = getattr(member, "target_assignment", None)  # a share group has none
    return MemberDescription(
        member.member_id,
        getattr(member, "instance_id", None),
        member.client_id,
        member.client_host,
        _partitions_of(member.assignment),
        None if target is None else _partitions_of(target),
        member.member_epoch,
        tuple(member.subscribed_topic_names),
        member.rack_id,
    )


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def retriable_code(codes: Iterable[int]) -> int:
    """Return the first code after which a request is sent again, or 0."""
    return next((code for code in codes if code and KafkaError(code).is_retriable), 0)


def _retriable_partition_code(answer: Any) -> int:
    waiting = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    codes = (partition.error_code for topic in answer.topics for partition in topic.partitions)
    return retriable_code(code for code in codes if code not in waiting)
