"""The APIs of transactional producers, markers between coordinators, and DescribeProducers.

Kafka: KafkaApis.handleInitProducerIdRequest and others; the decisions are in
coordinator.transaction; KafkaApis.handleDescribeProducersRequest, UnifiedLog.activeProducers
(KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.topics import check_topic_name
from ottla.coordinator.transaction import queries
from ottla.coordinator.transaction.decisions import EndRequest, ProducerKey
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from ottla.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from ottla.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.records.batch import NO_PRODUCER_ID
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.broker.topic_auto_creation import TRANSACTION_STATE_TOPIC
from ottla.server.requests.api import handles
from ottla.server.requests.refusals import refused
from ottla.server.requests.rights import Denied, Each, Reduced, Right

if TYPE_CHECKING:
    from ottla.coordinator.transaction.shard import Outcome
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.work import Work
    from ottla.server.requests.context import Context
    from ottla.server.requests.rights import Decision
    from ottla.storage.producers.entry import ProducerEntry

_ID: Final = ResourceType.TRANSACTIONAL_ID
_WRITE: Final = Right(Operation.WRITE, _ID, "transactional_id")
_NO_EPOCH: Final = -1
_FENCED_FROM: Final = {InitProducerIdRequest: 4, AddPartitionsToTxnRequest: 2, EndTxnRequest: 2}
_TV_0, _TV_2 = 0, 2
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


def _code_in_version(code: ErrorCode, version: int, fenced_from: int) -> int:
    """Return the code that clients of a version know for a fenced producer (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)


def _may_init(ctx: Context, request: InitProducerIdRequest) -> None:
    """WRITE on the transactional id; else IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.

    With two phases TWO_PHASE_COMMIT on the transactional id as well (KIP-939).
    """
    if request.transactional_id is not None:
        _WRITE(ctx, request)
        if request.enable2_pc:
            Right(Operation.TWO_PHASE_COMMIT, _ID, "transactional_id")(ctx, request)
    elif not ctx.authorize(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    ) and not ctx.authorize_any(Operation.WRITE, ResourceType.TOPIC):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@handles(
    InitProducerIdRequest,
    right=_may_init,
    notes={
        3: "the next epoch of a producer (KIP-360)",
        4: "PRODUCER_FENCED (KIP-588)",
    },
)
def init_producer_id(
    ctx: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    """Return a producer id and epoch; a transactional id fences its earlier producers."""
    has_id = request.producer_id != NO_PRODUCER_ID
    if has_id != (request.producer_epoch != _NO_EPOCH):
        return InitProducerIdResponse(
            error_code=int(ErrorCode.INVALID_REQUEST), producer_id=-1, producer_epoch=-1
        )
    if request.transactional_id is None:
        return ctx.broker.producer_ids.next_id().then(
            lambda producer_id: InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        )
    expected = ProducerKey(request.producer_id, request.producer_epoch) if has_id else None
    fenced_from = _FENCED_FROM[InitProducerIdRequest]

    def response(done: Outcome) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            error_code=_code_in_version(done.code, ctx.api_version, fenced_from),
            producer_id=done.producer_id,
            producer_epoch=done.producer_epoch,
            ongoing_txn_producer_id=done.ongoing[0],
            ongoing_txn_producer_epoch=done.ongoing[1],
        )

    transactions = ctx.broker.transactions
    return transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        expected,
        two_phase=request.enable2_pc,
        keeps_prepared=request.keep_prepared_txn,
    ).then(response)


def _may_add(ctx: Context, request: AddPartitionsToTxnRequest) -> Decision | None:
    """WRITE on the transactional id and on all topics; from version 4 CLUSTER_ACTION.

    One denied topic, and none is added.
    """
    if ctx.api_version >= 4:
        Right(Operation.CLUSTER_ACTION)(ctx, request)
        return None
    Right(Operation.WRITE, _ID, "v3_and_below_transactional_id")(ctx, request)
    topics = request.v3_and_below_topics
    denied = {
        topic.name: not ctx.authorize(Operation.WRITE, ResourceType.TOPIC, topic.name)
        for topic in topics
    }
    if not any(denied[topic.name] for topic in topics if topic.partitions):
        return None
    known = ctx.broker.image.topics.by_name

    def code_of(name: str, index: int) -> ErrorCode:
        """Return what keeps a partition out: a right, itself, or the others."""
        if denied[name]:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if name not in known or index not in known[name].partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    response: AddPartitionsToTxnResponse = refused(
        request, KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED), ctx.api_version
    )
    for topic in response.results_by_topic_v3_and_below:
        for result in topic.results_by_partition:
            result.partition_error_code = int(code_of(topic.name, result.partition_index))
    return Denied(response)


@handles(
    AddPartitionsToTxnRequest,
    right=_may_add,
    notes={
        2: "PRODUCER_FENCED (KIP-588)",
        4: "of brokers: many transactions, also only to verify (KIP-890)",
    },
)
def add_partitions_to_txn(
    ctx: Context, request: AddPartitionsToTxnRequest
) -> Pending[AddPartitionsToTxnResponse]:
    """Add partitions to transactions, or verify that they belong to them."""
    if ctx.api_version >= 4:
        return ctx.broker.transaction_partitions.answer(request)
    transaction = _Transaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )

    def response(result: _Result) -> AddPartitionsToTxnResponse:
        for topic in result.topic_results:
            for partition in topic.results_by_partition:
                code = ErrorCode(partition.partition_error_code)
                partition.partition_error_code = _code_in_version(
                    code, ctx.api_version, _FENCED_FROM[AddPartitionsToTxnRequest]
                )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)

    return ctx.broker.transaction_partitions.add(transaction, _TV_0).then(response)


