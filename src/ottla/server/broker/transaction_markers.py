"""Writes the markers of a transaction coordinator to the partitions that this broker leads.

A marker is acknowledged at the high watermark. In a partition of `__consumer_offsets` the group
coordinator writes it, since it ends the pending offsets of the transaction.

Kafka: KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.coordinator.runtime import EndTransaction
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.purgatory.pending import Pending, Steps
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.replication.partition import ACKS_ALL
from ottla.storage.producers.append import EndTransactionMarker, TransactionAppend
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.purgatory.expiries import Expiries
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.work import Work
    from ottla.replication.leader_state import LeaderState
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import Appended, ReplicaSet

    _Awaited = tuple["_PartitionResult", LeaderState, int]

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = _Result.WritableTxnMarkerTopicResult
_PartitionResult = _TopicResult.WritableTxnMarkerPartitionResult
PARTITIONS_AT_ONCE: Final = 16
"""Partitions that are written between two yields, at some 50 µs each; they share one wait."""


class TransactionParticipant(Protocol):
    """A coordinator whose records take part in transactions."""

    def end_transaction(self, partition: int, end: EndTransaction) -> Pending[None]:
        """Write the marker into one partition of its topic."""


class _EncodedMarker(NamedTuple):
    """A marker as it is appended to each of its partitions."""

    batch: bytearray
    now_ms: int
    transaction: TransactionAppend


class _Writing(NamedTuple):
    """One request while its markers are written."""

    answer: Steps[WriteTxnMarkersResponse]
    awaited: list[_Awaited]
    """What was written in this turn and is not acknowledged."""


class _Acknowledgements(Pending[None]):
    """Waits until the other replicas have the markers of one request."""

    __slots__ = ("_waiting", "deadline_ms", "is_over")

    def __init__(self, deadline_ms: int) -> None:
        super().__init__()
        self._waiting: dict[int, tuple[_PartitionResult, LeaderState]] = {}
        """The missing results, by the positions passed to `LeaderState.acknowledge`."""
        self.deadline_ms = deadline_ms
        self.is_over = False

    def begin(self, awaited: list[_Awaited]) -> None:
        """Wait for results, each with its leader's state and the offset after the marker."""
        self._waiting = {
            position: (result, leading) for position, (result, leading, _) in enumerate(awaited)
        }
        for position, (_, leading, required_offset) in enumerate(awaited):
            leading.acknowledge(required_offset, self, position)

    def acknowledged(self, position: int, code: ErrorCode) -> None:
        """Set the result of one partition."""
        waiting = self._waiting.pop(position, None)
        if waiting is None:
            return  # after the timeout
        waiting[0].error_code = int(code)
        if not self._waiting:
            self.is_over = True
            self.complete(None)

    def expire(self) -> None:
        """End the wait with REQUEST_TIMED_OUT: the coordinator repeats the missing markers."""
        self.is_over = True
        waiting, self._waiting = self._waiting, {}
        for result, leading in waiting.values():
            result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
            leading.acknowledgements.forget_expired()
        self.complete(None)


