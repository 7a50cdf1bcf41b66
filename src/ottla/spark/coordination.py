"""Requests to the coordinators of transactions and groups, from Spark's processes.

Each request is retried after a retriable error, until the API timeout.

Kafka: org.apache.kafka.clients.producer.internals.TransactionManager, KafkaAdminClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.clients.cluster_reader import is_retriable
from ottla.clients.coordinator import GROUP, TRANSACTION, CoordinatorCall, CoordinatorLookup
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.apis.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.apis.end_txn import EndTxnRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.list_transactions import ListTransactionsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.clients.cluster_reader import ClusterReader
    from ottla.protocol.apis.describe_transactions import DescribeTransactionsResponse
    from ottla.protocol.apis.init_producer_id import InitProducerIdResponse
    from ottla.protocol.schema import Request
    from ottla.spark.decision import Participant

PURPOSE: Final = "transaction"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
NEVER_BEGUN_MS: Final = 60_000
"""The timeout of a producer whose transaction never begins."""
_TWO_PHASE_VERSION: Final = 6
_EPOCH_BUMP_VERSION: Final = 2
_OLD_END, _OLD_OFFSETS = 4, 4
"""The last versions of producers without an epoch for each transaction."""
_NAMES_ONLY: Final = 9
"""The last version of OffsetFetch and OffsetCommit that names topics."""
_WITHOUT_TWO_PHASES: Final = frozenset(
    {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)
"""What brokers answer that do not know, or do not allow, transactions without a timeout."""


class CoordinatorAnswer(Protocol):
    """A response with one code."""

    error_code: int


class TaskProducer(NamedTuple):
    """A producer id and epoch, and how its transactions go on."""

    producer_id: int
    producer_epoch: int
    bumps_epoch: bool
    """Whether each transaction has an epoch of its own (`transaction.version` 2)."""
    is_two_phase: bool = False


class Mark(NamedTuple):
    """A transactional id whose next epoch says that tasks that begin from then on are too late.

    A task looks at it once it has its own producer and before it writes, so that whoever ends a
    batch, and then aborts what is open or initialized, leaves nothing that begins after it.
    """

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1
    """-1 while the id has never had a producer."""


class Committed(NamedTuple):
    """A group's offset in one partition."""

    offset: int
    metadata: str


class _Led(NamedTuple):
    """The partitions of the transaction coordinators that a broker leads, with their epochs."""

    led: dict[int, int]
    total: int
    """Of all partitions."""


