"""OffsetCommit and TxnOffsetCommit: validation of the committer, and the records of the offsets.

Kafka: OffsetMetadataManager.commitOffset, ClassicGroup.validateOffsetCommit;
ConsumerGroup.{validateOffsetCommit, createAssignmentEpochValidator} (KIP-848, KIP-1251);
StreamsGroup.{validateOffsetCommit, createAssignmentEpochValidator} (KIP-1071, KIP-1251);
GroupCoordinatorService.commitTransactionalOffsets,
OffsetMetadataManager.commitTransactionalOffset, KafkaApis.handleTxnOffsetCommitRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.group import SIMPLE, ClassicGroup, ClassicState
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.context import MEMBER_EPOCH_VERSION
from ottla.coordinator.group.offsets.committed import CommittedOffset
from ottla.coordinator.group.offsets.records import PLAIN_AT_MOST, encode_plain, offset_commit
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.runtime import Result
from ottla.coordinator.runtime.log import TransactionSupport, operation_error
from ottla.coordinator.runtime.shard import TransactionalProducer, recover
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.purgatory.pending import Pending
from ottla.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.context import PartitionCheck, RequestContext, TopicNames
    from ottla.coordinator.group.groups import Groups
    from ottla.coordinator.group.member_group import MemberGroup
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.runtime import CoordinatorLog, CoordinatorRuntime
    from ottla.types import Uuid

    RequestTopic = OffsetCommitRequest.OffsetCommitRequestTopic
    RequestPartition = RequestTopic.OffsetCommitRequestPartition

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Answer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_PartitionAnswer = _Answer.TxnOffsetCommitResponsePartition
ResponseTopic = OffsetCommitResponse.OffsetCommitResponseTopic
ResponsePartition = ResponseTopic.OffsetCommitResponsePartition

STALE_GROUP_VERSION: Final = 9
"""The first version with GROUP_ID_NOT_FOUND for an unknown group (KIP-848)."""
_LOADING_FROM: Final = 2
"""The first version of TxnOffsetCommit whose clients know COORDINATOR_LOAD_IN_PROGRESS."""
_ABORTABLE_FROM: Final = 4
_ADDS_PARTITIONS_FROM: Final = 5
LATEST_MS: Final = 2**63 - 1
_new_tuple: Final = tuple.__new__


def commit(
    groups: Groups, request: OffsetCommitRequest, api_version: int
) -> Result[OffsetCommitResponse]:
    """Commit each offset whose metadata is not too long; topic names are resolved already."""
    check = _validate(groups, request, api_version)
    max_metadata_length = groups.classic.config.offset_metadata_max_bytes
    now_ms = groups.classic.clock.now_ms()
    retention_ms = request.retention_time_ms
    expire_ms = -1 if retention_ms == -1 else min(now_ms + retention_ms, LATEST_MS)
    if check is None and expire_ms == -1 and _are_plain(request):
        return _commit_plain(groups, request, now_ms)
    result = Result(OffsetCommitResponse(topics=[]))
    records = result.records
    for topic in request.topics:
        answer = ResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        result.response.topics.append(answer)
        for partition in topic.partitions:
            code = 0
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if metadata and _utf16_length(metadata) > max_metadata_length:
                code = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                if check is not None:
                    check(topic.name, index, topic.topic_id)
                committed = _new_tuple(
                    CommittedOffset,
                    (
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                        now_ms,
                        expire_ms,
                        topic.topic_id,
                        -1,
                    ),
                )
                name = _new_tuple(TopicPartition, (topic.name, index))
                records.append(offset_commit(request.group_id, name, committed))
            answer.partitions.append(ResponsePartition(partition_index=index, error_code=code))
    groups.offsets.commits += len(result.records)
    return result


def _are_plain(request: OffsetCommitRequest) -> bool:
    """Whether there are some offsets, few enough for one batch of plain records, no metadata."""
    count = 0
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.committed_metadata:
                return False
            count += 1
    return 0 < count <= PLAIN_AT_MOST


def _commit_plain(
    groups: Groups, request: OffsetCommitRequest, now_ms: int
) -> Result[OffsetCommitResponse]:
    offsets = PlainOffsets(groups, request, now_ms)
    groups.offsets.commits += offsets.count
    topics = [
        ResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                ResponsePartition(partition_index=partition.partition_index, error_code=0)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return Result(OffsetCommitResponse(topics=topics), bulk=offsets)


class PlainOffsets:
    """The offsets of a request without metadata and expiry: what most commits have.

    Hot path: benchmarks/against_kafka/groups.py.
    """

    __slots__ = ("_groups", "_now_ms", "_request", "count")

    def __init__(self, groups: Groups, request: OffsetCommitRequest, now_ms: int) -> None:
        self._groups = groups
        self._request = request
        self._now_ms = now_ms
        self.count = sum(len(topic.partitions) for topic in request.topics)

    def encode(self) -> bytes:
        """Return the records."""
        request = self._request
        topics = [(topic.name, topic.topic_id, topic.partitions) for topic in request.topics]
        return encode_plain(request.group_id, topics, self._now_ms)

    def replay(self, first_offset: int) -> None:
        """Apply them as `GroupShard.replay` does each."""
        group_id, by_id = self._request.group_id, self._groups.by_id
        if group_id not in by_id:
            by_id[group_id] = SIMPLE
        items, now_ms, record_offset = [], self._now_ms, first_offset
        for topic in self._request.topics:
            name, topic_id = topic.name, topic.topic_id
            for partition in topic.partitions:
                committed: CommittedOffset = _new_tuple(
                    CommittedOffset,
                    (
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        "",
                        now_ms,
                        -1,
                        topic_id,
                        record_offset,
                    ),
                )
                key: TopicPartition = _new_tuple(TopicPartition, (name, partition.partition_index))
                items.append((key, committed))
                record_offset += 1
        self._groups.offsets.replay_all(group_id, items)


def transactional_commit(
    groups: Groups, request: TxnOffsetCommitRequest, topics: TopicNames
) -> Result[TxnOffsetCommitResponse]:
    """Commit offsets for a transaction; ILLEGAL_GENERATION for an unknown group's generation."""
    group = groups.committer(request.group_id)
    check: PartitionCheck | None = None
    if isinstance(group, ConsumerGroup | StreamsGroup):
        check = _check_of_transaction(group, request.member_id, request.generation_id)
    elif group is not None:
        validate_committer(
            group,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            transactional=True,
        )
    elif request.generation_id >= 0:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    config, now_ms = groups.classic.config, groups.classic.clock.now_ms()
    result = Result(TxnOffsetCommitResponse(topics=[]))
    for topic in request.topics:
        answer = _Answer(name=topic.name, partitions=[])
        topic_id = topics.topic_id(topic.name) or ZERO_UUID
        result.response.topics.append(answer)
        for partition in topic.partitions:
            code = ErrorCode.NONE
            metadata = partition.committed_metadata or ""
            if _utf16_length(metadata) > config.offset_metadata_max_bytes:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                if check is not None:
                    check(topic.name, partition.partition_index, topic_id)
                committed = CommittedOffset(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp_ms=now_ms,
                    topic_id=topic_id,
                )
                name = TopicPartition(topic.name, partition.partition_index)
                result.records.append(offset_commit(request.group_id, name, committed))
            answer.partitions.append(
                _PartitionAnswer(partition_index=partition.partition_index, error_code=int(code))
            )
    groups.offsets.commits += len(result.records)
    return result


