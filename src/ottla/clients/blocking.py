"""Blocking façades: Producer, Consumer and Admin for programs without an event loop.

Kafka: org.apache.kafka.clients.{producer.KafkaProducer, consumer.KafkaConsumer, admin.Admin}.
Hot path: `Producer.send`, `Consumer.poll`; benchmarks/clients.py.

They use the same cores as the asyncio façades: Producer and Admin on a daemon thread with an event
loop, Consumer on a loop that runs in the caller's thread during calls (see loops.py). `send` and
`poll` call the cores directly under the runtime's lock; other methods wait for the asyncio method.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.admin.blocking import Admin
from ottla.clients.arguments import check_callback, check_poll, check_timeout
from ottla.clients.consumer.consumer import AsyncConsumer
from ottla.clients.consumer.core import ConsumerCore, call_listener
from ottla.clients.interceptors import ProducerRecord
from ottla.clients.loops import Blocking, CallerDrivenLoop, LoopThread, blocking, locked
from ottla.clients.producer.producer import PARTITION_FIELD, AsyncProducer, call_on_delivery
from ottla.clients.producer.transactional_reads import TransactionalRead, check_consumer
from ottla.clients.settings import refuse_positional
from ottla.errors import (
    AbortableTransactionError,
    ErrorCode,
    FatalTransactionError,
    KafkaError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Never, Self, Unpack

    from ottla.clients.consumer.core import Batches
    from ottla.clients.consumer.membership import ListenerCall
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.keywords import ConsumerSettings, ProducerSettings
    from ottla.clients.metric_windows import MetricName
    from ottla.clients.offsets import OffsetAndMetadata
    from ottla.clients.producer.batches import Delivery, RecordMetadata
    from ottla.clients.producer.producer import HeadersInput
    from ottla.types import TopicPartition

    Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]

T = TypeVar("T")
__all__ = ["Admin", "Consumer", "Producer"]


class Producer(Blocking):
    """Sends records; may be shared by threads. Use as `with Producer(...) as producer`.

    Parameters:
        config: settings under Kafka's dotted names, such as `{"linger.ms": 20}`.
        settings: the same as keywords, `linger_ms=20`.

    Raises ConfigError for unknown and invalid settings.

        >>> with Producer(bootstrap_servers=servers, linger_ms=20) as producer:
        ...     delivery = producer.send("orders", b"tea", key=b"k1")
        ...     print(delivery.result(timeout=10).offset)
        0
    """

    def __init__(
        self,
        *refused: Never,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        refuse_positional("Producer", refused)
        self._async = AsyncProducer(config=config, **settings)
        self._core = self._async._core  # noqa: SLF001 - two façades of one core
        self._append = self._core.append
        self._interceptors = self._core.interceptors or None
        self._read: TransactionalRead | None = None
        self._thread = LoopThread("ottla-producer", self._core.client.closed_error)
        self._thread.call(self._async.start())

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersInput = (),
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> Delivery:
        """Queue a record and return its delivery; waits only for unknown topics and for memory.

        Parameters:
            value, key: objects for the serializers; without any, bytes, text or None.
            partition: the partition, by default by the key or the partitioner.
            timestamp_ms: the record's time in ms since 1970, by default now.
            headers: pairs of a name and bytes, text or None, or a mapping of them.
            on_delivery: called with the delivery in the producer's own thread.

        `delivery.result(timeout)` waits for the record's metadata. Raises KafkaError after
        max.block.ms, for records that cannot be sent, and in on_delivery where it would wait.

            >>> with Producer(bootstrap_servers=servers) as producer:
            ...     sent = producer.send("payments", "12.50", headers={"currency": "EUR"})
            ...     metadata = sent.result(timeout=10)
            >>> metadata.topic, metadata.partition, metadata.offset
            ('payments', 0, 0)
        """
        if on_delivery is not None:
            check_callback(on_delivery)
        if self._interceptors is not None:
            record = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            delivery = self._send_intercepted(self._interceptors.on_send(record))
        else:
            queued = self._append(topic, value, key, partition, timestamp_ms, headers)
            if queued is None:
                queued = self._send_waiting(topic, (value, key, partition, timestamp_ms, headers))
            delivery = queued
        if on_delivery is not None:
            call_on_delivery(delivery, on_delivery)
        return delivery

    def _send_intercepted(self, record: ProducerRecord) -> Delivery:
        interceptors = self._core.interceptors
        try:
            delivery = self._append(*record) or self._send_waiting(record.topic, record[1:])
        except KafkaError as error:
            interceptors.refused(error)
            raise
        call_on_delivery(delivery, interceptors.delivered, asks=False)
        return delivery

    def _send_waiting(self, topic: str, fields: tuple[Any, ...]) -> Delivery:
        runtime = self._core.runtime
        runtime.check_may_wait()
        start_ms = self._core.now_ms()
        while True:
            with runtime.progress:
                delivery = self._append(topic, *fields)
                if delivery is not None:
                    return delivery
                waited_ms = self._core.now_ms() - start_ms
                self._core.blocked(topic, waited_ms, fields[PARTITION_FIELD])
                runtime.progress.wait(self._core.recheck_ms(waited_ms) / 1000)

    send_many = blocking(AsyncProducer.send_many)

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersInput = (),
    ) -> RecordMetadata:
        """Send one record and wait for its metadata."""
        sent = self.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return sent.result()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed.

        Raises TimeoutError after timeout seconds, KafkaError(INVALID_REQUEST) in on_delivery, and
        DeliveryError for records that have failed and whose results were not requested by `result`,
        `error` or `on_delivery`.
        """
        if self._thread.is_current:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "KafkaProducer.flush() invocation inside a callback is not permitted because it may"
                " lead to deadlock.",
            )
        self._thread.call(self._async.flush(timeout))

    # ------------------------------------------------------------ transactions

    init_transactions = blocking(AsyncProducer.init_transactions)
    begin_transaction = blocking(AsyncProducer.begin_transaction)
    send_offsets_to_transaction = blocking(AsyncProducer.send_offsets_to_transaction)

    def commit_transaction(self) -> None:
        """Wait for all records, then commit; see AsyncProducer.commit_transaction."""
        self._thread.call(self._async.commit_transaction())
        self._read = None

    prepare_transaction = blocking(AsyncProducer.prepare_transaction)
    complete_transaction = blocking(AsyncProducer.complete_transaction)

    def abort_transaction(self) -> None:
        """Abort: records that were not sent fail; see AsyncProducer.abort_transaction."""
        try:
            self._thread.call(self._async.abort_transaction())
        finally:
            self._read = self._core.end_read(self._read)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction and commit it at the end of the block, or abort it on an error.

        The first one calls `init_transactions`. A commit that ends with TimeoutError or is
        interrupted is pending: the next block completes it before it begins its own, or raises
        AbortableTransactionError if it failed. Needs transactional.id (KIP-98).

            >>> with Producer(bootstrap_servers=servers, transactional_id="billing") as producer:
            ...     with producer.transaction():
            ...         debit = producer.send("debits", b"5")
            ...         credit = producer.send("credits", b"5")
            >>> debit.result().offset, credit.result().offset
            (0, 0)
        """
        self._end_last_transaction()
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except FatalTransactionError:
            raise
        except BaseException:
            if not self._core.has_pending_commit:
                with suppress(KafkaError):
                    self.abort_transaction()
            raise

    def _end_last_transaction(self) -> None:
        """Repeat what an outage or an interrupt has interrupted; then a transaction may begin."""
        call = self._core.interrupted_call()
        try:
            if call is not None:
                getattr(self, call)()
        except AbortableTransactionError:  # it was not committed: the caller has to know
            with suppress(KafkaError):
                self.abort_transaction()
            raise

    @contextmanager
    def process(
        self, consumer: Consumer, timeout: float = 1.0, max_records: int | None = None
    ) -> Iterator[list[ConsumerRecord]]:
        """Read records and commit their offsets in the transaction of what the block sends.

        The block gets what `consumer.poll` returns. Each record takes effect once: after an error
        of the block and after AbortableTransactionError the consumer is back at the first of them;
        after TimeoutError the next `process` completes the pending commit first. Repeat it after
        these; after FatalTransactionError with a new producer.

        Parameters:
            timeout: seconds to wait for the first record.
            max_records: the most records of one block, by default max.poll.records.

            >>> with Producer(bootstrap_servers=servers, transactional_id="upper") as producer:
            ...     for name in ("tea", "milk"):
            ...         with producer.transaction():
            ...             _ = producer.send("words", name)
            ...     with Consumer(
            ...         "words", bootstrap_servers=servers, group_id="upper",
            ...         enable_auto_commit=False, auto_offset_reset="earliest",
            ...     ) as consumer:
            ...         words = []
            ...         while len(words) < 2:
            ...             with producer.process(consumer) as records:
            ...                 for record in records:
            ...                     words.append(record.value)
            ...                     _ = producer.send("upper", record.value.upper())
            >>> words
            [b'tea', b'milk']
        """
        check_consumer(consumer)
        try:
            self._end_last_transaction()
        except AbortableTransactionError:
            pass  # the consumer is back at the first record of that transaction
        except FatalTransactionError as error:
            self._read = self._core.end_read(self._read, error)
            raise
        records = consumer.poll(timeout, max_records)
        self._read = read = TransactionalRead(consumer, records)
        try:
            with self.transaction():
                yield records
                self.send_offsets_to_transaction(read.offsets, consumer.group_metadata())
        except BaseException as error:
            self._read = self._core.end_read(self._read, error)
            raise

    partitions_for = blocking(AsyncProducer.partitions_for)

    def metrics(self) -> dict[MetricName, float | str]:
        """Return the client's metrics; see AsyncProducer.metrics."""
        return self._async.metrics()

    def close(self, timeout: float | None = None) -> None:
        """Wait up to timeout seconds for pending deliveries, then close; idempotent.

        Raises DeliveryError, as `flush`, when everything is closed. Inside on_delivery it cannot
        wait: pending deliveries fail, as in Kafka.
        """
        check_timeout(timeout)
        if self._thread.is_current:
            if not self._core.accumulator.closing:
                self._thread.end_with(self._async.close(0))
                self._core.accumulator.close()
        elif self._thread.is_ending:
            self._thread.stop()
        elif not self._core.client.closed:
            try:
                self._thread.call(self._async.close(timeout))
            finally:
                self._thread.stop()