class Coordination:
    """The coordinators that one cluster reader has found."""

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._known: dict[tuple[int, str], CoordinatorLookup] = {}

    # ------------------------------------------------------------ transactions

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        two_phase: bool = False,
        current: TaskProducer | None = None,
    ) -> TaskProducer:
        """Get the next epoch of an id: producers before are fenced, their transaction is aborted.

        Two-phase transactions, which never time out, where the broker has them. With the `current`
        producer the next epoch is only given to that one (KIP-360); it may be fenced instead.
        """
        coordinator = self._coordinator(TRANSACTION, transactional_id)
        fields: dict[str, Any] = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
        }
        if current is not None:
            fields["producer_id"], fields["producer_epoch"] = current[:2]
        if two_phase:
            try:
                request = InitProducerIdRequest(**fields, enable2_pc=True)
                return self._init(coordinator, request)
            except KafkaError as error:
                if error.code not in _WITHOUT_TWO_PHASES:
                    raise
        return self._init(coordinator, InitProducerIdRequest(**fields))

    def _init(self, coordinator: CoordinatorLookup, request: InitProducerIdRequest) -> TaskProducer:
        version = _TWO_PHASE_VERSION if request.enable2_pc else None
        answer = self._request(coordinator, request, _code, max_version=version)
        return self._producer(coordinator, answer)._replace(is_two_phase=request.enable2_pc)

    def _producer(
        self, coordinator: CoordinatorLookup, answer: InitProducerIdResponse
    ) -> TaskProducer:
        level = self._client.feature_level(coordinator.node_id, PURPOSE, "transaction.version")
        bumps_epoch = level >= _EPOCH_BUMP_VERSION
        return TaskProducer(answer.producer_id, answer.producer_epoch, bumps_epoch)

    def end(self, one: Participant, *, committed: bool) -> None:
        """End a transaction; a retry of one that is ended has the same answer."""
        (error,) = self.end_all([one], committed=committed)
        if error is not None:
            raise error

    def end_all(self, ones: Iterable[Participant], *, committed: bool) -> list[KafkaError | None]:
        """End transactions, with all requests sent at once; return the error of each, or None."""
        errors: list[KafkaError | None] = []
        for call in [self._end(participant, committed=committed) for participant in ones]:
            try:
                self._answers([call])
                errors.append(None)
            except KafkaError as error:
                errors.append(error)
        return errors

    def _end(self, one: Participant, *, committed: bool) -> CoordinatorCall:
        request = EndTxnRequest(
            transactional_id=one.transactional_id,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            committed=committed,
        )
        coordinator = self._coordinator(TRANSACTION, one.transactional_id)
        return self._start(coordinator, request, _code, None if one.bumps_epoch else _OLD_END)

    def wait_until_complete(self, one: Participant) -> None:
        """Wait for the markers of an ended transaction: its records are visible from then on."""
        name = one.transactional_id
        coordinator = self._coordinator(TRANSACTION, name)
        request = DescribeTransactionsRequest(transactional_ids=[name])
        self._request(coordinator, request, _completion_code)

    def current(self, names: Iterable[str]) -> list[Mark]:
        """Return the producer ids and epochs that some ids have."""
        answers = self._answers([self._describe(name) for name in names])
        return [_mark(answer.transaction_states[0]) for answer in answers]

    def not_open(self, participants: Iterable[Participant]) -> list[Participant]:
        """Return those whose transaction is not under way, or is another producer's by now."""
        ones = list(participants)
        answers = self._answers(
            [self._describe(participant.transactional_id) for participant in ones]
        )
        states = [answer.transaction_states[0] for answer in answers]
        return [
            one
            for one, state in zip(ones, states, strict=True)
            if state.error_code
            or state.transaction_state != "Ongoing"
            or (state.producer_id, state.producer_epoch) != one[1:3]
        ]

    def _describe(self, name: str) -> CoordinatorCall:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        return self._start(self._coordinator(TRANSACTION, name), request, _code_unless_unknown)

    def open_transactions(self, prefix: str, *, with_initialized: bool = False) -> list[str]:
        """Return the ids with this prefix whose transaction is open, of all brokers.

        With those, if asked for, that have a producer that has written nothing. Each broker lists
        the ids that it coordinates: those of a coordinator that moves meanwhile may be in no
        broker's list, and a two-phase transaction that is missed here has no timeout. So the lists
        count only where brokers that led all partitions before and after they answered are among
        them. After an error all are asked again, by new metadata: a broker that has failed is no
        longer in it, and one that has come is.
        """
        states = ["Ongoing", "Empty"] if with_initialized else ["Ongoing"]
        request = ListTransactionsRequest(state_filters=states, producer_id_filters=[])

        def attempt(deadline_ms: float) -> list[str]:
            found: set[str] = set()
            led: set[int] = set()
            count, node_ids = 0, list(self._client.metadata.brokers)
            for number, node_id in enumerate((*node_ids, *node_ids)):
                if count and number >= len(node_ids):
                    break  # the second round is for those who may not know who leads
                before = self._coordinators_of(node_id, deadline_ms)
                listed = self._request_of_node(node_id, request, deadline_ms).transaction_states
                after = self._coordinators_of(node_id, deadline_ms)
                found.update(one.transactional_id for one in listed)
                led.update(dict(before.led.items() & after.led.items()))
                count = max(count, before.total, after.total)
            if len(led) < count or not node_ids:
                self._client.metadata.mark_stale()
                text = "a coordinator of transactions moved while its transactions were listed"
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
            return sorted(one for one in found if one.startswith(prefix))

        return self._cluster.retry(attempt)

    def _coordinators_of(self, node_id: int, deadline_ms: float) -> _Led:
        """Return the coordinators on a broker, by its own metadata.

        There are none without the right to describe their topic, which queries need not have: all
        brokers are asked twice then, so that a coordinator that moves in between is in one list.
        """
        topic = MetadataRequest.MetadataRequestTopic(name=TRANSACTION_STATE_TOPIC)
        request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        (found,) = self._request_of_node(node_id, request, deadline_ms).topics
        return _Led(
            {
                partition.partition_index: partition.leader_epoch
                for partition in found.partitions
                if partition.leader_id == node_id
            },
            len(found.partitions),
        )

    def advance(self, names: Iterable[str], timeout_ms: int = NEVER_BEGUN_MS) -> list[TaskProducer]:
        """Get the next epoch of several ids, with all requests sent at once.

        As `init_producer`: what is open is aborted, and who has written nothing yet is fenced.
        """
        calls = [self._advance(name, timeout_ms) for name in names]
        answers = self._answers(calls)
        return [
            self._producer(call.coordinator, answer)
            for call, answer in zip(calls, answers, strict=True)
        ]

    def end_attempts(self, mark_id: str, prefix: str) -> None:
        """Abort what attempts of tasks that were killed have open: readers would wait for it.

        Those that begin later find that the mark has moved, and write nothing.
        """
        self.advance([mark_id])
        self.advance(self.open_transactions(prefix, with_initialized=True))

    def _advance(self, name: str, timeout_ms: int) -> CoordinatorCall:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        return self._start(self._coordinator(TRANSACTION, name), request, _code)

    # ------------------------------------------------------------ groups

    def committed(
        self, group_id: str, *, is_stable: bool = True
    ) -> dict[TopicPartition, Committed]:
        """Return all offsets of a group; if stable, once no transaction with some of them is open.

        A driver that was killed leaves such a transaction, which the next epoch of its id ends.
        """
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)
        request = OffsetFetchRequest(groups=[group], require_stable=is_stable)
        coordinator = self._coordinator(GROUP, group_id)
        answer = self._request(coordinator, request, _fetch_code, max_version=_NAMES_ONLY)
        return {
            TopicPartition(topic.name, partition.partition_index): Committed(
                partition.committed_offset, partition.metadata or ""
            )
            for topic in answer.groups[0].topics
            for partition in topic.partitions
            if partition.committed_offset >= 0
        }

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets for a group without members."""
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=_by_topic(offsets, OffsetCommitRequest.OffsetCommitRequestTopic),
        )
        coordinator = self._coordinator(GROUP, group_id)
        self._request(coordinator, request, _offsets_code, max_version=_NAMES_ONLY)

    def add_offsets(
        self,
        transactional_id: str,
        producer: TaskProducer,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
    ) -> None:
        """Make offsets of a group part of a transaction."""
        identity: dict[str, Any] = {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "group_id": group_id,
        }
        if not producer.bumps_epoch:
            coordinator = self._coordinator(TRANSACTION, transactional_id)
            self._request(coordinator, AddOffsetsToTxnRequest(**identity), _code)
        request = TxnOffsetCommitRequest(
            **identity,
            topics=_by_topic(offsets, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic),
        )
        version = None if producer.bumps_epoch else _OLD_OFFSETS
        self._request(
            self._coordinator(GROUP, group_id), request, _offsets_code, max_version=version
        )

    # ------------------------------------------------------------ requests

    def look_up(self, transactional_ids: Iterable[str], group_id: str | None = None) -> None:
        """Find coordinators that are soon asked, all at once, while the next request waits."""
        for transactional_id in transactional_ids:
            self._coordinator(TRANSACTION, transactional_id)
        if group_id is not None:
            self._coordinator(GROUP, group_id)

    def _coordinator(self, key_type: int, key: str) -> CoordinatorLookup:
        """Return a key's coordinator, whose node is looked up with the first request."""
        known = self._known.get((key_type, key))
        if known is None:
            known = self._known[key_type, key] = CoordinatorLookup(self._client, key, key_type)
            self._client.register(known)
        return known

    def _start(
        self,
        coordinator: CoordinatorLookup,
        request: Request,
        error_of: Callable[[Any], int],
        max_version: int | None = None,
    ) -> CoordinatorCall:
        """Send a request as soon as its coordinator is known; all that are started are in work."""
        call = CoordinatorCall(
            coordinator,
            request,
            error_of,
            deadline_ms=self._cluster.deadline_ms(),
            is_retried=is_retriable,
            purpose=PURPOSE,
            max_version=max_version,
        )
        self._client.start(call)
        return call

    def _request(
        self,
        coordinator: CoordinatorLookup,
        request: Request,
        error_of: Callable[[Any], int],
        max_version: int | None = None,
    ) -> Any:
        (answer,) = self._answers([self._start(coordinator, request, error_of, max_version)])
        return answer

    def _answers(self, calls: list[CoordinatorCall]) -> list[Any]:
        """Return the responses; after an error the other calls are not repeated."""
        try:
            return [self._cluster.runtime.wait_for(call.result) for call in calls]
        finally:
            for call in calls:
                self._client.stop(call)

    def _request_of_node(self, node_id: int, request: Request, deadline_ms: float) -> Any:
        """Send a request once: a node that has failed is not waited for."""
        sent = self._client.send(node_id, request, purpose=PURPOSE)
        answer = self._cluster.runtime.wait_for(sent, deadline_ms)
        if answer.error_code:
            raise KafkaError(answer.error_code)
        return answer