def _utf16_length(text: str) -> int:
    """Return the length in UTF-16 units: Kafka's limit counts characters, despite its name."""
    return len(text) if text.isascii() else len(text) + sum(ord(c) > 0xFFFF for c in text)


def _validate(
    groups: Groups, request: OffsetCommitRequest, api_version: int
) -> PartitionCheck | None:
    """Raise for a wrong committer; return a check of each partition, None where all are good."""
    generation_id = request.generation_id_or_member_epoch
    group = groups.committer(request.group_id)
    if group is None:
        if generation_id >= 0:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND
                if api_version >= STALE_GROUP_VERSION
                else ErrorCode.ILLEGAL_GENERATION
            )
        return None  # a commit without membership creates a simple group
    if isinstance(group, ConsumerGroup | StreamsGroup):
        return _check_of_member(group, request.member_id, generation_id, api_version)
    validate_committer(
        group, request.member_id, request.group_instance_id, generation_id, transactional=False
    )
    if group.is_in(ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
        member = group.members.get(request.member_id)
        if member is not None:
            rebalance.reschedule(groups.classic, group, member)
    return None


def _check_of_member(  # noqa: C901 - one rule for two kinds
    group: ConsumerGroup | StreamsGroup, member_id: str, member_epoch: int, api_version: int
) -> PartitionCheck | None:
    """Raise for an invalid member; return a check of each partition, None if none is needed.

    A member may commit a partition at an older epoch if it has owned the partition, or run its
    task, since then (KIP-1251).
    """
    if member_epoch < 0 and group.is_empty:
        return None
    shared: MemberGroup[Any, Any] = group
    member: Any = shared.member(member_id)
    is_consumer = isinstance(group, ConsumerGroup)
    is_classic = is_consumer and member.classic is not None
    if api_version < MEMBER_EPOCH_VERSION and not is_classic:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the "
            f"{'consumer' if is_consumer else 'streams'} group protocol",
        )
    if member_epoch == member.member_epoch:
        return None
    received = f"Received {shared.epoch_name(member)} {member_epoch}"
    if member_epoch > member.member_epoch:
        text = f"{received} is newer than current member epoch {member.member_epoch}."
        raise shared.stale(member, text)
    topology = None if isinstance(group, ConsumerGroup) else group.topology
    if not is_consumer and topology is None:
        raise shared.stale(member, "Topology is not available for offset commit validation.")

    def check(topic: str, index: int, topic_id: Uuid) -> None:
        noun, name = "Partition", f"{topic}-{index}"
        key: Uuid | str = topic_id
        if topology is not None:
            subtopology_id = topology.source_topics.get(topic)
            if subtopology_id is None:
                raise shared.stale(member, f"Topic {topic} is not in the topology.")
            noun, name, key = "Task", f"{subtopology_id}-{index}", subtopology_id
        epoch = member.assignment_epoch(key, index)
        if epoch is None:
            text = f"{noun} {name} is not assigned or pending revocation for member."
            raise shared.stale(member, text)
        if member_epoch < epoch:
            text = f"is older than assignment epoch {epoch} for {noun.lower()} {name}."
            raise shared.stale(member, f"{received} {text}")

    return check


