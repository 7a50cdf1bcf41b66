"""Sends the markers of decided transactions to the leaders of their partitions until all have them.

Each broker gets one request at a time; what is decided meanwhile goes with the next one. Partitions
without a leader, and those that refuse for now, are tried again.

Kafka: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from ottla.coordinator.runtime.shard import EndTransaction
from ottla.coordinator.transaction.state import Transaction, TransactionState
from ottla.errors import ErrorCode
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.purgatory.pending import Pending
from ottla.purgatory.work import NEXT_TURN
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ottla.purgatory.loop import Loop
    from ottla.purgatory.timing_wheel import TimerTask
    from ottla.purgatory.work import Work

log = logging.getLogger("ottla.transactions")
RETRY_MS: Final = 100
NO_LEADER: Final = -1
PARTITIONS_IN_A_REQUEST: Final = 64
"""Each is an append for the leader, and most often another for the coordinator: some 100 µs."""
_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class MarkerChannel(Protocol):
    """The way to the leaders of partitions."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the broker that leads a partition, NO_LEADER, or None without such a partition."""

    def write_own_markers(
        self, broker_id: int, end: EndTransaction, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Write markers that are committed at once; return the partitions that need a request."""

    def send_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> Pending[WriteTxnMarkersResponse]:
        """Send a request to a broker; fails with KafkaError when there is no answer."""


class Sending:
    """One decided transaction and the partitions that have no marker yet."""

    __slots__ = ("coordinator_epoch", "remaining", "shard", "transaction")

    def __init__(self, shard: int, coordinator_epoch: int, transaction: Transaction) -> None:
        self.shard = shard
        self.coordinator_epoch = coordinator_epoch
        self.transaction = transaction
        self.remaining = set(transaction.partitions)

    @property
    def end(self) -> EndTransaction:
        """The decision, as this broker writes it."""
        transaction = self.transaction
        return EndTransaction(
            transaction.producer_id,
            transaction.producer_epoch,
            self.coordinator_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            transaction.client_version,
        )

    def marker(self, partitions: Iterable[TopicPartition]) -> _Marker:
        """Return the marker for some of the partitions."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        return _Marker(
            producer_id=self.transaction.producer_id,
            producer_epoch=self.transaction.producer_epoch,
            transaction_result=self.transaction.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.transaction.client_version,
            topics=[
                _Marker.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )


class Markers:
    """The decided transactions of all shards that this node leads."""

    def __init__(
        self,
        channel: MarkerChannel,
        loop: Loop,
        on_written: Callable[[Sending], None],
    ) -> None:
        """on_written(sending) completes a transaction all of whose markers are written."""
        self._channel = channel
        self._timer = loop.timer
        self._clock = loop.clock
        self._worker = loop.worker
        self._on_written = on_written
        self._sendings: dict[int, dict[str, Sending]] = {}
        """By shard, then by transactional id."""
        self._queues: dict[int, deque[tuple[Sending, list[TopicPartition]]]] = {}
        """By broker: what is to be sent next."""
        self._in_flight: dict[int, dict[Sending, list[TopicPartition]]] = {}
        """By broker: what it has not answered yet."""
        self._retries: dict[TimerTask, tuple[Sending, list[TopicPartition]]] = {}
        self.unknown_destination_count = 0
        """Partitions without a leader, which are tried again."""

    def begin(self, shard: int, coordinator_epoch: int, transaction: Transaction) -> None:
        """Write the markers of a transaction whose decision is committed."""
        sending = Sending(shard, coordinator_epoch, transaction)
        self._sendings.setdefault(shard, {})[transaction.transactional_id] = sending
        self._dispatch(sending, sorted(transaction.partitions))
        self._maybe_written(sending)

    def cancel(self, shard: int) -> None:
        """Forget the transactions of a shard that another node leads now."""
        self._sendings.pop(shard, None)

    def _is_current(self, sending: Sending) -> bool:
        of_shard = self._sendings.get(sending.shard, {})
        return of_shard.get(sending.transaction.transactional_id) is sending

    def _dispatch(self, sending: Sending, partitions: Collection[TopicPartition]) -> None:
        """Queue partitions for their leaders; those of deleted topics need no marker."""
        brokers: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._channel.leader_of(partition)
            if leader is None:
                sending.remaining.discard(partition)
            else:
                brokers.setdefault(leader, []).append(partition)
        unknown = brokers.pop(NO_LEADER, [])
        if unknown:
            self.unknown_destination_count += len(unknown)
            self._retry(sending, unknown, were_unknown=True)
        for broker_id, led in brokers.items():
            queue = self._queues.setdefault(broker_id, deque())
            for start in range(0, len(led), PARTITIONS_IN_A_REQUEST):
                queue.append((sending, led[start : start + PARTITIONS_IN_A_REQUEST]))
        for broker_id in sorted(brokers):
            self._send(broker_id)

    def _retry(
        self, sending: Sending, partitions: list[TopicPartition], *, were_unknown: bool = False
    ) -> None:
        def again(_now_ms: int) -> None:
            del self._retries[task]
            if were_unknown:
                self.unknown_destination_count -= len(partitions)
            if self._is_current(sending):
                self._dispatch(sending, partitions)
                self._maybe_written(sending)

        task = self._timer.add(self._clock.monotonic_ms() + RETRY_MS, again)
        self._retries[task] = sending, partitions

    def _send(self, broker_id: int) -> None:
        """Send what is queued for a broker, unless it has not answered the request before."""
        queue = self._queues.get(broker_id)
        if not queue or broker_id in self._in_flight:
            return
        self._in_flight[broker_id] = {}
        taken = self._in_flight[broker_id] = self._take_from(queue, broker_id)
        try:
            self._write_own(broker_id, taken)
            if not taken:
                del self._in_flight[broker_id]
                self._send_soon(broker_id)
                return
            request = WriteTxnMarkersRequest(
                markers=[sending.marker(partitions) for sending, partitions in taken.items()]
            )
            answer = self._channel.send_markers(broker_id, request)
        except Exception as error:  # noqa: BLE001 - sent again, as what a broker does not answer
            text = (
                "the markers of transactions for broker %d cannot be sent: %r; they are sent again"
            )
            log.warning(text, broker_id, error, extra={"event": "markers.unsent"})
            answer = Pending.failed(error)
        if answer.done:  # this broker's own, without a wait
            self._answered(broker_id, taken, answer)
            self._send_soon(broker_id)
        else:
            answer.on_done(lambda done: self._answered_later(broker_id, taken, done))

    def _write_own(self, broker_id: int, taken: dict[Sending, list[TopicPartition]]) -> None:
        """Write what this broker leads without a request; leave the rest in `taken`."""
        for sending, partitions in list(taken.items()):
            rest = self._channel.write_own_markers(broker_id, sending.end, partitions)
            if rest is partitions:
                continue
            if rest:
                taken[sending] = rest
            else:
                del taken[sending]
            sending.remaining.difference_update(set(partitions).difference(rest))
            self._maybe_written(sending)

    def _send_soon(self, broker_id: int) -> None:
        """Send the rest of a broker's queue in another turn; a work that sends goes on with it."""
        key = self, broker_id
        if self._queues[broker_id] and key not in self._worker:
            self._worker.begin(self._send_current(broker_id), key)

    def _send_current(self, broker_id: int) -> Work[None]:
        """Send, and drop entries of cancelled transactions, until an answer is awaited."""
        queue = self._queues[broker_id]
        while queue and broker_id not in self._in_flight:
            is_current = self._is_current(queue[0][0])
            if is_current:
                self._send(broker_id)
            else:
                queue.popleft()
            yield NEXT_TURN if is_current else None

    def _answered_later(
        self,
        broker_id: int,
        taken: dict[Sending, list[TopicPartition]],
        done: Pending[WriteTxnMarkersResponse],
    ) -> None:
        try:
            self._answered(broker_id, taken, done)
        finally:
            self._send(broker_id)

    def _take_from(
        self, queue: deque[tuple[Sending, list[TopicPartition]]], broker_id: int
    ) -> dict[Sending, list[TopicPartition]]:
        """Return the partitions of the next request, whose leader may be another one by now.

        It ends before an entry of a cancelled transaction: there may be many of them.
        """
        taken: dict[Sending, list[TopicPartition]] = {}
        space = PARTITIONS_IN_A_REQUEST
        while queue and space > 0:
            sending, partitions = queue[0]
            if not self._is_current(sending) or (taken and len(partitions) > space):
                break
            queue.popleft()
            space -= len(partitions)
            moved = [
                partition
                for partition in partitions
                if self._channel.leader_of(partition) != broker_id
            ]
            if moved:
                self._dispatch(sending, moved)
                self._maybe_written(sending)
                partitions = [partition for partition in partitions if partition not in moved]
            if partitions:
                taken.setdefault(sending, []).extend(partitions)
        return taken

    def _answered(
        self,
        broker_id: int,
        taken: dict[Sending, list[TopicPartition]],
        done: Pending[WriteTxnMarkersResponse],
    ) -> None:
        self._in_flight.pop(broker_id, None)
        codes = {} if done.error is not None else _codes(done.value)
        for sending, partitions in taken.items():
            if self._is_current(sending):
                self._take(sending, partitions, codes)

    def _take(
        self,
        sending: Sending,
        partitions: list[TopicPartition],
        codes: dict[tuple[int, TopicPartition], ErrorCode],
    ) -> None:
        """Take a broker's answer; what it does not name, or refuses for now, is sent again."""
        again, producer_id = [], sending.transaction.producer_id
        for partition in partitions:
            code = codes.get((producer_id, partition), ErrorCode.NETWORK_EXCEPTION)
            if code in _DONE:
                sending.remaining.discard(partition)
            elif code in _FENCED:
                self._give_up(sending, partition, code)
                return
            else:
                again.append(partition)
        if again:
            self._retry(sending, again)
        self._maybe_written(sending)

    def _give_up(self, sending: Sending, partition: TopicPartition, code: ErrorCode) -> None:
        """Stop: another coordinator has decided since, or the producer was fenced."""
        name = sending.transaction.transactional_id
        text = "markers of transactional id %s are not sent any more: %s answers %s"
        log.info(text, name, partition, code.name, extra={"event": "transaction.fenced"})
        del self._sendings[sending.shard][name]

    def stalls(self) -> Iterator[str]:
        """Yield decided transactions that lack markers which nothing is to write."""
        awaited: dict[Sending, set[TopicPartition]] = {}
        for sending, partitions in self._awaited():
            awaited.setdefault(sending, set()).update(partitions)
        for of_shard in self._sendings.values():
            for name, sending in of_shard.items():
                if not sending.remaining or sending.remaining - awaited.get(sending, set()):
                    yield f"transaction {name} waits for markers that nothing writes"

    def _awaited(self) -> Iterator[tuple[Sending, list[TopicPartition]]]:
        """Yield the partitions for which an answer, or the time of the next attempt, is to come."""
        for task, retried in self._retries.items():
            if task.is_waiting:
                yield retried
        for broker_id, queue in self._queues.items():
            if broker_id in self._in_flight or (self, broker_id) in self._worker:
                yield from queue
        for taken in self._in_flight.values():
            yield from taken.items()

    def _maybe_written(self, sending: Sending) -> None:
        if not sending.remaining and self._is_current(sending):
            del self._sendings[sending.shard][sending.transaction.transactional_id]
            self._on_written(sending)


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode(
            partition.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