class MarkerWriter:
    """Answers WriteTxnMarkers, from other brokers and from this one."""

    def __init__(
        self,
        replicas: ReplicaSet,
        loop: Loop,
        participants: Mapping[str, TransactionParticipant],
        expiries: Expiries,
        *,
        timeout_ms: int,
    ) -> None:
        """Participants are the coordinators by the internal topics they write to."""
        self._replicas = replicas
        self._worker = loop.worker
        self._participants = participants
        self._expiries = expiries
        self._clock = loop.clock
        self._timeout_ms = timeout_ms

    def write(self, request: WriteTxnMarkersRequest) -> Pending[WriteTxnMarkersResponse]:
        """Write all markers of a request; done when each is acknowledged or refused.

        A marker without partitions is left out of the response, as in Kafka. A request with many
        partitions, as Kafka's coordinators send it, takes several turns of the loop.
        """
        response = WriteTxnMarkersResponse(markers=[])
        answer: Steps[WriteTxnMarkersResponse] = Steps(lambda: response)

        def fail(done: Pending[None]) -> None:
            if done.error is not None:
                answer.fail(done.error)

        written = self._worker.run(self._write_all(request, response, _Writing(answer, [])))
        written.on_done(fail)
        answer.add(written)
        return answer.begin()

    def write_own(
        self, end: EndTransaction, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Write markers that are committed at once; return the partitions that need a request.

        These have other replicas, a flush to wait for, a coordinator that writes the marker, or
        refuse it.
        """
        replicas, rest = self._replicas, []
        encoded = _encoded(end, self._clock.now_ms())
        for at in partitions:
            partition = replicas.find(*at)
            if (
                partition is None
                or partition.leading is not None
                or at.topic in self._participants
                or replicas.overdue_flushes
                or (
                    partition.log.log_end_offset + 1 - partition.log.recovery_point
                    >= partition.log.config.flush_messages
                )
            ):
                rest.append(at)
                continue
            try:
                self._append(partition, encoded)
            except KafkaError:
                rest.append(at)
        return rest

    def _write_all(
        self,
        request: WriteTxnMarkersRequest,
        response: WriteTxnMarkersResponse,
        writing: _Writing,
    ) -> Work[None]:
        for number, _ in enumerate(self._write_each(request, response, writing), 1):
            if number % PARTITIONS_AT_ONCE == 0:
                self._await_acknowledgements(writing)
                yield
        self._await_acknowledgements(writing)

    def _await_acknowledgements(self, writing: _Writing) -> None:
        if not writing.awaited:
            return
        acknowledgements = _Acknowledgements(self._clock.monotonic_ms() + self._timeout_ms)
        acknowledgements.begin(writing.awaited)
        writing.awaited.clear()
        if not acknowledgements.is_over:
            self._expiries.add(self._timeout_ms, acknowledgements)
            writing.answer.add(acknowledgements)

    def _write_each(
        self,
        request: WriteTxnMarkersRequest,
        response: WriteTxnMarkersResponse,
        writing: _Writing,
    ) -> Iterator[None]:
        """Write to one partition between two yields."""
        for marker in request.markers:
            topics: dict[str, _TopicResult] = {}
            end = EndTransaction(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                marker.transaction_version,
            )
            encoded = _encoded(end, self._clock.now_ms())
            for topic in marker.topics:
                name = topic.name
                result = topics.get(name)
                if result is None:
                    result = topics[name] = _TopicResult(name=name, partitions=[])
                for index in topic.partition_indexes:
                    one = _PartitionResult(partition_index=index, error_code=0)
                    result.partitions.append(one)
                    self._write_one(TopicPartition(name, index), (end, encoded), one, writing)
                    yield
            if topics:
                response.markers.append(
                    _Result(producer_id=marker.producer_id, topics=list(topics.values()))
                )

    def _write_one(
        self,
        at: TopicPartition,
        marker: tuple[EndTransaction, _EncodedMarker],
        result: _PartitionResult,
        writing: _Writing,
    ) -> None:
        end, encoded = marker
        partition = self._replicas.find(*at)
        participant = self._participants.get(at.topic)
        if partition is None:
            result.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif participant is None:
            # append the marker; note what acknowledges it
            try:
                info, leading = self._append(partition, encoded)
            except KafkaError as error:
                result.error_code = int(error.code)
            else:
                if leading is not None:
                    writing.awaited.append((result, leading, info.last_offset + 1))
            if self._replicas.overdue_flushes:
                # an acknowledged marker that is lost is not repeated
                for wait in self._replicas.logs.flushes.wait_for_overdue().values():
                    writing.answer.add(_taken(wait, result))
        else:
            writing.answer.add(_taken(participant.end_transaction(at.partition, end), result))

    def _append(self, partition: Partition, marker: _EncodedMarker) -> Appended:
        """Append a copy of the marker, which gets an offset."""
        return self._replicas.append(
            partition,
            memoryview(bytearray(marker.batch)),
            ACKS_ALL,
            marker.now_ms,
            AppendOrigin.COORDINATOR,
            transaction=marker.transaction,
        )


def _encoded(end: EndTransaction, now_ms: int) -> _EncodedMarker:
    batch = encode_end_txn_marker(
        commit=end.committed,
        coordinator_epoch=end.coordinator_epoch,
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        timestamp=now_ms,
    )
    marker = EndTransactionMarker(not end.committed, end.coordinator_epoch)
    return _EncodedMarker(batch, now_ms, TransactionAppend(None, end.transaction_version, marker))


def _taken(step: Pending[None], result: _PartitionResult) -> Pending[None]:
    """Return the step once its error is in the result."""

    def take(done: Pending[None]) -> None:
        if done.error is not None:
            result.error_code = int(_code_of(done.error))

    step.on_done(take)
    return step


def _code_of(error: Exception) -> ErrorCode:
    """Return a code that the other coordinator retries, as for a partition led elsewhere."""
    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code