def _check_of_transaction(
    group: ConsumerGroup | StreamsGroup, member_id: str, member_epoch: int
) -> PartitionCheck | None:
    """Do the same for a transaction: it may have no member, and a stale one has another code."""
    if member_epoch == -1 and not member_id:
        return None
    try:
        check = _check_of_member(group, member_id, member_epoch, MEMBER_EPOCH_VERSION)
    except KafkaError as error:
        raise _illegal_if_stale(error) from error
    if check is None:
        return None

    def check_partition(topic: str, partition: int, topic_id: Uuid) -> None:
        try:
            check(topic, partition, topic_id)
        except KafkaError as error:
            raise _illegal_if_stale(error) from error

    return check_partition


def _illegal_if_stale(error: KafkaError) -> KafkaError:
    is_stale = error.code == ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(ErrorCode.ILLEGAL_GENERATION) if is_stale else error


def validate_committer(
    group: ClassicGroup,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    *,
    transactional: bool,
) -> None:
    """Raise unless the committer belongs to the generation, or the group has no members.

    A transaction may commit without a member; then only its producer is fenced.
    """
    if generation_id < 0 and group.is_in(ClassicState.EMPTY):
        return
    if generation_id >= 0 or member_id or group_instance_id is not None:
        group.validate_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    elif not transactional and not group.is_in(ClassicState.EMPTY):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not transactional and group.is_in(ClassicState.COMPLETING_REBALANCE):
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


