"""Rights of APIs about transactions.

Kafka: kafka.server.KafkaApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.apis.describe_transactions import DescribeTransactionsResponse
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitResponse
from ottla.security.acl import Operation, ResourceType
from ottla.server.handlers.rights.cluster import may, require
from ottla.server.handlers.rights.groups import may_group
from ottla.server.handlers.rights.topics import DENIED as TOPIC_DENIED
from ottla.server.handlers.rights.topics import may_see_topic, may_topic, reduce
from ottla.server.requests.guards import Denied, guards

if TYPE_CHECKING:
    from ottla.server.requests.context import Context
    from ottla.server.requests.guards import Finish

_DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_BETWEEN_BROKERS_FROM: Final = 4


def _may(ctx: Context, operation: Operation, name: str) -> bool:
    return ctx.authorize(operation, ResourceType.TRANSACTIONAL_ID, name)


def _require_write(ctx: Context, name: str) -> None:
    if not _may(ctx, Operation.WRITE, name):
        raise KafkaError(_DENIED)


@guards(ApiKey.INIT_PRODUCER_ID)
def init_producer_id(ctx: Context, request: Any) -> None:
    """WRITE on the transactional id; else IDEMPOTENT_WRITE, or WRITE on any topic."""
    if request.transactional_id is not None:
        _require_write(ctx, request.transactional_id)
        is_two_phase = request.enable2_pc
        if is_two_phase and not _may(ctx, Operation.TWO_PHASE_COMMIT, request.transactional_id):
            raise KafkaError(_DENIED)
    elif not may(ctx, Operation.IDEMPOTENT_WRITE) and not ctx.authorize_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@guards(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(ctx: Context, request: Any) -> Denied | None:
    """WRITE on the id and on all topics: one denied topic and none is added."""
    if ctx.api_version >= _BETWEEN_BROKERS_FROM:
        require(ctx, Operation.CLUSTER_ACTION)
        return None
    topics = request.v3_and_below_topics
    if not _may(ctx, Operation.WRITE, request.v3_and_below_transactional_id):
        codes = {(one.name, index): int(_DENIED) for one in topics for index in one.partitions}
    else:
        codes = _codes_of_partitions(ctx, topics)
        if TOPIC_DENIED not in codes.values():
            return None
    return Denied(
        AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=one.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=codes[one.name, index]
                        )
                        for index in one.partitions
                    ],
                )
                for one in topics
            ]
        )
    )


def _codes_of_partitions(ctx: Context, topics: list[Any]) -> dict[tuple[str, int], int]:
    """Return what keeps each partition out: a right, itself, or the others."""
    codes: dict[tuple[str, int], int] = {}
    for one in topics:
        may_write = may_topic(ctx, Operation.WRITE, one.name)
        image = ctx.broker.image.topics.by_name.get(one.name)
        for index in one.partitions:
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
            if not may_write:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image is None or index not in image.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            codes[one.name, index] = int(code)
    return codes


@guards(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets_to_txn(ctx: Context, request: Any) -> None:
    """WRITE on the transactional id, READ on the group."""
    _require_write(ctx, request.transactional_id)
    if not may_group(ctx, Operation.READ, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


@guards(ApiKey.END_TXN)
def end_txn(ctx: Context, request: Any) -> None:
    """WRITE on the transactional id."""
    _require_write(ctx, request.transactional_id)


@guards(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(ctx: Context, request: Any) -> Finish | Denied | None:
    """WRITE on the transactional id, READ on the group, READ on each topic."""
    topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    partition = topic.TxnOffsetCommitResponsePartition

    def refused(one: Any, code: int = TOPIC_DENIED) -> Any:
        return topic(
            name=one.name,
            partitions=[
                partition(partition_index=part.partition_index, error_code=code)
                for part in one.partitions
            ],
        )

    code: int | None = None
    if not _may(ctx, Operation.WRITE, request.transactional_id):
        code = int(_DENIED)
    elif not may_group(ctx, Operation.READ, request.group_id):
        code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if code is not None:
        return Denied(
            TxnOffsetCommitResponse(topics=[refused(one, code) for one in request.topics])
        )
    return reduce(
        request.topics,
        lambda one: may_topic(ctx, Operation.READ, one.name),
        refused,
        "topics",
        refusals="first",
    )


@guards(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(ctx: Context, request: Any) -> Finish:
    """DESCRIBE on each id; its topics that may not be described are left out."""
    state = DescribeTransactionsResponse.TransactionState
    add = reduce(
        request.transactional_ids,
        lambda name: _may(ctx, Operation.DESCRIBE, name),
        lambda name: state(
            error_code=int(_DENIED),
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        ),
        "transaction_states",
        refusals="in place",
    )

    def finish(response: Any) -> Any:
        for one in response.transaction_states:
            one.topics = [topic for topic in one.topics if may_see_topic(ctx, topic.topic)]
        return response if add is None else add(response)

    return finish


@guards(ApiKey.LIST_TRANSACTIONS)
def list_transactions(ctx: Context, _request: Any) -> Finish:
    """DESCRIBE on each id; the others are left out."""

    def finish(response: Any) -> Any:
        response.transaction_states = [
            one
            for one in response.transaction_states
            if ctx.is_allowed(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id
            )
        ]
        return response

    return finish