def _code(answer: CoordinatorAnswer) -> int:
    return answer.error_code


def _completion_code(answer: Any) -> int:
    """Return CONCURRENT_TRANSACTIONS, which is retried, until the markers are written."""
    found = answer.transaction_states[0]
    is_ending = found.transaction_state in ("PrepareCommit", "PrepareAbort")
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_ending else found.error_code


def _code_unless_unknown(answer: Any) -> int:
    code = answer.transaction_states[0].error_code
    return 0 if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND else code


def _mark(found: DescribeTransactionsResponse.TransactionState) -> Mark:
    if found.error_code:
        return Mark(found.transactional_id)
    return Mark(found.transactional_id, found.producer_id, found.producer_epoch)


def _fetch_code(answer: Any) -> int:
    group = answer.groups[0]
    codes = [partition.error_code for topic in group.topics for partition in topic.partitions]
    return next((code for code in (group.error_code, *codes) if code), 0)


def _offsets_code(answer: Any) -> int:
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    return next((code for code in codes if code), 0)


def _by_topic(offsets: Mapping[TopicPartition, Committed], kind: Any) -> list[Any]:
    """Return offsets in the form of a request: `kind` is its message of a topic."""
    partition_kind = getattr(kind, kind.__name__.replace("Topic", "Partition"))
    topics: dict[str, Any] = {}
    for partition, one in offsets.items():
        topic = topics.setdefault(partition.topic, kind(name=partition.topic, partitions=[]))
        topic.partitions.append(
            partition_kind(
                partition_index=partition.partition,
                committed_offset=one.offset,
                committed_metadata=one.metadata,
            )
        )
    return list(topics.values())