class Consumer(Blocking):
    """Reads records; for one thread. Use as `with Consumer(...) as consumer`.

    Parameters:
        topics: topics to subscribe to.
        config: settings under Kafka's dotted names, such as `{"group.id": "billing"}`.
        settings: the same as keywords, `group_id="billing"`.

    Iterate over it or call `poll`. Raises ConfigError for unknown and invalid settings.

        >>> with Producer(bootstrap_servers=servers) as producer:
        ...     _ = producer.send_and_wait("invoices", b"1", key=b"k1")
        >>> with Consumer(
        ...     "invoices", bootstrap_servers=servers, group_id="billing",
        ...     auto_offset_reset="earliest",
        ... ) as consumer:
        ...     record = next(iter(consumer))
        ...     consumer.commit()
        >>> record.offset, record.key, record.value
        (0, b'k1', b'1')
    """

    def __init__(
        self,
        *topics: str,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self._async = AsyncConsumer(*topics, config=config, **settings)
        self._core: ConsumerCore = self._async._core  # noqa: SLF001 - two façades of one core
        self._thread: CallerDrivenLoop = CallerDrivenLoop(self._core.runtime, "ottla-consumer")
        self._thread.call(self._async.start())

    # ------------------------------------------------------------ records

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next records; none if none come within the timeout.

        Parameters:
            timeout: seconds to wait for the first record.
            max_records: the most records, by default max.poll.records.

        Rebalances and their listener run inside it, so call it at least every max.poll.interval.ms.
        Raises KafkaError for errors that are not retriable, WakeupError after `wakeup`.
        """
        return self._polled(self._core.joined, timeout, max_records)

    def _polled(self, convert: Callable[[Any], T], timeout: float, max_records: int | None) -> T:
        interrupts = self._thread.interrupts
        interrupts.hold()
        has_records = False
        try:
            records = convert(self._next_batches(timeout, max_records, with_topic=True))
            has_records = bool(records)
        finally:
            # Records that were taken count as consumed: Ctrl-C must not lose them.
            interrupts.release(keep=has_records)
        return records

    def poll_batches(self, timeout: float = 1.0, max_records: int | None = None) -> Batches:
        """Return (partition, records) pairs as they arrived, without deserializers: the fastest."""
        interrupts = self._thread.interrupts
        interrupts.hold()
        batches: Batches = []
        try:
            batches = self._next_batches(timeout, max_records, with_topic=False)
        finally:
            interrupts.release(keep=bool(batches))
        return batches

    def _next_batches(
        self, timeout: float, max_records: int | None, *, with_topic: bool
    ) -> list[tuple[TopicPartition, list[Any]]]:
        check_poll(timeout, max_records)
        core = self._core
        runtime = core.runtime
        with runtime.lock:
            step = core.user_poll()
            batches = core.take(max_records, with_topic=with_topic) if step is None else []
        deadline_ms = core.now_ms() + timeout * 1000
        while not batches:
            if step is not None:
                self._run_step(step)
            elif deadline_ms <= core.now_ms() or self._thread.interrupts.is_pending:
                if timeout <= 0:
                    core.log_empty_poll()
                break
            batches, step = self._thread.call(
                self._async.wait_batches(deadline_ms, max_records, with_topic=with_topic)
            )
        if runtime.poll_is_scheduled:
            self._thread.run_turn()
        return batches

    def _run_step(self, step: ListenerCall) -> None:
        core = self._core
        assert core.group is not None
        if step.kind in ("prepare", "revoked") and core.auto_commit and step.partitions:
            self._thread.call(self._async.commit_before_revocation())
        if step.kind == "assigned":
            with core.runtime.lock:
                is_member = core.group.step_done(step)
            if not is_member:
                return
        try:
            call_listener(core.subscription.listener, step)
        finally:
            if step.kind != "assigned":
                with core.runtime.lock:
                    core.group.step_done(step)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        while True:
            yield from self._polled(self._core.iterate, 1.0, None)

    # ------------------------------------------------------------ subscription

    subscribe = locked(AsyncConsumer.subscribe)
    assign = locked(AsyncConsumer.assign)

    def unsubscribe(self) -> None:
        """Remove the subscription or assignment and leave the group."""
        try:
            self._notify_listener(self._thread.call(self._async.prepare_to_leave()))
        finally:
            self._thread.call(self._async.finish_unsubscribe())

    def _notify_listener(self, step: ListenerCall | None) -> None:
        """Call the listener outside the loop: it may commit."""
        if step is not None:
            call_listener(self._core.subscription.listener, step)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        with self._core.runtime.lock:
            return self._async.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._async.subscription

    pause = locked(AsyncConsumer.pause)
    resume = locked(AsyncConsumer.resume)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        with self._core.runtime.lock:
            return self._async.paused

    seek = locked(AsyncConsumer.seek)
    seek_to_beginning = locked(AsyncConsumer.seek_to_beginning)
    seek_to_end = locked(AsyncConsumer.seek_to_end)
    seek_to_committed = locked(AsyncConsumer.seek_to_committed)

    def wakeup(self) -> None:
        """Make the current or the next `poll` raise WakeupError.

        The only method that other threads and signal handlers may call.
        """
        self._async.wakeup()

    enforce_rebalance = locked(AsyncConsumer.enforce_rebalance)
    group_metadata = locked(AsyncConsumer.group_metadata)

    # ------------------------------------------------------------ offsets

    commit = blocking(AsyncConsumer.commit)
    commit_nowait = locked(AsyncConsumer.commit_nowait)
    committed = blocking(AsyncConsumer.committed)
    position = blocking(AsyncConsumer.position)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    lag = locked(AsyncConsumer.lag)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    metrics = locked(AsyncConsumer.metrics)

    def close(self) -> None:
        """Commit with enable.auto.commit, leave the group and close connections; idempotent.

        Calls the rebalance listener, see AsyncConsumer.close.
        """
        if self._core.client.closed:
            return
        interrupts = self._thread.interrupts
        interrupts.hold()
        try:
            try:
                self._notify_listener(self._thread.call(self._async.prepare_to_leave()))
            finally:
                if not self._core.client.closed:  # as after a listener that closes
                    self._thread.call(self._async.finish_close())
        except asyncio.CancelledError:  # Ctrl-C: skip LeaveGroup, but stop everything
            self._thread.call(self._core.runtime.aclose(), may_cancel=False)
        finally:
            self._thread.stop()
            interrupts.release()
