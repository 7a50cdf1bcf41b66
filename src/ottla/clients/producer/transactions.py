"""The requests of a transactional producer, as coroutines that retry until max.block.ms.

Kafka: org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

import asyncio
import builtins
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.coordinator import GROUP, TRANSACTION, CoordinatorCall, CoordinatorLookup
from ottla.clients.producer.transaction_state import (
    PreparedTransaction,
    ProducerIds,
    ProducerTransactionState,
    State,
)
from ottla.errors import ConfigError, ErrorCode, IllegalStateError, KafkaError
from ottla.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.apis.end_txn import EndTxnRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ottla.clients.consumer.core import GroupMetadata
    from ottla.clients.offsets import OffsetAndMetadata
    from ottla.clients.settings import ValidatedSettings
    from ottla.clients.transport import Runtime
    from ottla.protocol.schema import Request
    from ottla.types import TopicPartition

PURPOSE: Final = "transaction"
_FEATURE: Final = "transaction.version"
_EPOCH_BUMP_VERSION: Final = 2
_LAST_CLIENT_ADD: Final = 3
"""The last version of AddPartitionsToTxn that clients send."""
_TWO_PHASE_INIT: Final = 6
"""The version of InitProducerId with two-phase commit, still being developed (KIP-939)."""
_OLD_PRODUCE, _OLD_END, _OLD_OFFSETS = 11, 4, 4
"""The last versions of producers without an epoch for each transaction."""
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_NOT_ADDED: Final = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""Codes after which the coordinator has added nothing."""
_Offsets = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic


class Transactions:
    """The transactions of one producer: their state, and the requests to their coordinators."""

    def __init__(self, settings: ValidatedSettings, runtime: Runtime, sender: ProducerIds) -> None:
        self.state = ProducerTransactionState()
        self.transactional_id: str = settings.transactional_id
        if (
            settings.transaction_two_phase_commit_enable
            and "transaction.timeout.ms" in settings.given
        ):
            raise ConfigError(
                "Cannot set transaction.timeout.ms when transaction.two.phase.commit.enable is set "
                "to true. Transactions will not expire with two-phase commit enabled."
            )
        self._settings = settings
        self._runtime = runtime
        self._client = runtime.client
        self._sender = sender
        self._coordinator = CoordinatorLookup(self._client, self.transactional_id, TRANSACTION)
        self._client.register(self._coordinator)
        self._is_adding = False
        self._add_again_ms = 0
        self._add_failures = 0
        self._unsettled: AddPartitionsToTxnRequest | AddOffsetsToTxnRequest | None = None
        """A request with an unknown outcome: it may have begun a transaction."""

    # ------------------------------------------------------------ called by the sender

    @property
    def produce_version(self) -> int | None:
        """The highest version of Produce that may be sent."""
        return None if self.state.bumps_epoch else _OLD_PRODUCE

    def may_send_to(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether the coordinator knows the partition, or is informed by the batch itself."""
        if partition in self.state.partitions:
            return True
        if self.state.bumps_epoch:
            self.state.partitions.add(partition)
            return True
        if not self._is_adding and now_ms >= self._add_again_ms:
            self._add(partition)
        return False

    def next_deadline_ms(self) -> int:
        """Return when a refused partition is added again."""
        return self._add_again_ms

    def _add(self, partition: TopicPartition) -> None:
        self._is_adding = True
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._sender.producer_id,
            v3_and_below_producer_epoch=self._sender.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
            ],
        )
        self._unsettled = request
        sent = self._coordinator.send(request, purpose=PURPOSE, max_version=_LAST_CLIENT_ADD)
        sent.on_done(lambda done: self._added(partition, done))

    def _added(self, partition: TopicPartition, done: Any) -> None:
        self._is_adding = False
        error = done.error
        if error is None:
            code = _code_of_addition(done.value)
            if not code:
                self._add_failures = 0
                self._unsettled = None
                self.state.partitions.add(partition)
                return
            self._coordinator.note_error(code)
            error = _named(KafkaError(code))
            if code in _NOT_ADDED:
                self._unsettled = None
        if not (isinstance(error, KafkaError) and error.is_retriable):
            self._unsettled = None
            self.state.fail(error if isinstance(error, KafkaError) else KafkaError(-1, str(error)))
            return
        self._add_failures += 1
        backoff_ms = self._client.backoff.after(self._add_failures)
        self._add_again_ms = self._client.now_ms + backoff_ms

    def begin_with(self, producer_id: int, producer_epoch: int, bumps_epoch: bool) -> None:  # noqa: FBT001 - what InitProducerId returned
        """Begin the only transaction of a producer whose id and epoch were got elsewhere."""
        self._sender.use_producer(producer_id, producer_epoch)
        self.state.bumps_epoch = bumps_epoch
        self.state.enter(State.READY, State.UNINITIALIZED)
        self.state.begin()

    # ------------------------------------------------------------ called by the producer

    async def init(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Get the producer id and the next epoch, which fences earlier producers of this id.

        Their open transaction is aborted, or with keep_prepared taken over and returned.
        """
        self.state.enter(State.INITIALIZING, State.UNINITIALIZED, State.INITIALIZING)
        await self._in_time(lambda: self._initialise(keep_prepared=keep_prepared))
        prepared = self.state.prepared
        self.state.enter(State.PREPARED if prepared else State.READY, State.INITIALIZING)
        return prepared

    async def _initialise(
        self, producer_id: int = -1, epoch: int = -1, *, keep_prepared: bool = False
    ) -> None:
        two_phase = self._settings.transaction_two_phase_commit_enable
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep_prepared,
        )
        version = _TWO_PHASE_INIT if two_phase or keep_prepared else None
        answer = await self._ask(
            self._coordinator, request, lambda answer: answer.error_code, max_version=version
        )
        if answer.ongoing_txn_producer_id >= 0:
            self.state.prepared = PreparedTransaction(
                answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
            )
        self._sender.use_producer(answer.producer_id, answer.producer_epoch)
        level = self._client.feature_level(self._coordinator.node_id, PURPOSE, _FEATURE)
        self.state.bumps_epoch = level >= _EPOCH_BUMP_VERSION
        self.state.needs_bump = False

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit a consumer's offsets as part of the transaction."""
        self.state.check_send()
        if not offsets:
            return
        await self._in_time(lambda: self._send_offsets(offsets, group))

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        if not self.state.bumps_epoch:
            added = AddOffsetsToTxnRequest(**self._producer(), group_id=group.group_id)
            self._unsettled = added
            await self._ask_to_add(added)
        self.state.has_offsets = True
        request = TxnOffsetCommitRequest(
            **self._producer(),
            group_id=group.group_id,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=_by_topic(offsets),
        )
        coordinator = CoordinatorLookup(self._client, group.group_id, GROUP)
        version = None if self.state.bumps_epoch else _OLD_OFFSETS
        await self._ask(coordinator, request, _worst_code, max_version=version)

    async def prepare(self, flush: Callable[[], Coroutine[Any, Any, None]]) -> PreparedTransaction:
        """Flush; only the decision is left, which this producer or the next one may carry out."""
        if not self._settings.transaction_two_phase_commit_enable:
            raise IllegalStateError(
                "Cannot prepare a transaction when 2PC is not enabled: set "
                "transaction.two.phase.commit.enable=true"
            )
        self.state.check_send()
        await self._in_time(flush)
        self.state.check()
        self.state.enter(State.PREPARED, State.IN_TRANSACTION)
        prepared = PreparedTransaction(self._sender.producer_id, self._sender.producer_epoch)
        if not self.state.is_empty:
            self.state.prepared = prepared
        return prepared

    async def complete(
        self, decided: PreparedTransaction, flush: Callable[[], Coroutine[Any, Any, None]]
    ) -> bool:
        """Commit the prepared transaction if it is the one that was decided on, else abort it.

        Returns whether it was committed; nothing happens where nothing is open.
        """
        if self.state.state is State.READY:
            return False
        if self.state.prepared == decided:
            await self.commit(flush)
            return True
        await self.abort(flush)
        return False

    async def commit(self, flush: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Flush, then commit; raises the error that a record failed with."""
        self.state.enter(State.COMMITTING, State.IN_TRANSACTION, State.PREPARED, State.COMMITTING)

        async def finish() -> None:
            await flush()
            self.state.check()
            await self._end(committed=True)

        await self._in_time(finish, "; the commit is pending: repeat commit_transaction()")
        self.state.prepared = None
        self.state.enter(State.READY, State.COMMITTING)

    async def abort(self, flush: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Abort: records that were not sent fail, those that were are never read as committed."""
        self.state.enter(
            State.ABORTING,
            State.IN_TRANSACTION,
            State.PREPARED,
            State.ABORTABLE_ERROR,
            State.ABORTING,
        )

        async def finish() -> None:
            await flush()
            await self._end(committed=False)
            if self.state.needs_bump and not self.state.bumps_epoch:
                await self._initialise(self._sender.producer_id, self._sender.producer_epoch)

        await self._in_time(finish)
        self.state.prepared = None
        self.state.enter(State.READY, State.ABORTING)

    async def _settle(self) -> None:
        """Repeat a request with an unknown outcome, which may have begun a transaction."""
        while self._is_adding:
            await self._runtime.wait_progress(self._settings.retry_backoff_ms)
        request = self._unsettled
        if request is not None and self.state.is_empty:
            await self._ask_to_add(request)
            self.state.has_begun = True

    async def _ask_to_add(
        self, request: AddPartitionsToTxnRequest | AddOffsetsToTxnRequest
    ) -> None:
        """Add a partition or a group; only after a timeout the outcome is unknown."""
        version = _LAST_CLIENT_ADD if isinstance(request, AddPartitionsToTxnRequest) else None
        try:
            await self._ask(self._coordinator, request, _code_of_addition, max_version=version)
        except Exception:
            self._unsettled = None
            raise
        self._unsettled = None

    async def _end(self, *, committed: bool) -> None:
        await self._settle()
        if self.state.is_empty:
            return
        request = EndTxnRequest(**self._producer(), committed=committed)
        version = None if self.state.bumps_epoch else _OLD_END
        answer = await self._ask(
            self._coordinator, request, lambda answer: answer.error_code, max_version=version
        )
        if answer.producer_id >= 0:
            self._sender.use_producer(answer.producer_id, answer.producer_epoch)
            self.state.needs_bump = False

    def _producer(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self._sender.producer_id,
            "producer_epoch": self._sender.producer_epoch,
        }

    # ------------------------------------------------------------ requests

    async def _in_time(
        self, work: Callable[[], Coroutine[Any, Any, None]], advice: str = ""
    ) -> None:
        """Do the work within max.block.ms; the call may be repeated after a TimeoutError."""
        limit_ms = self._settings.max_block_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await work()
        except builtins.TimeoutError:
            text = f"the transaction's request was not answered within {limit_ms} ms (max.block.ms)"
            raise self._client.timeout_error(text + advice) from None

    async def _ask(
        self,
        coordinator: CoordinatorLookup,
        request: Request,
        code_of: Callable[[Any], int],
        *,
        max_version: int | None = None,
    ) -> Any:
        """Return a response without an error; errors that are not retriable end the transaction."""
        call = CoordinatorCall(
            coordinator, request, code_of, purpose=PURPOSE, max_version=max_version
        )
        try:
            return await self._runtime.run(call)
        except KafkaError as failure:
            error = _named(failure)
            self.state.fail(error)
            self.state.check()
            raise error from None


def _named(error: KafkaError) -> KafkaError:
    """Return the error that applications know: a fenced producer has one code (KIP-588)."""
    return KafkaError(ErrorCode.PRODUCER_FENCED) if error.code in _FENCED else error


def _worst_code(answer: Any) -> int:
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    return next((code for code in codes if code), 0)


def _code_of_addition(answer: Any) -> int:
    """Return the code of AddOffsetsToTxn, or that of AddPartitionsToTxn for its only partition."""
    topics = getattr(answer, "results_by_topic_v3_and_below", None)
    if topics is None:
        code: int = answer.error_code
    else:
        code = topics[0].results_by_partition[0].partition_error_code
    return code


def _by_topic(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[_Offsets]:
    topics: dict[str, _Offsets] = {}
    for partition, one in offsets.items():
        topic = topics.setdefault(partition.topic, _Offsets(name=partition.topic, partitions=[]))
        topic.partitions.append(
            _Offsets.TxnOffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=one.offset,
                committed_leader_epoch=-1 if one.leader_epoch is None else one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    return list(topics.values())