@handles(
    AddOffsetsToTxnRequest,
    right=(_WRITE, Right(Operation.READ, ResourceType.GROUP, "group_id")),
    notes={2: "PRODUCER_FENCED (KIP-588)"},
)
def add_offsets_to_txn(
    ctx: Context, request: AddOffsetsToTxnRequest
) -> Pending[AddOffsetsToTxnResponse]:
    """Add the partition that holds a group's offsets to a transaction."""
    broker = ctx.broker
    added = broker.transactions.add_partitions(
        request.transactional_id,
        ProducerKey(request.producer_id, request.producer_epoch),
        [broker.coordinators.partition_of_group(request.group_id)],
        _TV_0,
    )
    return added.then(
        lambda code: AddOffsetsToTxnResponse(error_code=_code_in_version(code, ctx.api_version, 2))
    )


@handles(
    EndTxnRequest,
    right=_WRITE,
    notes={
        2: "PRODUCER_FENCED (KIP-588)",
        5: "the next epoch of the producer (KIP-890)",
    },
)
def end_txn(ctx: Context, request: EndTxnRequest) -> Pending[EndTxnResponse]:
    """Commit or abort a transaction; answered once the decision is committed."""
    end = EndRequest(
        ProducerKey(request.producer_id, request.producer_epoch),
        request.committed,
        _TV_2 if ctx.api_version >= 5 else _TV_0,
    )

    def response(done: Outcome) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=_code_in_version(done.code, ctx.api_version, _FENCED_FROM[EndTxnRequest]),
            producer_id=done.producer_id,
            producer_epoch=done.producer_epoch,
        )

    return ctx.broker.transactions.end_transaction(request.transactional_id, end).then(response)


def _may_write_markers(ctx: Context, request: WriteTxnMarkersRequest) -> None:
    """ALTER or CLUSTER_ACTION on the cluster."""
    if not ctx.is_allowed(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        Right(Operation.CLUSTER_ACTION)(ctx, request)


@handles(WriteTxnMarkersRequest, right=_may_write_markers, throttled=False)
def write_txn_markers(
    ctx: Context, request: WriteTxnMarkersRequest
) -> Pending[WriteTxnMarkersResponse]:
    """Write the markers of another broker's transactions to partitions that are led here."""
    return ctx.broker.markers.write(request)


def _may_see_topics(ctx: Context, request: DescribeTransactionsRequest) -> Reduced:
    """DESCRIBE on the topics of a transaction; the others are left out."""

    def finish(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                topic
                for topic in state.topics
                if ctx.is_allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            ]
        return response

    return Reduced(request, finish)


@handles(
    DescribeTransactionsRequest,
    right=(
        Each(Operation.DESCRIBE, _ID, "transactional_ids", order="in place"),
        _may_see_topics,
    ),
)
def describe_transactions(
    ctx: Context, request: DescribeTransactionsRequest
) -> Pending[DescribeTransactionsResponse]:
    """Describe transactional ids that this broker coordinates."""
    return queries.describe_all(ctx.broker.transactions, request.transactional_ids)


def _may_list(ctx: Context, request: ListTransactionsRequest) -> Reduced:
    """DESCRIBE on each transactional id; the others are left out."""

    def finish(response: ListTransactionsResponse) -> ListTransactionsResponse:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if ctx.is_allowed(Operation.DESCRIBE, _ID, state.transactional_id)
        ]
        return response

    return Reduced(request, finish)


@handles(ListTransactionsRequest, right=_may_list)
def list_transactions(
    ctx: Context, request: ListTransactionsRequest
) -> Pending[ListTransactionsResponse]:
    """List the transactional ids that this broker coordinates."""
    broker = ctx.broker
    topic = broker.metadata.image.topics.by_name.get(TRANSACTION_STATE_TOPIC)
    led = {
        index: one.leader_epoch
        for index, one in (topic.partitions.items() if topic is not None else ())
        if one.leader == broker.node_id
    }
    return queries.list_transactions(broker.transactions, request, broker.clock.now_ms(), led)


TopicResponse = DescribeProducersResponse.TopicResponse
PartitionResponse = TopicResponse.PartitionResponse


@handles(
    DescribeProducersRequest,
    right=Each(Operation.READ, ResourceType.TOPIC, "topics", "name", "in place"),
)
def describe_producers(
    ctx: Context, request: DescribeProducersRequest
) -> Pending[DescribeProducersResponse]:
    """Describe the producers of partitions."""
    return ctx.broker.worker.run(_describe_all(ctx, request))


def _describe_all(
    ctx: Context, request: DescribeProducersRequest
) -> Work[DescribeProducersResponse]:
    response = DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=partition_index, active_producers=[])
                    for partition_index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
    for topic in response.topics:
        for partition in topic.partitions:
            yield from _describe(ctx, topic.name, partition)
    return response


def _describe(ctx: Context, topic: str, response: PartitionResponse) -> Work[None]:
    try:
        check_topic_name(topic)
        if ctx.broker.image.topics.topic_id(topic) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except KafkaError as error:
        response.error_code = int(error.code)
        response.error_message = error.message
        return
    try:
        partition = ctx.broker.replicas.get(topic, response.partition_index)
        partition.check_epoch()  # followers describe their state as well
    except KafkaError as error:
        response.error_code = int(error.code)
        return
    for entry in list(partition.log.producer_state.producers.values()):
        response.active_producers.append(_state(entry))
        yield


def _state(entry: ProducerEntry) -> PartitionResponse.ProducerState:
    return PartitionResponse.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
