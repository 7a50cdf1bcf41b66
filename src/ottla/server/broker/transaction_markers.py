"""Writes the markers of a transaction coordinator to the partitions that this broker leads.

A marker is acknowledged at the high watermark. In a partition of `__consumer_offsets` the group
coordinator writes it, since it ends the pending offsets of the transaction.

Kafka: KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.coordinator.runtime import EndTransaction
from ottla.coordinator.runtime.answers import gather, recover
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.purgatory.pending import Pending
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.replication.partition import ACKS_ALL
from ottla.storage.producers.append import TransactionAppend
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clock import Clock
    from ottla.purgatory.expiries import Expiries
    from ottla.replication.replica_set import ReplicaSet

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = _Result.WritableTxnMarkerTopicResult
_PartitionResult = _TopicResult.WritableTxnMarkerPartitionResult


class Participant(Protocol):
    """A coordinator whose records take part in transactions."""

    def end_transaction(self, partition: int, end: EndTransaction) -> Pending[None]:
        """Write the marker into one partition of its topic."""


class _Acknowledgement(Pending[ErrorCode]):
    """Waits until the other replicas have a marker."""

    __slots__ = ("deadline_ms", "is_over")

    def __init__(self, deadline_ms: int) -> None:
        super().__init__()
        self.deadline_ms = deadline_ms
        self.is_over = False

    def acknowledged(self, _position: int, code: ErrorCode) -> None:
        """Take the result."""
        self.is_over = True
        self.complete(code)

    def expire(self) -> None:
        """End the wait: the coordinator sends the marker again."""
        self.acknowledged(0, ErrorCode.REQUEST_TIMED_OUT)


class MarkerWriter:
    """Answers WriteTxnMarkers, from other brokers and from this one."""

    def __init__(
        self,
        replicas: ReplicaSet,
        participants: Mapping[str, Participant],
        expiries: Expiries,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        """Participants are the coordinators by the internal topics they write to."""
        self._replicas = replicas
        self._participants = participants
        self._expiries = expiries
        self._clock = clock
        self._timeout_ms = timeout_ms

    def write(self, request: WriteTxnMarkersRequest) -> Pending[WriteTxnMarkersResponse]:
        """Write all markers of a request; done when each is acknowledged or refused.

        A marker without partitions is left out of the answer, as by Kafka.
        """
        return gather(
            [self._write_marker(marker) for marker in request.markers],
            lambda parts: WriteTxnMarkersResponse(
                markers=[part.value for part in parts if part.value.topics]
            ),
        )

    def _write_marker(self, marker: _Marker) -> Pending[_Result]:
        end = EndTransaction(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        names = [
            TopicPartition(topic.name, index)
            for topic in marker.topics
            for index in topic.partition_indexes
        ]

        def combine(parts: list[Pending[ErrorCode]]) -> _Result:
            topics: dict[str, _TopicResult] = {}
            for (topic, index), part in zip(names, parts, strict=True):
                result = topics.setdefault(topic, _TopicResult(name=topic, partitions=[]))
                code = int(part.value)
                result.partitions.append(_PartitionResult(partition_index=index, error_code=code))
            return _Result(producer_id=marker.producer_id, topics=list(topics.values()))

        return gather([self._write(name, end) for name in names], combine)

    def _write(self, name: TopicPartition, end: EndTransaction) -> Pending[ErrorCode]:
        participant = self._participants.get(name.topic)
        if participant is None:
            return self._append(name, end)
        if self._replicas.find(*name) is None:
            return Pending.of(self._replicas.why_missing(*name))
        written = participant.end_transaction(name.partition, end)
        return recover(written.then(lambda _: ErrorCode.NONE), _code_of)

    def _append(self, name: TopicPartition, end: EndTransaction) -> Pending[ErrorCode]:
        partition, now_ms = self._replicas.find(*name), self._clock.now_ms()
        if partition is None:
            return Pending.of(self._replicas.why_missing(*name))
        batch = encode_end_txn_marker(
            commit=end.committed,
            coordinator_epoch=end.coordinator_epoch,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            timestamp=now_ms,
            leader_epoch=partition.leader_epoch,
        )
        try:
            appended = self._replicas.append(
                partition,
                memoryview(batch),
                ACKS_ALL,
                now_ms,
                AppendOrigin.COORDINATOR,
                transaction=TransactionAppend(version=end.transaction_version),
            )
        except KafkaError as error:
            return Pending.of(error.code)
        if appended.leading is None:
            return Pending.of(ErrorCode.NONE)
        wait = _Acknowledgement(self._clock.monotonic_ms() + self._timeout_ms)
        appended.leading.acknowledge(appended.info.last_offset + 1, wait, 0)
        if not wait.is_over:
            self._expiries.add(self._timeout_ms, wait)
        return wait


def _code_of(error: Exception) -> ErrorCode:
    """Return what the other coordinator tries again on: as for a partition led elsewhere."""
    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code
