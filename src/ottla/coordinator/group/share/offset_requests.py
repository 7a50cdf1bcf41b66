"""The APIs about offsets of share groups, and the deletion of share groups.

Kafka: GroupCoordinatorService.{describeShareGroupOffsets, describeShareGroupAllOffsets,
alterShareGroupOffsets, deleteShareGroupOffsets, deleteShareGroups};
GroupMetadataManager.{alterShareGroupOffsets, sharePartitionsEligibleForOffsetDeletion,
completeDeleteShareGroupOffsets, shareGroupBuildPartitionDeleteRequest}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.coordinator.group.share import initialization
from ottla.coordinator.group.share.group import InProgress, ShareGroup, StatePartitions, TopicParts
from ottla.coordinator.group.share.initialization import Initialization
from ottla.coordinator.runtime.log import full_error_text, operation_error
from ottla.coordinator.runtime.shard import Result, recover
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.apis.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.apis.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.purgatory.pending import Pending, all_done
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.group.share.kind import ShareGroups
    from ottla.coordinator.group.share.requests import ShareGroupRequests, SharePersister
    from ottla.coordinator.runtime import CoordinatorRecord, CoordinatorRuntime
    from ottla.purgatory.work import Work


_AlteredTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_AlteredPartition = _AlteredTopic.AlterShareGroupOffsetsResponsePartition
_DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
T = TypeVar("T")


@dataclass(slots=True)
class _Alteration:
    """The response, and the share partitions whose states are to be initialised again."""

    topics: list[_AlteredTopic]
    initialization: Initialization


@dataclass(slots=True)
class _Deletion:
    """Topics that cannot be deleted, and the states to delete: partitions by topic id."""

    topics: list[_DeletedTopic] = field(default_factory=list)
    partitions: dict[Uuid, list[int]] = field(default_factory=dict)
    written_offset: int = -1
    """Of the record that says so, once it is committed."""

    def written(self, offset: int) -> None:
        """Take note of the record's offset."""
        self.written_offset = offset


def _empty_group(groups: ShareGroups, group_id: str) -> ShareGroup:
    group = groups.find(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return group


def _alter(groups: ShareGroups, request: AlterShareGroupOffsetsRequest) -> Result[_Alteration]:
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
            partition.partition_index: partition.start_offset
            for partition in topic.partitions
            if topic_id is not None and 0 <= partition.partition_index < count
        }
        if topic_id is not None and known:
            changed[topic_id] = TopicParts(topic.topic_name, frozenset(known), now_ms)
            offsets[topic_id] = known
        topics.append(
            _AlteredTopic(
                topic_name=topic.topic_name,
                topic_id=topic_id or ZERO_UUID,
                partitions=[
                    _altered(partition.partition_index, is_known=partition.partition_index in known)
                    for partition in topic.partitions
                ],
            )
        )
    if changed:
        output.append(initialization.initializing(groups, group, changed))
    begun = Initialization(group_id, group.epoch, offsets)
    return Result(_Alteration(topics, begun), output, on_commit=begun.written)


def _altered(index: int, *, is_known: bool) -> _AlteredPartition:
    if is_known:
        return _AlteredPartition(partition_index=index)
    return _AlteredPartition(
        partition_index=index, error_code=int(_UNKNOWN), error_message=_UNKNOWN.text
    )


def _begin_deletion(
    groups: ShareGroups, request: DeleteShareGroupOffsetsRequest
) -> Result[_Deletion]:
    """Mark topics as being deleted; those without a state have no offsets to delete."""
    group = _empty_group(groups, request.group_id)
    known = group.state_partitions or StatePartitions()
    deletion = _Deletion()
    for topic in request.topics:
        name = topic.topic_name
        topic_id = groups.topics.topic_id(name)
        if topic_id is None:
            deletion.topics.append(_not_deleted(name, _UNKNOWN.text))
        elif topic_id in known.initialized:
            deletion.partitions[topic_id] = sorted(known.initialized[topic_id].partitions)
        elif topic_id in known.deleting:
            deletion.partitions[topic_id] = list(range(groups.topics.partition_count(name) or 0))
        else:
            deletion.topics.append(_not_deleted(name, "There is no offset information to delete."))
    if not deletion.partitions:
        return Result(deletion)
    marked = _marked(groups, group, known, deletion.partitions)
    return Result(deletion, [marked], on_commit=deletion.written)