class TransactionalOffsets:
    """TxnOffsetCommit on the shards of the group coordinator."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        partition_for: Callable[[str], int],
        topics: TopicNames,
        log: CoordinatorLog,
    ) -> None:
        self._runtime = runtime
        self._partition_for = partition_for
        self._topics = topics
        self._log = log

    def commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Pending[TxnOffsetCommitResponse]:
        """Commit offsets of existing partitions; refused ones are answered first."""
        good, refused = self._split(request)
        if not good:
            return Pending.of(TxnOffsetCommitResponse(topics=refused))
        if not request.group_id:
            return Pending.of(_response(refused, good, ErrorCode.INVALID_GROUP_ID))
        request.topics = good
        written = self._write(request, context)

        def refuse(error: Exception) -> TxnOffsetCommitResponse:
            code = operation_error(error)
            is_old = context.api_version < _LOADING_FROM
            if is_old and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return _response([], good, code)

        def merge(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
            return TxnOffsetCommitResponse(topics=_merged([*refused, *response.topics]))

        return recover(written, refuse).then(merge)

    def _split(self, request: TxnOffsetCommitRequest) -> tuple[list[_Topic], list[_Answer]]:
        good: list[_Topic] = []
        refused: list[_Answer] = []
        for topic in request.topics:
            exists = [
                self._topics.has_partition(topic.name, partition.partition_index)
                for partition in topic.partitions
            ]
            known = [one for one, yes in zip(topic.partitions, exists, strict=True) if yes]
            unknown = [one for one, yes in zip(topic.partitions, exists, strict=True) if not yes]
            if unknown:
                missing = _Topic(name=topic.name, partitions=unknown)
                refused.append(_answer(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            if known:
                good.append(_Topic(name=topic.name, partitions=known))
        return good, refused

    def _write(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Pending[TxnOffsetCommitResponse]:
        """Write the offsets once the transaction's coordinator knows this partition (KIP-890)."""
        answer: Pending[TxnOffsetCommitResponse] = Pending()
        partition = self._partition_for(request.group_id)
        producer_id, epoch = request.producer_id, request.producer_epoch

        def write(verified: Pending[object]) -> None:
            if verified.error is not None:
                answer.fail(verified.error)
                return
            self._runtime.write(
                partition,
                lambda shard: transactional_commit(shard.groups, request, self._topics),
                TransactionalProducer(producer_id, epoch, verified.value),
            ).pass_to(answer)

        support = _support(context.api_version)
        self._log.verify_transaction(
            partition, request.transactional_id, producer_id, epoch, support
        ).on_done(write)
        return answer


def _support(version: int) -> TransactionSupport:
    if version >= _ADDS_PARTITIONS_FROM:
        return TransactionSupport.ADDS_PARTITIONS
    if version >= _ABORTABLE_FROM:
        return TransactionSupport.ABORTABLE
    return TransactionSupport.DEFAULT


def _answer(topic: _Topic, code: ErrorCode) -> _Answer:
    return _Answer(
        name=topic.name,
        partitions=[
            _PartitionAnswer(partition_index=partition.partition_index, error_code=int(code))
            for partition in topic.partitions
        ],
    )


def _response(
    refused: list[_Answer], topics: list[_Topic], code: ErrorCode
) -> TxnOffsetCommitResponse:
    answers = [_answer(topic, code) for topic in topics]
    return TxnOffsetCommitResponse(topics=_merged([*refused, *answers]))


def _merged(answers: list[_Answer]) -> list[_Answer]:
    topics: dict[str, _Answer] = {}
    for answer in answers:
        known = topics.setdefault(answer.name, answer)
        if known is not answer:
            known.partitions += answer.partitions
    return list(topics.values())
