"""The APIs of transactional producers, and the markers that coordinators send each other.

Kafka: KafkaApis.handleInitProducerIdRequest and others; the decisions are in
coordinator.transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.transaction import queries
from ottla.coordinator.transaction.decisions import EndRequest, ProducerKey
from ottla.errors import ErrorCode
from ottla.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
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
from ottla.server.broker.internal_topics import TRANSACTION_STATE_TOPIC
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from ottla.coordinator.transaction.shard import Outcome
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

_NO_EPOCH: Final = -1
_BATCHED_FROM: Final = 4
"""The first version of AddPartitionsToTxn that brokers send, for many transactions."""
_EPOCH_BUMP_FROM: Final = 5
"""The first version of EndTxn whose clients know transaction version 2."""
_FENCED_FROM: Final = {InitProducerIdRequest: 4, AddPartitionsToTxnRequest: 2, EndTxnRequest: 2}
_TV_0, _TV_2 = 0, 2
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


def _code_in_version(code: ErrorCode, version: int, fenced_from: int) -> int:
    """Return the code that clients of a version know for a fenced producer (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)


@handles(InitProducerIdRequest)
def init_producer_id(
    ctx: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    """Return a producer id and epoch; a transactional id fences its earlier producers."""
    has_id = request.producer_id != NO_PRODUCER_ID
    if has_id != (request.producer_epoch != _NO_EPOCH):
        return _no_producer(ErrorCode.INVALID_REQUEST)
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


def _no_producer(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)


@handles(AddPartitionsToTxnRequest)
def add_partitions_to_txn(
    ctx: Context, request: AddPartitionsToTxnRequest
) -> Pending[AddPartitionsToTxnResponse]:
    """Add partitions to transactions, or verify that they belong to them."""
    if ctx.api_version >= _BATCHED_FROM:
        return ctx.broker.transaction_partitions.answer(request)
    transaction = _Transaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )

    def response(result: _Result) -> AddPartitionsToTxnResponse:
        for topic in result.topic_results:
            for one in topic.results_by_partition:
                code = ErrorCode(one.partition_error_code)
                one.partition_error_code = _code_in_version(
                    code, ctx.api_version, _FENCED_FROM[AddPartitionsToTxnRequest]
                )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)

    return ctx.broker.transaction_partitions.add(transaction, _TV_0).then(response)


@handles(AddOffsetsToTxnRequest)
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


@handles(EndTxnRequest)
def end_txn(ctx: Context, request: EndTxnRequest) -> Pending[EndTxnResponse]:
    """Commit or abort a transaction; answered once the decision is committed."""
    end = EndRequest(
        ProducerKey(request.producer_id, request.producer_epoch),
        request.committed,
        _TV_2 if ctx.api_version >= _EPOCH_BUMP_FROM else _TV_0,
    )

    def response(done: Outcome) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=_code_in_version(done.code, ctx.api_version, _FENCED_FROM[EndTxnRequest]),
            producer_id=done.producer_id,
            producer_epoch=done.producer_epoch,
        )

    return ctx.broker.transactions.end_transaction(request.transactional_id, end).then(response)


@handles(WriteTxnMarkersRequest)
def write_txn_markers(
    ctx: Context, request: WriteTxnMarkersRequest
) -> Pending[WriteTxnMarkersResponse]:
    """Write the markers of another broker's transactions to partitions that are led here."""
    return ctx.broker.markers.write(request)


@handles(DescribeTransactionsRequest)
def describe_transactions(
    ctx: Context, request: DescribeTransactionsRequest
) -> Pending[DescribeTransactionsResponse]:
    """Describe transactional ids that this broker coordinates."""
    return queries.describe_all(ctx.broker.transactions, request.transactional_ids)


@handles(ListTransactionsRequest)
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
