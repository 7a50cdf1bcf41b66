"""Sends batches to partition leaders, with ordered retries and idempotence.

Kafka: org.apache.kafka.clients.producer.internals.{Sender, TransactionManager,
TxnPartitionEntry, ProducerBatch}.

Ordering: up to `max.in.flight.requests.per.connection` (at most 5) batches of a partition are in
flight, one while its connection is not ready. After a retriable failure no new batch of the
partition is sent until those in flight have responses; then the failed ones are retried one at a
time, oldest first. Sequence numbers let the broker detect duplicates; if they cannot be continued
(a batch was rejected, the broker lost the producer's state) the partition restarts at sequence zero
with the next producer epoch (KIP-360). An expired batch may or may not be stored: later batches
keep their sequences, because the broker may have them too, until one is accepted or is rejected for
the gap. New batches wait for that.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.client import ANY_NODE
from ottla.clients.producer.metrics import SenderMetrics
from ottla.errors import ClosedError, ConfigError, ErrorCode, KafkaError, TransactionAbortedError
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.batch import RecordBatch
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clients.client import Client
    from ottla.clients.producer.accumulator import Accumulator
    from ottla.clients.producer.batches import PartitionQueue, ProducerBatch
    from ottla.clients.producer.transaction_state import ProducerTransactionState
    from ottla.clients.producer.transactions import Transactions
    from ottla.clients.settings import ValidatedSettings
    from ottla.protocol.apis.produce import ProduceResponse
    from ottla.purgatory.pending import Pending

TOPIC_RESOURCE = 2
LIMIT = "max.message.bytes"
MAX_EPOCH = 0x7FFF
STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
LOST_STATE = frozenset(
    {ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
)
Sent = list[tuple["PartitionQueue", "ProducerBatch"]]
_SEQUENCE_MASK: Final = 0x7FFF_FFFF
_HALF_OF_SEQUENCES: Final = 0x4000_0000


class Sender:
    """The state machine between accumulator and client."""

    def __init__(
        self, settings: ValidatedSettings, client: Client, accumulator: Accumulator
    ) -> None:
        self.client = client
        self.accumulator = accumulator
        self.acks: int = settings.acks
        self.linger_ms: int = settings.linger_ms
        self.idempotent = is_idempotent(settings)
        self.max_in_flight: int = settings.max_in_flight_requests_per_connection
        self.producer_id = -1
        self.producer_epoch = -1
        self.transactions: Transactions | None = None
        """The transactions of a producer that has a transactional id."""
        self._settings = settings
        self._compression = Compression[settings.compression_type.upper()]
        self._level = _level(settings)
        self._id_pending = False
        self._id_retry_at_ms = 0
        self._id_failures = 0
        self._rotation = 0
        self._deadline_ms: int | None = None
        self._metrics = SenderMetrics(client, accumulator)

    def poll(self, now_ms: int) -> None:
        """Send the batches that are due, and fail those past delivery.timeout.ms."""
        self.accumulator.now_ms = now_ms
        self._deadline_ms = None
        if not self.accumulator.active:
            return
        self._expire(now_ms)
        if self.transactions is not None and not self.transactions.state.is_sending:
            if self.transactions.state.drops_unsent:
                self._drop_unsent(self.transactions.state)
            return
        if self.idempotent and self.producer_id < 0:
            self._request_producer_id(now_ms)
            return
        for node_id, queues in self._ready_by_node(now_ms).items():
            if self.client.is_available(node_id):
                self._send_to(node_id, queues, now_ms)
            else:
                self._wake_at(self.client.available_at_ms(node_id))

    def _send_to(self, node_id: int, queues: list[PartitionQueue], now_ms: int) -> None:
        while queues and self.client.in_flight(node_id) < self.max_in_flight:
            if not self.client.is_ready(node_id):
                # Of several batches the first may expire before the connection is ready; then the
                # others would be stored before it.
                queues = [queue for queue in queues if not queue.in_flight]
            sent = self._drain(queues)
            if not sent:
                return
            self._send(node_id, sent)
            queues = [queue for queue in queues if self._is_ready(queue, now_ms)]

    def next_deadline_ms(self) -> int | None:
        """Return when the next batch is due."""
        return self._deadline_ms

    def _wake_at(self, when_ms: int) -> None:
        if self._deadline_ms is None or when_ms < self._deadline_ms:
            self._deadline_ms = when_ms

    def _ready_by_node(self, now_ms: int) -> dict[int, list[PartitionQueue]]:
        by_node: dict[int, list[PartitionQueue]] = {}
        metadata = self.client.metadata
        queues = list(self.accumulator.active)
        self._rotation += 1
        start = self._rotation % len(queues) if queues else 0
        for queue in queues[start:] + queues[:start]:
            if queue.is_idle:
                self._deactivate(queue)
            elif self._is_ready(queue, now_ms) and self._is_in_transaction(queue, now_ms):
                leader = metadata.leader(queue.topic_partition)
                if leader < 0:
                    metadata.add_topics((queue.topic_partition.topic,))
                    metadata.mark_stale()
                else:
                    by_node.setdefault(leader, []).append(queue)
        return by_node

    def _is_in_transaction(self, queue: PartitionQueue, now_ms: int) -> bool:
        """Whether there is no transaction, or its coordinator knows the partition."""
        transactions = self.transactions
        if transactions is None or transactions.may_send_to(queue.topic_partition, now_ms):
            return True
        again_ms = transactions.next_deadline_ms()
        if again_ms > now_ms:
            self._wake_at(again_ms)
        return False

    def _deactivate(self, queue: PartitionQueue) -> None:
        with self.accumulator.lock:
            if queue.is_idle:
                self.accumulator.active.pop(queue, None)

    def _is_ready(self, queue: PartitionQueue, now_ms: int) -> bool:
        if queue.retries:
            if queue.in_flight:
                return False
            retry_at_ms = queue.retries[0].retry_at_ms
            if retry_at_ms > now_ms:
                self._wake_at(retry_at_ms)
            return retry_at_ms <= now_ms
        if queue.in_flight and (
            queue.needs_reset
            or queue.unresolved_sequence >= 0
            or len(queue.in_flight) >= self.max_in_flight
            or (self.idempotent and queue.last_acked_sequence < 0)
        ):
            return False  # a broker takes any first sequence: the first batch goes alone
        if self.accumulator.is_due(queue, now_ms, self.linger_ms):
            return True
        batch = queue.open
        if batch is not None:
            self._wake_at(batch.created_ms + self.linger_ms)
        return False

    def _drain(self, queues: list[PartitionQueue]) -> Sent:
        """Take one batch of each partition, up to max.request.size, at least one."""
        sent: Sent = []
        size = 0
        for queue in queues:
            if sent and size + self._next_size(queue) > self.accumulator.max_request_size:
                break
            if queue.retries:
                batch: ProducerBatch | None = queue.retries.pop(0)
            else:
                batch = self.accumulator.take(queue)
            if batch is None:
                continue
            if not batch.attempts and not batch.order[0]:
                queue.sent_count += 1
                batch.order = (queue.sent_count, 0)
            try:
                self._prepare(queue, batch)
            except Exception as error:  # noqa: BLE001 - one batch must not stop the others
                text = f"the records cannot be encoded: {error}"
                self._fail_batch(queue, batch, KafkaError(ErrorCode.INVALID_RECORD, text))
                continue
            batch.attempts += 1
            queue.in_flight.append(batch)
            size += len(batch.payload or b"")
            sent.append((queue, batch))
        return sent

    @staticmethod
    def _next_size(queue: PartitionQueue) -> int:
        waiting = queue.retries or queue.closed
        batch = waiting[0] if waiting else queue.open
        return 0 if batch is None else batch.size

    def _prepare(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Assign the batch's sequence and encode it, unless an earlier attempt did."""
        if self.idempotent and batch.base_sequence < 0:
            self._number(queue, batch)
        if batch.payload is None and batch.encoded is not None:
            batch.payload = batch.encoded
            if batch.base_sequence >= 0:
                header = RecordBatch(batch.payload)
                if self.transactions is not None:
                    header.set_transactional()
                header.set_producer(batch.producer_id, batch.producer_epoch, batch.base_sequence)
        elif batch.payload is None:
            batch.payload = encode_batch(
                batch.records,
                compression=self._compression,
                level=self._level,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                transactional=self.transactions is not None,
            )

    def _number(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        current = (self.producer_id, self.producer_epoch)
        if (queue.producer_id, queue.producer_epoch) != current and not queue.in_flight:
            queue.producer_id, queue.producer_epoch = current
            queue.next_sequence, queue.last_acked_sequence = 0, -1
            queue.needs_reset, queue.unresolved_sequence = False, -1
        batch.producer_id, batch.producer_epoch = queue.producer_id, queue.producer_epoch
        batch.base_sequence = queue.next_sequence
        queue.next_sequence = (queue.next_sequence + batch.record_count) & _SEQUENCE_MASK

    def _send(self, node_id: int, sent: Sent) -> None:
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        for queue, batch in sent:
            name, partition = queue.topic_partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = ProduceRequest.TopicProduceData(
                    name=name, topic_id=self.client.metadata.topic_id(name), partition_data=[]
                )
            topic.partition_data.append(
                ProduceRequest.TopicProduceData.PartitionProduceData(
                    index=partition, records=batch.payload
                )
            )
        transactions = self.transactions
        request = ProduceRequest(
            transactional_id=None if transactions is None else transactions.transactional_id,
            acks=self.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        self._metrics.sent([batch for _, batch in sent])
        pending = self.client.send(
            node_id,
            request,
            expects_response=self.acks != 0,
            max_version=None if transactions is None else transactions.produce_version,
        )
        pending.on_done(lambda done: self._answered(done, sent))

    def _answered(self, done: Pending[Any], sent: Sent) -> None:
        if done.error is not None:
            error = done.error
            if not isinstance(error, KafkaError):
                error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            for queue, batch in sent:
                self._failed(queue, batch, error)
            return
        if done.value is None:  # acks=0
            for queue, batch in sent:
                self._acknowledged(queue, batch, -1, -1)
            return
        self.client.metadata.update_nodes(done.value.node_endpoints)
        answers = self._index(done.value)
        for queue, batch in sent:
            answer = answers.get(queue.topic_partition)
            if answer is None:
                missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no answer for the partition")
                self._failed(queue, batch, missing)
            elif answer.error_code == ErrorCode.NONE:
                self._acknowledged(queue, batch, answer.base_offset, answer.log_append_time_ms)
            elif answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._acknowledged(queue, batch, -1, -1)
            else:
                self._refused(queue, batch, answer)

    def _index(self, response: ProduceResponse) -> dict[tuple[str, int], Any]:
        names = self.client.metadata.topic_names
        return {
            (topic.name or names.get(topic.topic_id, ""), partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }

    def _acknowledged(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_ms: int
    ) -> None:
        if _is_of_current_epoch(queue, batch):
            self._record_stored(queue, batch)
        if batch.done:  # expired while in flight
            return
        queue.in_flight.remove(batch)
        batch.base_offset, batch.log_append_time_ms = base_offset, append_ms
        if queue.last_error is not None:
            queue.last_error = None
            self.client.outages.resolve(str(queue.topic_partition), self.client.now_ms)
        self.client.trace.stored(queue.topic_partition, batch.record_count, base_offset)
        self.accumulator.release(batch)
        self._resume_sequences(queue)

    @staticmethod
    def _record_stored(queue: PartitionQueue, batch: ProducerBatch) -> None:
        next_sequence = following(batch)
        last = (next_sequence - 1) & _SEQUENCE_MASK
        if not is_before(last, queue.last_acked_sequence):
            queue.last_acked_sequence = last
        if queue.unresolved_sequence >= 0 and not is_before(
            next_sequence, queue.unresolved_sequence
        ):
            queue.unresolved_sequence = -1  # there is no gap before it

    def _refused(self, queue: PartitionQueue, batch: ProducerBatch, answer: Any) -> None:
        leader = answer.current_leader
        is_led_elsewhere = leader.leader_id >= 0 and self.client.metadata.update_leader(
            queue.topic_partition, leader.leader_id, leader.leader_epoch
        )
        if answer.record_errors:
            batch.record_errors = {
                one.batch_index: one.batch_index_error_message or answer.error_message or ""
                for one in answer.record_errors
            }
        error = KafkaError(answer.error_code, answer.error_message)
        if answer.error_message and error.is_retriable:
            name = str(queue.topic_partition)
            self.client.outages.report(name, error.message, self.client.now_ms)
        if error.code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count == 1:
            self._request_limit(batch.topic_partition.topic).on_done(
                lambda done: self._failed(queue, batch, _too_large(batch, done))
            )
        else:
            self._failed(queue, batch, error, retries_at_once=is_led_elsewhere)

    def _request_limit(self, topic: str) -> Pending[Any]:
        """Request max.message.bytes, for the text of an error."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[LIMIT]
        )
        return self.client.send(ANY_NODE, DescribeConfigsRequest(resources=[resource]))

    def _failed(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: KafkaError,
        *,
        retries_at_once: bool = False,
    ) -> None:
        if error.code in STALE_METADATA:
            self.client.metadata.mark_stale()
        if batch.done:  # expired while in flight
            return
        queue.in_flight.remove(batch)
        self.client.trace.add("producer", "%s: %s", queue.topic_partition, error)
        now_ms = self.client.now_ms
        if error.code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._metrics.split()
            for half in self.accumulator.split(batch):
                half.retry_at_ms = now_ms
                self._requeue(queue, half)
            return
        is_lost = self.idempotent and self._is_lost(queue, batch, error)
        is_ordered_later = self.idempotent and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if is_lost and self.transactions is None:
            self._bump_epoch(queue)
        elif is_lost or not (error.is_retriable or is_ordered_later):
            self._fail_batch(queue, batch, error)
            return
        elapsed_ms = now_ms - batch.created_ms
        if (
            batch.attempts > self._settings.retries
            or elapsed_ms >= self._settings.delivery_timeout_ms
            or self.client.closed
        ):
            self._fail_batch(queue, batch, error)
            return
        queue.last_error = error
        backoff_ms = 0 if retries_at_once else self.client.backoff.after(batch.attempts)
        batch.retry_at_ms = now_ms + backoff_ms
        self._metrics.retried(batch)
        self._requeue(queue, batch)

    def _is_lost(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> bool:
        """Whether the sequences cannot be continued in this epoch."""
        if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._is_after_gap(queue, batch)
        return error.code in LOST_STATE

    @staticmethod
    def _is_after_gap(queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether no batch in flight or to retry can close the gap before this sequence."""
        earlier = (*queue.retries, *queue.in_flight)
        if any(other.order < batch.order for other in earlier):
            return False
        if queue.unresolved_sequence >= 0:
            return batch.base_sequence == queue.unresolved_sequence
        # No earlier batch is missing: the broker lost the producer's state.
        return batch.base_sequence == (queue.last_acked_sequence + 1) & _SEQUENCE_MASK

    def _requeue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        insort(queue.retries, batch, key=_order)
        self.accumulator.active[queue] = None
        self._resume_sequences(queue)

    def _fail_batch(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        if _is_of_current_epoch(queue, batch):
            # An earlier batch may be stored although its response was lost.
            next_sequence, known = following(batch), queue.unresolved_sequence
            if known < 0 or is_before(known, next_sequence):
                queue.unresolved_sequence = next_sequence
        self._metrics.failed(batch)
        if self.transactions is not None:
            self.transactions.state.needs_bump = True
            self.transactions.state.fail(error)
        self.accumulator.release(batch, error=error)
        self._resume_sequences(queue)

    def _bump_epoch(self, queue: PartitionQueue) -> None:
        """Start a new epoch for the partition after its requests in flight have responses."""
        if queue.needs_reset:
            return
        queue.needs_reset = True
        if self.transactions is not None:  # its coordinator gives out the epochs
            self.transactions.state.needs_bump = True
        elif queue.producer_epoch == self.producer_epoch and queue.producer_id == self.producer_id:
            if self.producer_epoch >= MAX_EPOCH:
                self.producer_id = self.producer_epoch = -1
            else:
                self.producer_epoch += 1

    def _resume_sequences(self, queue: PartitionQueue) -> None:
        """Decide how the sequences continue, once no batch is in flight."""
        if queue.in_flight:
            return
        if queue.unresolved_sequence >= 0 and not queue.retries:
            # No batch is left that could reveal the gap.
            if queue.next_sequence != (queue.last_acked_sequence + 1) & _SEQUENCE_MASK:
                self._bump_epoch(queue)
            queue.unresolved_sequence = -1
        if queue.needs_reset:
            queue.unresolved_sequence = -1
            for batch in queue.retries:
                batch.base_sequence, batch.payload = -1, None

    def _expire(self, now_ms: int) -> None:
        limit_ms = self._settings.delivery_timeout_ms
        for queue in list(self.accumulator.active):
            first_ms = _oldest_ms(queue)
            if first_ms is not None and first_ms <= now_ms - limit_ms:
                self._expire_queue(queue, now_ms - limit_ms)
                first_ms = _oldest_ms(queue)
            if first_ms is not None:
                self._wake_at(first_ms + limit_ms)

    def _expire_queue(self, queue: PartitionQueue, created_before_ms: int) -> None:
        for waiting in (queue.in_flight, queue.retries):
            for batch in [one for one in waiting if one.created_ms <= created_before_ms]:
                waiting.remove(batch)
                self._fail_batch(queue, batch, self._too_late(queue, batch))
        while True:
            unsent = queue.closed[0] if queue.closed else queue.open
            if unsent is None or unsent.created_ms > created_before_ms:
                return
            taken = self.accumulator.take(queue)
            assert taken is unsent
            self._fail_batch(queue, taken, self._too_late(queue, taken))

    def _too_late(self, queue: PartitionQueue, batch: ProducerBatch) -> KafkaError:
        waited_ms = self.client.now_ms - batch.created_ms
        text = (
            f"{batch.record_count} record(s) for {queue.topic_partition}: not delivered "
            f"within {waited_ms} ms (delivery.timeout.ms)"
        )
        return self.client.timeout_error(text, self.client.fatal or queue.last_error)

    def _request_producer_id(self, now_ms: int) -> None:
        if self._id_pending:
            return
        if self._id_retry_at_ms > now_ms:
            self._wake_at(self._id_retry_at_ms)
            return
        self._id_pending = True
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        self.client.send(ANY_NODE, request).on_done(self._producer_id_received)

    def _producer_id_received(self, done: Pending[Any]) -> None:
        self._id_pending = False
        error = done.error
        if error is None and done.value.error_code:
            error = KafkaError(done.value.error_code)
        if error is None:
            self._id_failures = 0
            self.producer_id = done.value.producer_id
            self.producer_epoch = done.value.producer_epoch
            return
        self._id_failures += 1
        self._id_retry_at_ms = self.client.now_ms + self.client.backoff.after(self._id_failures)
        if not (isinstance(error, KafkaError) and error.is_retriable):
            self._fail_all(error)

    def use_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Take the id and epoch that a coordinator gave out, for the batches from now on."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def _drop_unsent(self, state: ProducerTransactionState) -> None:
        """Fail the batches that are not in flight, also those that were to be sent again.

        These have sequences, which can only be left out in another epoch.
        """
        if any(
            batch.base_sequence >= 0 for queue in self.accumulator.active for batch in queue.retries
        ):
            state.needs_bump = True
        self._fail_all(state.error or TransactionAbortedError())

    def _fail_all(self, error: Exception) -> None:
        failure = error if isinstance(error, KafkaError) else KafkaError(-1, str(error))
        for queue in list(self.accumulator.active):
            batches = list(queue.retries)
            queue.retries.clear()
            while (batch := self.accumulator.take(queue)) is not None:
                batches.append(batch)
            for batch in batches:
                self._metrics.failed(batch)
                self.accumulator.release(batch, error=failure)

    def abort_all(self) -> None:
        """Fail all pending batches: the producer is closed."""
        self._fail_all(ClosedError("Producer is closed forcefully."))


def _too_large(batch: ProducerBatch, limit: Pending[Any]) -> KafkaError:
    """Return the error of a record that the broker refuses; the limit may be unknown."""
    value = "the value"
    if limit.error is None:
        found = [config.value for result in limit.value.results for config in result.configs]
        value = f"{found[0]}, which is the value" if found else value
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"topic {batch.topic_partition.topic!r}: The message is {len(batch.payload or b'')} bytes "
        f"when serialized with its batch header which is larger than {value} of the "
        f"{LIMIT} configuration of the topic.",
    )


def _order(batch: ProducerBatch) -> tuple[int, int]:
    return batch.order


def _oldest_ms(queue: PartitionQueue) -> int | None:
    oldest_ms: int | None = None
    waiting: tuple[Sequence[ProducerBatch], ...] = (queue.in_flight, queue.retries, queue.closed)
    for batches in waiting:
        if batches and (oldest_ms is None or batches[0].created_ms < oldest_ms):
            oldest_ms = batches[0].created_ms
    last = queue.open
    if last is not None and (oldest_ms is None or last.created_ms < oldest_ms):
        oldest_ms = last.created_ms
    return oldest_ms


def _level(settings: ValidatedSettings) -> int | None:
    name = f"compression.{settings.compression_type}.level"
    return getattr(settings, name.replace(".", "_")) if name in settings.given else None


def _is_of_current_epoch(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Whether the batch's sequence belongs to the partition's current producer epoch."""
    now = (queue.producer_id, queue.producer_epoch)
    return batch.base_sequence >= 0 and (batch.producer_id, batch.producer_epoch) == now


def following(batch: ProducerBatch) -> int:
    """Return the sequence number after the batch's last."""
    return (batch.base_sequence + batch.record_count) & _SEQUENCE_MASK


def is_before(sequence: int, other: int) -> bool:
    """Whether a sequence precedes another one; sequences wrap around to zero."""
    return 0 < (other - sequence) & _SEQUENCE_MASK < _HALF_OF_SEQUENCES


def is_idempotent(settings: ValidatedSettings) -> bool:
    """Whether sequences are used; ConfigError for settings that exclude it.

    As in Kafka, acks other than all and zero retries disable it, unless it is enabled explicitly.
    """
    requested = "enable.idempotence" in settings.given or settings.transactional_id is not None
    if not settings.enable_idempotence:
        return False
    conflicts = [
        text
        for broken, text in (
            (settings.acks != -1, "acks=all"),
            (settings.max_in_flight_requests_per_connection > 5, "at most 5 requests in flight"),
            (settings.retries == 0, "retries above 0"),
        )
        if broken
    ]
    if not conflicts:
        return True
    if requested or "at most 5 requests in flight" in conflicts:
        raise ConfigError(f"enable.idempotence needs {' and '.join(conflicts)}")
    return False