def _begin_group_deletion(groups: ShareGroups, group_id: str) -> Result[_Deletion]:
    """Mark all topics of a group as being deleted, before the group is."""
    group = _empty_group(groups, group_id)
    known = group.state_partitions
    if known is None:
        return Result(_Deletion())
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
        return Result(_Deletion())
    return Result(_Deletion(partitions=parts), [_marked(groups, group, known, parts)])


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


def _not_deleted(name: str, text: str) -> _DeletedTopic:
    return _DeletedTopic(
        topic_name=name, topic_id=ZERO_UUID, error_code=int(_UNKNOWN), error_message=text
    )


def _complete_deletion(
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
    remaining = StatePartitions(known.initializing, known.initialized, known.deleting - gone)
    return [initialization.record_of(groups, group_id, remaining)]


_SummaryTopic: Final = ReadShareGroupStateSummaryRequest.ReadStateSummaryData
_DeleteTopic: Final = DeleteShareGroupStateRequest.DeleteStateData


class ShareOffsetRequests:
    """One method per API, request in, pending response out."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        partition_for: Callable[[str], int],
        persister: SharePersister,
        members: ShareGroupRequests,
        topic_name: Callable[[Uuid], str | None],
    ) -> None:
        self._runtime = runtime
        self._partition_for = partition_for
        self._persister = persister
        self._members = members
        self._topic_name = topic_name

    def initialized(self, group_id: str) -> Pending[dict[Uuid, list[int]]]:
        """Return the share partitions of a group that have a state; none without a group."""

        def read(shard: GroupShard, epoch: int) -> dict[Uuid, list[int]]:
            group = shard.groups.by_id.get_at(group_id, epoch)
            if type(group) is not ShareGroup:
                return {}
            known = group.state_partitions_at(epoch).initialized
            return {topic_id: sorted(one.partitions) for topic_id, one in known.items()}

        return self._runtime.read(self._partition_for(group_id), read)

    def summaries(self, group_id: str, partitions: Mapping[Uuid, list[int]]) -> Pending[Any]:
        """Return the states of share partitions, as their share coordinators have them."""
        topics = [
            _SummaryTopic(
                topic_id=topic_id,
                partitions=[
                    _SummaryTopic.PartitionData(partition=index, leader_epoch=-1)
                    for index in indexes
                ],
            )
            for topic_id, indexes in partitions.items()
        ]
        return self._persister.read_summary(
            ReadShareGroupStateSummaryRequest(group_id=group_id, topics=topics)
        )

    def alter(
        self, request: AlterShareGroupOffsetsRequest
    ) -> Pending[AlterShareGroupOffsetsResponse]:
        """Initialise the states of share partitions again, at other offsets."""
        altered = self._runtime.worker.run(self._alter(request))
        return recover(
            altered,
            lambda error: AlterShareGroupOffsetsResponse(
                error_code=int(operation_error(error)),
                error_message=full_error_text(error),
                responses=[],
            ),
        )

    def _alter(
        self, request: AlterShareGroupOffsetsRequest
    ) -> Work[AlterShareGroupOffsetsResponse]:
        alteration: _Alteration = yield self._write(
            request.group_id, lambda shares: _alter(shares, request)
        )
        if alteration.initialization.offsets:
            states = yield self._members.initialize(alteration.initialization)
            _take_errors(alteration, states)
        return AlterShareGroupOffsetsResponse(responses=alteration.topics)

    def delete(
        self, request: DeleteShareGroupOffsetsRequest
    ) -> Pending[DeleteShareGroupOffsetsResponse]:
        """Delete the states of topics: a group that reads them again has its reset decide."""
        deleted = self._runtime.worker.run(self._delete(request))
        return recover(
            deleted,
            lambda error: DeleteShareGroupOffsetsResponse(
                error_code=int(operation_error(error)),
                error_message=full_error_text(error),
                responses=[],
            ),
        )

    def _delete(
        self, request: DeleteShareGroupOffsetsRequest
    ) -> Work[DeleteShareGroupOffsetsResponse]:
        group_id = request.group_id
        deletion: _Deletion = yield self._write(
            group_id, lambda shares: _begin_deletion(shares, request)
        )
        states = yield self._delete_states(group_id, deletion.partitions)
        gone = [topic_id for topic_id, error in states.items() if error is None]
        written = self._runtime.write(
            self._partition_for(group_id),
            lambda shard: Result(
                None, _complete_deletion(shard.share, group_id, gone, deletion.written_offset)
            ),
        )
        yield all_done([written])  # also where that fails the states are deleted
        return DeleteShareGroupOffsetsResponse(
            responses=[
                *deletion.topics,
                *(
                    _DeletedTopic(
                        topic_name=self._topic_name(topic_id) or "",
                        topic_id=topic_id,
                        error_code=0 if error is None else int(error.code),
                        error_message=None if error is None else error.message,
                    )
                    for topic_id, error in states.items()
                ),
            ]
        )

    def _write(self, group_id: str, operation: Callable[[ShareGroups], Result[T]]) -> Pending[T]:
        """Apply an operation to a share group; INVALID_GROUP_ID without a name."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)

        def apply(shard: GroupShard) -> Result[T]:
            _check_kind(shard, group_id)
            return operation(shard.share)

        return self._runtime.write(self._partition_for(group_id), apply)

    def prepare_group_deletion(self, group_id: str) -> Pending[ErrorCode]:
        """Delete the states of a group that is about to be deleted; nothing for other kinds."""
        return recover(
            self._runtime.worker.run(self._prepare_group_deletion(group_id)), operation_error
        )

    def _prepare_group_deletion(self, group_id: str) -> Work[ErrorCode]:
        def apply(shard: GroupShard) -> Result[_Deletion]:
            if shard.share.find(group_id) is None:
                return Result(_Deletion())
            return _begin_group_deletion(shard.share, group_id)

        deletion: _Deletion = yield self._runtime.write(self._partition_for(group_id), apply)
        states = yield self._delete_states(group_id, deletion.partitions)
        failed = [error for error in states.values() if error is not None]
        return failed[0].code if failed else ErrorCode.NONE

    def _delete_states(
        self, group_id: str, partitions: Mapping[Uuid, list[int]]
    ) -> Pending[dict[Uuid, KafkaError | None]]:
        """Have share coordinators delete states; return an error by topic."""
        if not partitions:
            return Pending.of({})
        request = DeleteShareGroupStateRequest(
            group_id=group_id,
            topics=[
                _DeleteTopic(
                    topic_id=topic_id,
                    partitions=[_DeleteTopic.PartitionData(partition=index) for index in indexes],
                )
                for topic_id, indexes in partitions.items()
            ],
        )
        return self._persister.delete(request).then(
            lambda response: {result.topic_id: _first_error(result) for result in response.results}
        )


def _take_errors(alteration: _Alteration, states: Any) -> None:
    failed = {
        (topic.topic_id, partition.partition): partition
        for topic in states.results
        for partition in topic.partitions
        if partition.error_code
    }
    for topic in alteration.topics:
        for part in topic.partitions:
            one = failed.get((topic.topic_id, part.partition_index))
            if one is not None:
                part.error_code, part.error_message = one.error_code, one.error_message


def _first_error(topic: Any) -> KafkaError | None:
    for partition in topic.partitions:
        if partition.error_code:
            return KafkaError(ErrorCode(partition.error_code), partition.error_message)
    return None


def _check_kind(shard: GroupShard, group_id: str) -> None:
    if shard.share.find(group_id) is None and shard.groups.find(group_id) is not None:
        text = f"Group {group_id} is not a share group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
