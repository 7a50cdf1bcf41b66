"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152).

Kafka: TransactionCoordinator.{handleDescribeTransactions, handleListTransactions},
TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import re2

from ottla.coordinator.bounded_patterns import BoundedPattern
from ottla.coordinator.runtime.active import ShardState
from ottla.coordinator.runtime.log import operation_error
from ottla.coordinator.runtime.runtime import KEYS_AT_ONCE
from ottla.coordinator.runtime.shard import gather_begun, recover
from ottla.coordinator.transaction.state import STATES_BY_TEXT, Transaction, TransactionState
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_transactions import DescribeTransactionsResponse
from ottla.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.coordinator.transaction.shard import TransactionShard
    from ottla.purgatory.work import Work

Described = DescribeTransactionsResponse.TransactionState
Listed = ListTransactionsResponse.TransactionState


def describe_all(
    coordinator: TransactionCoordinator, transactional_ids: Sequence[str]
) -> Pending[DescribeTransactionsResponse]:
    """Describe transactional ids, so many in a turn of the event loop."""

    def describe_each() -> Work[list[Pending[Described]]]:
        parts = []
        for name in transactional_ids:
            parts.append(describe(coordinator, name))
            yield
        return parts

    return gather_begun(
        coordinator.runtime.worker.run(describe_each()),
        lambda parts: DescribeTransactionsResponse(
            transaction_states=[part.value for part in parts]
        ),
    )


def describe(coordinator: TransactionCoordinator, transactional_id: str) -> Pending[Described]:
    """Describe one transactional id as it is committed."""
    if not transactional_id:
        return Pending.of(_undescribed(transactional_id, ErrorCode.INVALID_REQUEST))

    def read(shard: TransactionShard, epoch: int) -> Described:
        current = shard.transactions.get_at(transactional_id, epoch)
        if current is None or current.state is TransactionState.DEAD:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return _described(current)

    description = coordinator.runtime.read(coordinator.partition_for(transactional_id), read)
    return recover(
        description, lambda error: _undescribed(transactional_id, operation_error(error))
    )


def _described(current: Transaction) -> Described:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(current.partitions):
        topics.setdefault(topic, []).append(index)
    return Described(
        transactional_id=current.transactional_id,
        transaction_state=current.state.text,
        transaction_timeout_ms=current.timeout_ms,
        transaction_start_time_ms=current.start_ms,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        topics=[
            Described.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )


def _undescribed(transactional_id: str, code: ErrorCode) -> Described:
    return Described(
        error_code=int(code),
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def list_transactions(
    coordinator: TransactionCoordinator,
    request: ListTransactionsRequest,
    now_ms: int,
    led: Mapping[int, int] = MappingProxyType({}),
) -> Pending[ListTransactionsResponse]:
    """List what passes all filters; refused while a partition is being loaded, or has failed to.

    led has the epochs of the partitions that the broker leads by its metadata, and may be about to
    load.
    """
    runtime = coordinator.runtime
    unknown = [name for name in request.state_filters if name not in STATES_BY_TEXT]
    states = {STATES_BY_TEXT[name] for name in request.state_filters if name in STATES_BY_TEXT}
    if request.state_filters and not states:
        return Pending.of(_listed([], unknown))
    is_behind = any(runtime.leader_epoch(index) < epoch for index, epoch in led.items())
    loaded = runtime.partitions.values()
    if is_behind or ShardState.LOADING in loaded:
        return Pending.of(_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    if ShardState.FAILED in loaded:
        return Pending.of(_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    try:
        text = request.transactional_id_pattern
        pattern = BoundedPattern(text) if text else None
    except re2.error:
        return Pending.of(_refused(ErrorCode.INVALID_REGULAR_EXPRESSION))

    producer_ids = frozenset(request.producer_id_filters)

    def read(shard: TransactionShard, epoch: int, names: Sequence[str]) -> list[Listed]:
        transactions = (shard.transactions.get_at(name, epoch) for name in names)
        return [
            Listed(
                transactional_id=summary.transactional_id,
                producer_id=summary.producer_id,
                transaction_state=summary.state.text,
            )
            for summary in transactions
            if summary is not None
            and (not producer_ids or summary.producer_id in producer_ids)
            and _passes(summary, request, states, pattern, now_ms)
        ]

    at_once = KEYS_AT_ONCE if pattern is None else 1  # one match may take milliseconds
    listed = runtime.read_all(lambda shard, epoch: shard.transactions.at(epoch), read, at_once)
    return recover(
        listed.then(lambda found: _listed(found, unknown)),
        lambda error: _refused(operation_error(error)),
    )


def _passes(
    one: Transaction,
    request: ListTransactionsRequest,
    states: set[TransactionState],
    pattern: BoundedPattern | None,
    now_ms: int,
) -> bool:
    if one.state is TransactionState.DEAD:
        return False  # it is about to be forgotten
    if states and one.state not in states:
        return False
    if request.duration_filter >= 0 and now_ms - one.start_ms <= request.duration_filter:
        return False
    try:
        return pattern is None or pattern.matches(one.transactional_id)
    except re2.error as error:  # an id of thousands of characters
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION) from error


def _listed(transactions: list[Listed], unknown: list[str]) -> ListTransactionsResponse:
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=transactions)


def _refused(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=int(code), unknown_state_filters=[], transaction_states=[]
    )
