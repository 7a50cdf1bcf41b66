"""Offsets of share groups: where deliveries begin, set or deleted while a group has no members.

Kafka: GroupMetadataManager.{alterShareGroupOffsets, sharePartitionsEligibleForOffsetDeletion,
completeDeleteShareGroupOffsets, shareGroupBuildPartitionDeleteRequest}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.share import initialization
from ottla.coordinator.group.share.group import InProgress, StatePartitions, TopicParts
from ottla.coordinator.group.share.initialization import Initialization
from ottla.coordinator.runtime.result import Result
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.share.kind import ShareGroups
    from ottla.coordinator.runtime import CoordinatorRecord
    from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
    from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest

AlteredTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
AlteredPartition = AlteredTopic.AlterShareGroupOffsetsResponsePartition
DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@dataclass(slots=True)
class Alteration:
    """The response, and the share partitions whose states are to be initialised again."""

    topics: list[AlteredTopic]
    initialization: Initialization


@dataclass(slots=True)
class Deletion:
    """Topics that cannot be deleted, and the states to delete: partitions by topic id."""

    topics: list[DeletedTopic] = field(default_factory=list)
    partitions: dict[Uuid, list[int]] = field(default_factory=dict)
    written_offset: int = -1
    """Of the record that says so, once it is committed."""

    def written(self, offset: int) -> None:
        """Take note of the record's offset."""
        self.written_offset = offset


def _empty_group(groups: ShareGroups, group_id: str) -> ShareGroup:
    """Return a group without members; GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    group = groups.find(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return group


def alter(groups: ShareGroups, request: AlterShareGroupOffsetsRequest) -> Result[Alteration]:
    """Initialise the states of share partitions again, at other offsets; may create the group.

    The record of its share partitions is the first one of a new group.
    """
    group_id = request.group_id
    group = groups.find(group_id) or groups.new(group_id)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    output: list[CoordinatorRecord] = []
    now_ms = groups.clock.now_ms()
    topics, changed, offsets = [], {}, {}
    for topic in request.topics:
        topic_id = groups.topics.topic_id(topic.topic_name)
        count = groups.topics.partition_count(topic.topic_name) or 0
        known = {
            one.partition_index: one.start_offset
            for one in topic.partitions
            if topic_id is not None and 0 <= one.partition_index < count
        }
        if topic_id is not None and known:
            changed[topic_id] = TopicParts(topic.topic_name, frozenset(known), now_ms)
            offsets[topic_id] = known
        topics.append(
            AlteredTopic(
                topic_name=topic.topic_name,
                topic_id=topic_id or ZERO_UUID,
                partitions=[
                    _altered(one.partition_index, is_known=one.partition_index in known)
                    for one in topic.partitions
                ],
            )
        )
    if changed:
        output.append(initialization.initializing(groups, group, changed))
    begun = Initialization(group_id, group.epoch, offsets)
    return Result(Alteration(topics, begun), output, on_commit=begun.written)


def _altered(index: int, *, is_known: bool) -> AlteredPartition:
    if is_known:
        return AlteredPartition(partition_index=index)
    return AlteredPartition(
        partition_index=index, error_code=int(_UNKNOWN), error_message=_UNKNOWN.text
    )


def begin_deletion(
    groups: ShareGroups, request: DeleteShareGroupOffsetsRequest
) -> Result[Deletion]:
    """Mark topics as being deleted; those without a state have no offsets to delete."""
    group = _empty_group(groups, request.group_id)
    known = group.state_partitions or StatePartitions()
    found = Deletion()
    for topic in request.topics:
        name = topic.topic_name
        topic_id = groups.topics.topic_id(name)
        if topic_id is None:
            found.topics.append(_not_deleted(name, _UNKNOWN.text))
        elif topic_id in known.initialized:
            found.partitions[topic_id] = sorted(known.initialized[topic_id].partitions)
        elif topic_id in known.deleting:
            found.partitions[topic_id] = list(range(groups.topics.partition_count(name) or 0))
        else:
            found.topics.append(_not_deleted(name, "There is no offset information to delete."))
    if not found.partitions:
        return Result(found)
    marked = _marked(groups, group, known, found.partitions)
    return Result(found, [marked], on_commit=found.written)


def begin_group_deletion(groups: ShareGroups, group_id: str) -> Result[Deletion]:
    """Mark all topics of a group as being deleted, before the group is."""
    group = _empty_group(groups, group_id)
    known = group.state_partitions
    if known is None:
        return Result(Deletion())
    parts: dict[Uuid, list[int]] = {}
    for topics in (known.initializing, known.initialized):
        for topic_id, one in topics.items():
            parts[topic_id] = sorted({*parts.get(topic_id, ()), *one.partitions})
    for topic_id in sorted(known.deleting):
        name = groups.topics.topic_name(topic_id)
        count = None if name is None else groups.topics.partition_count(name)
        parts.setdefault(topic_id, list(range(count or 0)))
    parts = {key: one for key, one in parts.items() if groups.topics.topic_name(key) and one}
    if not parts:
        return Result(Deletion())
    return Result(Deletion(partitions=parts), [_marked(groups, group, known, parts)])


def _marked(
    groups: ShareGroups, group: ShareGroup, known: StatePartitions, topics: Iterable[Uuid]
) -> CoordinatorRecord:
    deleted = set(topics)
    return initialization.record_of(
        groups,
        group.group_id,
        StatePartitions(
            {key: one for key, one in known.initializing.items() if key not in deleted},
            {key: one for key, one in known.initialized.items() if key not in deleted},
            known.deleting | deleted,
        ),
    )


def _not_deleted(name: str, text: str) -> DeletedTopic:
    return DeletedTopic(
        topic_name=name, topic_id=ZERO_UUID, error_code=int(_UNKNOWN), error_message=text
    )


def complete_deletion(
    groups: ShareGroups, group_id: str, topics: Iterable[Uuid], written_offset: int
) -> list[CoordinatorRecord]:
    """Return the record without the topics whose states are deleted, as a record has asked.

    Not those whose deletion began later, as in a new group of the same name.
    """
    group = groups.find(group_id)
    known = None if group is None else group.state_partitions
    if known is None:
        return []
    later = {
        topic_id
        for topic_id in known.deleting
        if known.since.get(InProgress(topic_id), written_offset) > written_offset
    }
    named = set(topics)
    gone = named - later
    if named and not gone:
        return []
    # as in Kafka also where nothing is left to be deleted
    left = StatePartitions(known.initializing, known.initialized, known.deleting - gone)
    return [initialization.record_of(groups, group_id, left)]
