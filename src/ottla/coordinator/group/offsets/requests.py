"""OffsetCommit, OffsetFetch and OffsetDelete in all their versions.

Topic ids and names are resolved, refused topics are answered here, the others are passed to the
shard.

Kafka: the offset handlers of kafka.server.KafkaApis and of GroupCoordinatorService;
OffsetMetadataManager.{fetchOffsets, fetchAllOffsets}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from ottla.coordinator.group.offsets import commit, removal
from ottla.coordinator.runtime.log import fetch_error, operation_error
from ottla.coordinator.runtime.shard import gather, recover
from ottla.errors import ErrorCode
from ottla.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.purgatory.pending import Pending
from ottla.types import ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.context import RequestContext, TopicNames
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.group.offsets.committed import CommittedOffset
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.runtime import CoordinatorRuntime

    CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
    CommitPartition = CommitTopic.OffsetCommitRequestPartition
    DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    DeletePartition = DeleteTopic.OffsetDeleteRequestPartition
    FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
    FetchTopic = FetchGroup.OffsetFetchRequestTopics
    _RequestGroup = OffsetFetchRequest.OffsetFetchRequestGroup

_ResponseGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_ResponseTopic = _ResponseGroup.OffsetFetchResponseTopics
_ResponsePartition = _ResponseTopic.OffsetFetchResponsePartitions


def _fetch(
    groups: Groups, request: _RequestGroup, epoch: int, *, require_stable: bool
) -> _ResponseGroup:
    """Return the offsets at epoch of the named partitions, or of all when none are named.

    A member of a consumer group is refused unless it is at its epoch.
    With require_stable a partition in an open transaction gets UNSTABLE_OFFSET_COMMIT.
    """
    group = groups.by_id.get_at(request.group_id, epoch)
    if group is not None:
        group.check_offset_fetch(request.member_id, request.member_epoch, epoch)
    offsets = groups.offsets.of_group(request.group_id, epoch)
    staged = groups.offsets.staged_of_group(request.group_id, epoch) if require_stable else {}
    response = _ResponseGroup(group_id=request.group_id, topics=[])
    if request.topics is None:
        topics: dict[str, _ResponseTopic] = {}
        for key, committed in sorted(offsets.items(), key=lambda item: item[0].partition):
            topic = topics.setdefault(key.topic, _ResponseTopic(name=key.topic, partitions=[]))
            topic.partitions.append(_answer(key.partition, committed, is_staged=key in staged))
        response.topics = list(topics.values())
        return response
    for named in request.topics:
        answer = _ResponseTopic(name=named.name, topic_id=named.topic_id, partitions=[])
        response.topics.append(answer)
        for partition in named.partition_indexes:
            key = TopicPartition(named.name, partition)
            found = offsets.get(key)
            if found and found.topic_id and named.topic_id and found.topic_id != named.topic_id:
                # It belongs to a deleted topic of the same name.
                found = None
            answer.partitions.append(_answer(partition, found, is_staged=key in staged))
    return response


def _answer(
    partition: int, committed: CommittedOffset | None, *, is_staged: bool
) -> _ResponsePartition:
    if committed is None or is_staged:
        return _ResponsePartition(
            partition_index=partition,
            committed_offset=-1,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_staged else ErrorCode.NONE,
        )
    return _ResponsePartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


TOPIC_ID_VERSION: Final = 10
"""The first version of OffsetCommit and OffsetFetch with topic ids instead of names."""
MANY_GROUPS_VERSION: Final = 8
TOP_LEVEL_ERROR_VERSION: Final = 2


K = TypeVar("K")
T = TypeVar("T", commit.ResponseTopic, removal.ResponseTopic)


class OffsetRequests:
    """The offset APIs on the shards of the group coordinator."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        partition_for: Callable[[str], int],
        topics: TopicNames,
    ) -> None:
        self._runtime = runtime
        self._partition_for = partition_for
        self._topics = topics

    # ---------------------------------------------------------------- commit

    def commit(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> Pending[OffsetCommitResponse]:
        """Commit offsets of existing partitions; refused ones are answered first."""
        uses_ids = context.api_version >= TOPIC_ID_VERSION
        good: list[CommitTopic] = []
        refused: dict[tuple[str, Uuid], commit.ResponseTopic] = {}
        for topic in request.topics:
            code = self._resolve(topic, uses_ids=uses_ids)
            known, unknown = self._known(topic) if not code else ([], topic.partitions)
            if code or unknown:  # a refused topic is listed, with or without partitions
                code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                error = _commit_error(topic, unknown, code)
                _merge(refused, (topic.name, topic.topic_id), error)
            if known:
                topic.partitions = known
                good.append(topic)
        if not good:
            return Pending.of(OffsetCommitResponse(topics=list(refused.values())))
        request.topics = good
        pending = self._runtime.write(
            self._partition_for(request.group_id),
            lambda shard: commit.commit(shard.groups, request, context.api_version),
        )

        def refuse(error: Exception) -> OffsetCommitResponse:
            code = operation_error(error)
            return OffsetCommitResponse(
                topics=[_commit_error(topic, topic.partitions, code) for topic in good]
            )

        def merge(response: OffsetCommitResponse) -> OffsetCommitResponse:
            for topic in response.topics:
                _merge(refused, (topic.name, topic.topic_id), topic)
            return OffsetCommitResponse(topics=list(refused.values()))

        answer = recover(pending, refuse)
        return answer.then(merge) if refused else answer

    def _resolve(self, topic: CommitTopic, *, uses_ids: bool) -> ErrorCode:
        if uses_ids:
            name = self._topics.topic_name(topic.topic_id)
            if name is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            topic.name = name
        else:
            topic_id = self._topics.topic_id(topic.name)
            if topic_id is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topic.topic_id = topic_id
        return ErrorCode.NONE

    def _known(self, topic: CommitTopic) -> tuple[list[CommitPartition], list[CommitPartition]]:
        count = self._topics.partition_count(topic.name) or 0
        known = [
            partition for partition in topic.partitions if 0 <= partition.partition_index < count
        ]
        if len(known) == len(topic.partitions):
            return known, []
        return known, [
            partition
            for partition in topic.partitions
            if not 0 <= partition.partition_index < count
        ]

    # ---------------------------------------------------------------- fetch

    def fetch(
        self, request: OffsetFetchRequest, context: RequestContext
    ) -> Pending[OffsetFetchResponse]:
        """Fetch the offsets of each group in the request; up to version 7 there is one."""
        version = context.api_version
        requested = request.groups if version >= MANY_GROUPS_VERSION else [_as_group(request)]
        require_stable = request.require_stable
        parts = [
            self._fetch_group(group, version, require_stable=require_stable) for group in requested
        ]

        def combine(
            results: list[Pending[_ResponseGroup]],
        ) -> OffsetFetchResponse:
            groups = [part.value for part in results]
            if version >= MANY_GROUPS_VERSION:
                return OffsetFetchResponse(groups=groups)
            return _as_single(groups[0])

        return gather(parts, combine)

    def _fetch_group(
        self, group: FetchGroup, version: int, *, require_stable: bool
    ) -> Pending[_ResponseGroup]:
        fetches_all = group.topics is None
        refused: list[_ResponseTopic] = []
        if group.topics is not None:
            group.topics, refused = self._resolve_fetch(group.topics, version)
        partition = self._partition_for(group.group_id)

        def read(shard: GroupShard, epoch: int) -> _ResponseGroup:
            return _fetch(shard.groups, group, epoch, require_stable=require_stable)

        def in_version(response: _ResponseGroup) -> _ResponseGroup:
            if fetches_all and not response.error_code:
                response.topics = self._existing(response.topics, version)
            if not response.error_code:
                response.topics += refused
            return response

        return recover(
            self._runtime.read(partition, read),
            lambda error: _group_error(group, fetch_error(error), version),
        ).then(in_version)

    def _resolve_fetch(
        self, topics: list[FetchTopic], version: int
    ) -> tuple[list[FetchTopic], list[_ResponseTopic]]:
        good, refused = [], []
        for topic in topics:
            if version >= TOPIC_ID_VERSION:
                name = self._topics.topic_name(topic.topic_id)
                if name is None:
                    refused.append(_fetch_error(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
                topic.name = name
            good.append(topic)
        return good, refused

    def _existing(self, topics: list[_ResponseTopic], version: int) -> list[_ResponseTopic]:
        """Leave out deleted topics for requests by id, and fill in the ids of the others."""
        if version < TOPIC_ID_VERSION:
            return topics
        for topic in topics:
            topic.topic_id = self._topics.topic_id(topic.name) or ZERO_UUID
        return [topic for topic in topics if topic.topic_id]

    # ---------------------------------------------------------------- delete

    def delete(self, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResponse]:
        """Delete offsets of existing partitions; a group error replaces all others."""
        if not request.group_id:
            return Pending.of(
                OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
            )
        refused: dict[str, removal.ResponseTopic] = {}
        good: list[DeleteTopic] = []
        for topic in request.topics:
            known, unknown, code = self._deletable(topic)
            if code or unknown:
                code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                _merge(
                    refused,
                    topic.name,
                    removal.ResponseTopic(
                        name=topic.name,
                        partitions=[
                            removal.ResponsePartition(
                                partition_index=p.partition_index, error_code=code
                            )
                            for p in unknown
                        ],
                    ),
                )
            if known:
                topic_class = OffsetDeleteRequest.OffsetDeleteRequestTopic
                good.append(topic_class(name=topic.name, partitions=known))
        allowed = OffsetDeleteRequest(group_id=request.group_id, topics=good)
        pending = self._runtime.write(
            self._partition_for(request.group_id),
            lambda shard: removal.delete_offsets(shard.groups, allowed),
        )

        def merge(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
            if response.error_code or not refused:
                return response
            for topic in response.topics:
                _merge(refused, topic.name, topic)
            return OffsetDeleteResponse(topics=list(refused.values()))

        return recover(
            pending,
            lambda error: OffsetDeleteResponse(error_code=operation_error(error), topics=[]),
        ).then(merge)

    def _deletable(
        self, topic: DeleteTopic
    ) -> tuple[list[DeletePartition], list[DeletePartition], ErrorCode]:
        """Return the existing partitions, the others, and the error of the whole topic."""
        if self._topics.topic_id(topic.name) is None:
            return [], topic.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known: list[DeletePartition] = []
        unknown: list[DeletePartition] = []
        for partition in topic.partitions:
            exists = self._topics.has_partition(topic.name, partition.partition_index)
            (known if exists else unknown).append(partition)
        return known, unknown, ErrorCode.NONE


# ---------------------------------------------------------------- response builders


def _commit_error(
    topic: CommitTopic, partitions: list[CommitPartition], code: ErrorCode
) -> commit.ResponseTopic:
    return commit.ResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            commit.ResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in partitions
        ],
    )


def _merge(topics: dict[K, T], key: K, topic: T) -> None:
    known = topics.setdefault(key, topic)
    if known is not topic:
        known.partitions += topic.partitions


def _fetch_error(topic: FetchTopic, code: ErrorCode) -> _ResponseTopic:
    return _ResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _ResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _group_error(group: FetchGroup, code: ErrorCode, version: int) -> _ResponseGroup:
    """Return a group's error; version 1 has an error field per partition only."""
    response = _ResponseGroup(group_id=group.group_id, error_code=code, topics=[])
    if version < TOP_LEVEL_ERROR_VERSION:
        response.topics = [_fetch_error(topic, code) for topic in group.topics or ()]
    return response


def _as_group(request: OffsetFetchRequest) -> FetchGroup:
    group_class = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = None
    if request.topics is not None:
        topics = [
            group_class.OffsetFetchRequestTopics(
                name=topic.name, partition_indexes=topic.partition_indexes
            )
            for topic in request.topics
        ]
    return group_class(group_id=request.group_id, topics=topics)


def _as_single(group: _ResponseGroup) -> OffsetFetchResponse:
    topic_class = OffsetFetchResponse.OffsetFetchResponseTopic
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            topic_class(
                name=topic.name,
                partitions=[
                    topic_class.OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
