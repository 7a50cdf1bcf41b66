"""The APIs about offsets of share groups, and the deletion of share groups.

Kafka: GroupCoordinatorService.{describeShareGroupOffsets, describeShareGroupAllOffsets,
alterShareGroupOffsets, deleteShareGroupOffsets, deleteShareGroups}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group.share import offsets
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.runtime.log_errors import full_error_text, operation_error
from ottla.coordinator.runtime.result import Result
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
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.group.share.persister import SharePersister
    from ottla.coordinator.group.share.requests import ShareGroupRequests
    from ottla.coordinator.runtime import CoordinatorRuntime
    from ottla.types import Uuid

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
        answer: Pending[AlterShareGroupOffsetsResponse] = Pending()

        def refuse(error: Exception) -> None:
            answer.complete(
                AlterShareGroupOffsetsResponse(
                    error_code=int(operation_error(error)),
                    error_message=full_error_text(error),
                    responses=[],
                )
            )

        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
            answer.complete(
                AlterShareGroupOffsetsResponse(
                    error_code=int(code), error_message=code.text, responses=[]
                )
            )
            return answer

        def finish(alteration: offsets.Alteration, states: Any) -> None:
            _take_errors(alteration, states)
            answer.complete(AlterShareGroupOffsetsResponse(responses=alteration.topics))

        def altered(done: Pending[offsets.Alteration]) -> None:
            if done.error is not None:
                refuse(done.error)
                return
            alteration = done.value
            if not alteration.initialization.offsets:
                answer.complete(AlterShareGroupOffsetsResponse(responses=alteration.topics))
                return
            begun = self._members.initialize(alteration.initialization)
            begun.on_done(lambda states: finish(alteration, states.value))

        def apply(shard: GroupShard) -> Result[offsets.Alteration]:
            _check_kind(shard, request.group_id)
            return offsets.alter(shard.share, request)

        self._runtime.write(self._partition_for(request.group_id), apply).on_done(altered)
        return answer

    def delete(
        self, request: DeleteShareGroupOffsetsRequest
    ) -> Pending[DeleteShareGroupOffsetsResponse]:
        """Delete the states of topics: a group that reads them again has its reset decide."""
        answer: Pending[DeleteShareGroupOffsetsResponse] = Pending()

        def refuse(error: Exception) -> None:
            answer.complete(
                DeleteShareGroupOffsetsResponse(
                    error_code=int(operation_error(error)),
                    error_message=full_error_text(error),
                    responses=[],
                )
            )

        if not request.group_id:
            refuse(KafkaError(ErrorCode.INVALID_GROUP_ID))
            return answer

        def finish(found: offsets.Deletion, states: Mapping[Uuid, KafkaError | None]) -> None:
            for topic_id, error in states.items():
                found.topics.append(
                    offsets.DeletedTopic(
                        topic_name=self._topic_name(topic_id) or "",
                        topic_id=topic_id,
                        error_code=0 if error is None else int(error.code),
                        error_message=None if error is None else error.message,
                    )
                )
            answer.complete(DeleteShareGroupOffsetsResponse(responses=found.topics))

        def begun(done: Pending[offsets.Deletion]) -> None:
            if done.error is not None:
                refuse(done.error)
                return
            found = done.value
            deleted = self._delete_offsets(request.group_id, found)
            deleted.on_done(lambda states: finish(found, states.value))

        def apply(shard: GroupShard) -> Result[offsets.Deletion]:
            _check_kind(shard, request.group_id)
            return offsets.begin_deletion(shard.share, request)

        self._runtime.write(self._partition_for(request.group_id), apply).on_done(begun)
        return answer

    def prepare_group_deletion(self, group_id: str) -> Pending[ErrorCode]:
        """Delete the states of a group that is about to be deleted; nothing for other kinds."""
        answer: Pending[ErrorCode] = Pending()

        def finish(done: Pending[dict[Uuid, KafkaError | None]]) -> None:
            failed = [error for error in done.value.values() if error is not None]
            answer.complete(failed[0].code if failed else ErrorCode.NONE)

        def apply(shard: GroupShard) -> Result[offsets.Deletion]:
            if shard.share.find(group_id) is None:
                return Result(offsets.Deletion())
            return offsets.begin_group_deletion(shard.share, group_id)

        def begun(done: Pending[offsets.Deletion]) -> None:
            if done.error is not None:
                answer.complete(operation_error(done.error))
            else:
                self._delete_states(group_id, done.value.partitions).on_done(finish)

        self._runtime.write(self._partition_for(group_id), apply).on_done(begun)
        return answer

    def _delete_offsets(
        self, group_id: str, found: offsets.Deletion
    ) -> Pending[dict[Uuid, KafkaError | None]]:
        """Delete states, and write which are deleted; return an error by topic."""
        answer: Pending[dict[Uuid, KafkaError | None]] = Pending()

        states = self._delete_states(group_id, found.partitions)
        begun = found.written_offset

        def deleted(done: Pending[dict[Uuid, KafkaError | None]]) -> None:
            gone = [topic_id for topic_id, error in done.value.items() if error is None]
            written = self._runtime.write(
                self._partition_for(group_id),
                lambda shard: Result(
                    None, offsets.complete_deletion(shard.share, group_id, gone, begun)
                ),
            )
            written.on_done(finish)

        def finish(_written: Pending[None]) -> None:
            answer.complete(states.value)

        states.on_done(deleted)
        return answer

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
                    partitions=[_DeleteTopic.PartitionData(partition=one) for one in indexes],
                )
                for topic_id, indexes in partitions.items()
            ],
        )
        return self._persister.delete(request).then(
            lambda response: {one.topic_id: _first_error(one) for one in response.results}
        )


def _take_errors(alteration: offsets.Alteration, states: Any) -> None:
    """Put the errors of share coordinators into the response."""
    failed = {
        (topic.topic_id, one.partition): one
        for topic in states.results
        for one in topic.partitions
        if one.error_code
    }
    for topic in alteration.topics:
        for part in topic.partitions:
            one = failed.get((topic.topic_id, part.partition_index))
            if one is not None:
                part.error_code, part.error_message = one.error_code, one.error_message


def _first_error(topic: Any) -> KafkaError | None:
    for one in topic.partitions:
        if one.error_code:
            return KafkaError(ErrorCode(one.error_code), one.error_message)
    return None


def _check_kind(shard: GroupShard, group_id: str) -> None:
    if shard.share.find(group_id) is None and shard.groups.find(group_id) is not None:
        text = f"Group {group_id} is not a share group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
