"""TxnOffsetCommit: offsets that take effect when the producer's transaction commits.

Kafka: GroupCoordinatorService.commitTransactionalOffsets,
OffsetMetadataManager.commitTransactionalOffset, KafkaApis.handleTxnOffsetCommitRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.offsets.commit import transactional_commit
from ottla.coordinator.runtime.log import TransactionSupport, operation_error
from ottla.coordinator.runtime.shard import TransactionalProducer, recover
from ottla.errors import ErrorCode
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.context import RequestContext, TopicNames
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.runtime import CoordinatorLog, CoordinatorRuntime

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Answer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_PartitionAnswer = _Answer.TxnOffsetCommitResponsePartition
_LOADING_FROM: Final = 2
"""The first version whose clients know COORDINATOR_LOAD_IN_PROGRESS."""
_ABORTABLE_FROM: Final = 4
_ADDS_PARTITIONS_FROM: Final = 5


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
                self._topics.has_partition(topic.name, one.partition_index)
                for one in topic.partitions
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
            _PartitionAnswer(partition_index=one.partition_index, error_code=int(code))
            for one in topic.partitions
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
