"""The asyncio producer, and the core that it shares with the blocking one.

Kafka: org.apache.kafka.clients.producer.KafkaProducer.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
import asyncio
import builtins
import logging
import threading
import weakref
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from ottla.clients.arguments import check_callback, check_timeout, check_topic, listed
from ottla.clients.interceptors import Interceptors, ProducerRecord
from ottla.clients.offsets import as_offsets
from ottla.clients.producer.accumulator import Accumulator, producer_closed
from ottla.clients.producer.batches import Deliveries, ProducerBatch, run_callback
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.transaction_state import PreparedTransaction, State
from ottla.clients.producer.transactional_reads import TransactionalRead, check_consumer
from ottla.clients.producer.transactions import Transactions
from ottla.clients.settings import PRODUCER, read_settings, refuse_positional
from ottla.clients.transport import AsyncClient, Runtime
from ottla.config.definition import MAX_INT
from ottla.errors import (
    AbortableTransactionError,
    ConfigError,
    FatalTransactionError,
    IllegalStateError,
    KafkaError,
    TimeoutError,  # noqa: A004 - Kafka's, also a builtin one
)
from ottla.errors.base import topic_error
from ottla.records.compiled import warn_not_compiled
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from typing import Never, Self, Unpack

    from ottla.clients.consumer.consumer import AsyncConsumer
    from ottla.clients.consumer.core import GroupMetadata
    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.clients.environment import ClientEnvironment
    from ottla.clients.keywords import ProducerSettings
    from ottla.clients.metadata import PartitionMetadata
    from ottla.clients.offsets import OffsetAndMetadata
    from ottla.clients.producer.batches import Delivery, RecordMetadata
    from ottla.clients.settings import ValidatedSettings

    HeadersInput = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]

_log = logging.getLogger("ottla.clients")
_INTERRUPTED = {
    State.UNINITIALIZED: "init_transactions",
    State.INITIALIZING: "init_transactions",
    State.COMMITTING: "commit_transaction",
    State.ABORTABLE_ERROR: "commit_transaction",  # raises why it cannot be committed
    State.ABORTING: "abort_transaction",
}
"""The call that ends each state in which an outage or a cancellation may leave a producer."""
PARTITION_FIELD = 2
"""The place of the partition among a record's fields after its topic."""


class ProducerCore:
    """The settings, client, accumulator and sender of one producer."""

    def __init__(
        self,
        config: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
        environment: ClientEnvironment | None = None,
    ) -> None:
        self.settings = settings = read_settings(PRODUCER, config, keywords)
        settings.client_id = settings.client_id or "ottla-producer"
        _check_delivery_timeout(settings)
        self.runtime = Runtime(settings, environment)
        self.client = self.runtime.client
        self.accumulator = Accumulator(
            settings,
            self.client.metadata,
            rng=self.runtime.environment.rng,
            wake=self.runtime.wake,
            wall_ns=self.runtime.environment.wall_ns,
            lock=threading.Lock(),
            owner=self,
        )
        self.sender = Sender(settings, self.client, self.accumulator)
        self.client.register(self.sender)
        self.transactions: Transactions | None = None
        if settings.transactional_id is not None:
            self.transactions = Transactions(settings, self.runtime, self.sender)
            self.sender.transactions = self.transactions
        self.now_ms = self.runtime.now_ms
        self._woken_ms = -MAX_INT
        """When a blocked append last requested a poll."""
        self.interceptors = Interceptors(settings.interceptor_classes)
        self.exit_warning = (
            weakref.finalize(self, _warn_of_unsent, weakref.ref(self))
            if environment is None
            else None
        )
        warn_not_compiled()

    def require_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self.client.closed or self.accumulator.closing:
            raise producer_closed()

    @property
    def append(self) -> Callable[..., Delivery | None]:
        """The accumulator's append, which a transactional producer may call in transactions."""
        append: Callable[..., Delivery | None] = self.accumulator.append
        transactions = self.transactions
        if transactions is None:
            return append

        def checked(*fields: Any) -> Delivery | None:
            transactions.state.check_send()
            return append(*fields)

        return checked

    def require_transactions(self) -> Transactions:
        """Return the producer's transactions; raises IllegalStateError without transactional.id."""
        self.require_open()
        if self.transactions is None:
            raise IllegalStateError(
                "Cannot use transactional methods without enabling transactions by setting the "
                "transactional.id configuration property"
            )
        return self.transactions

    def interrupted_call(self) -> str | None:
        """Return the method that must be called, or repeated, before a transaction may begin.

        Raises FatalTransactionError if none can.
        """
        state = self.require_transactions().state
        if state.state is State.FATAL_ERROR:
            state.check()
        return _INTERRUPTED.get(state.state)

    @property
    def has_pending_commit(self) -> bool:
        """Whether a commit was begun whose outcome is unknown; it cannot be aborted."""
        return self.transactions is not None and self.transactions.state.state is State.COMMITTING

    def end_read(
        self, read: TransactionalRead | None, error: BaseException | None = None
    ) -> TransactionalRead | None:
        """Move a consumer back after a transaction of its records; return what is still open."""
        if read is None or self.has_pending_commit:
            return read
        if isinstance(error, FatalTransactionError):
            read.look_up()
        else:
            read.rewind()
        return None

    def recheck_ms(self, waited_ms: float) -> float:
        """Return how long a blocked append waits at most before it tries again."""
        remaining_ms: float = self.settings.max_block_ms - waited_ms
        backoff_ms: float = max(self.settings.retry_backoff_ms, 1)
        return max(min(remaining_ms, backoff_ms, 1000), 1)

    def blocked(self, topic: str, waited_ms: float, partition: int | None = None) -> None:
        """Request metadata for an append that has to wait: for memory, its topic or its partition.

        Raises KafkaError if waiting cannot succeed, TimeoutError after max.block.ms.
        """
        self.require_open()
        check_topic(topic)
        pending_error = self.client.pending_error()
        if pending_error is not None:
            raise pending_error
        code = self.client.metadata.error(topic)
        if code and not KafkaError(code).is_retriable:
            self.client.metadata.drop_topic(topic)  # a later send requests it again
            raise topic_error(topic, code)
        metadata, now_ms = self.client.metadata, self.now_ms()
        is_due = now_ms - self._woken_ms >= self.settings.retry_backoff_ms
        if metadata.partition_count(topic) <= (partition or 0):
            is_due = is_due or not metadata.is_in_use(topic)
            metadata.add_topics((topic,))
            metadata.mark_stale()
        if is_due:  # every wake ends all waits: one for each would keep the loop busy
            self._woken_ms = now_ms
            self.runtime.wake()
        # after the request: with max.block.ms=0 a later send finds the topic, as in Kafka
        if waited_ms >= self.settings.max_block_ms:
            raise self._blocked_error(topic, partition)

    def _blocked_error(self, topic: str, partition: int | None) -> KafkaError:
        limit_ms = self.settings.max_block_ms
        count = self.client.metadata.partition_count(topic)
        if count and partition is not None and partition >= count:
            text = (
                f"Partition {partition} of topic {topic} with partition count {count} is not "
                f"present in metadata after {limit_ms} ms."
            )
        elif count:
            text = f"the buffer (buffer.memory) stayed full for {limit_ms} ms (max.block.ms)"
        else:
            text = f"Topic {topic} not present in metadata after {limit_ms} ms"
        return self.client.timeout_error(text)

    # ------------------------------------------------------------ called by deliveries

    def wait(self, delivery: Delivery, timeout: float | None) -> None:
        """Block this thread until the record's batch is done; raises TimeoutError.

        Raises KafkaError in the thread that would end the wait, and after a fork.
        """
        check_timeout(timeout)
        self.runtime.check_may_wait()
        batch = delivery.batch
        with self.runtime.progress:
            delivery.ask()
            try:
                if self.runtime.progress.wait_for(lambda: batch.done, timeout):
                    return
            except BaseException:
                delivery.ask(asks=False)
                raise
            delivery.ask(asks=False)
            raise self.client.timeout_error(f"no acknowledgement within {timeout} s")

    async def wait_async(self, delivery: Delivery) -> None:
        """Wait in a coroutine of the producer's loop until the record's batch is done."""
        delivery.ask()
        try:
            await self.runtime.wait_for(delivery.batch.when_done())
        except BaseException:
            delivery.ask(asks=False)
            raise

    def fail_rest(
        self, topic: str, values: Sequence[Any], deliveries: Deliveries, error: KafkaError
    ) -> None:
        """Give the values that could not be queued failed deliveries."""
        batch = ProducerBatch(TopicPartition(topic, -1), self.now_ms(), self)
        batch.records = [(0, None, None, ()) for _ in values]
        deliveries.add(batch, 0, len(values))
        with self.runtime.lock:
            self.accumulator.failures.add(batch, error)
            batch.finish(error=error)

    def raise_failures(self) -> None:
        """Raise DeliveryError for failed records whose results were not requested."""
        with self.runtime.lock:
            error = self.accumulator.failures.take()
        if error is not None:
            raise error


def _warn_of_unsent(producer: weakref.ref[ProducerCore]) -> None:
    core = producer()
    if core is None:  # collected before the end
        return
    counts: Counter[str] = Counter()
    with core.accumulator.lock:
        for batch in core.accumulator.unfinished:
            counts[batch.topic_partition.topic] += batch.record_count
    if counts:
        text = "[Producer clientId=%s] not closed at exit, which may lose records: %s. Use `with`, "
        topics = ", ".join(f"{count} for topic {topic!r}" for topic, count in counts.items())
        _log.warning(text + "or call close()", core.settings.client_id, topics)


def _check_delivery_timeout(settings: ValidatedSettings) -> None:
    """Reject a delivery.timeout.ms below linger.ms + request.timeout.ms; adjust the default."""
    min_ms = min(settings.linger_ms + settings.request_timeout_ms, MAX_INT)
    if settings.delivery_timeout_ms >= min_ms:
        return
    if "delivery.timeout.ms" in settings.given:
        raise ConfigError(
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms",
        )
    settings.delivery_timeout_ms = min_ms


class AsyncProducer(AsyncClient):
    """Sends records from coroutines. Use as `async with AsyncProducer(...) as producer`.

    Parameters:
        config: settings under Kafka's dotted names, such as `{"linger.ms": 20}`.
        settings: the same as keywords, `linger_ms=20`.

    Raises ConfigError for unknown and invalid settings.

        >>> async def main():
        ...     async with AsyncProducer(bootstrap_servers=servers) as producer:
        ...         delivery = await producer.send("orders", b"tea", key=b"k1")
        ...         return (await delivery).offset
        >>> asyncio.run(main())
        0
    """

    def __init__(
        self,
        *refused: Never,
        config: Mapping[str, Any] | None = None,
        environment: ClientEnvironment | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """Take settings; an environment is given where the time is simulated."""
        refuse_positional("AsyncProducer", refused)
        self._core = ProducerCore(config, settings, environment)
        self._runtime = self._core.runtime
        self._append = self._core.append
        self._interceptors = self._core.interceptors
        self._read: TransactionalRead | None = None
        """The records of a transaction of `process` that is not known to be committed."""

    async def send(
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
        """Queue a record; waits only for unknown topics and for memory.

        Parameters:
            value, key: objects for the serializers; without any, bytes, text or None.
            partition: the partition, by default by the key or the partitioner.
            timestamp_ms: the record's time in ms since 1970, by default now.
            headers: pairs of a name and bytes, text or None, or a mapping of them.
            on_delivery: called with the delivery on the event loop.

        Await the returned Delivery for the record's metadata. Raises KafkaError after max.block.ms,
        and for records that cannot be sent.
        """
        if on_delivery is not None:
            check_callback(on_delivery)
        if self._interceptors:
            record = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            delivery = await self._send_intercepted(self._interceptors.on_send(record))
        else:
            queued = self._append(topic, value, key, partition, timestamp_ms, headers)
            if queued is None:
                fields = (value, key, partition, timestamp_ms, headers)
                queued = await self._send_waiting(topic, fields)
            delivery = queued
        if on_delivery is not None:
            call_on_delivery(delivery, on_delivery)
        return delivery

    async def _send_intercepted(self, record: ProducerRecord) -> Delivery:
        try:
            delivery = self._append(*record)
            if delivery is None:
                delivery = await self._send_waiting(record.topic, record[1:])
        except KafkaError as error:
            self._interceptors.refused(error)
            raise
        call_on_delivery(delivery, self._interceptors.delivered, asks=False)
        return delivery

    async def _send_waiting(self, topic: str, fields: tuple[Any, ...]) -> Delivery:
        self._runtime.attach()
        start_ms = self._core.now_ms()
        while True:
            waited_ms = self._core.now_ms() - start_ms
            with self._runtime.lock:
                self._core.blocked(topic, waited_ms, fields[PARTITION_FIELD])
            await self._runtime.wait_progress(self._core.recheck_ms(waited_ms))
            delivery = self._append(topic, *fields)
            if delivery is not None:
                return delivery

    async def send_and_wait(
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
        sent = await self.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return await sent

    async def send_many(self, topic: str, values: Iterable[Any]) -> Deliveries:
        """Queue many values without keys, several times as fast as one by one.

        Raises the errors of `send`; a value that cannot be sent is rejected before any is queued.
        When the wait for memory fails after some values were queued, the deliveries of the others
        have failed with its error.
        """
        check_topic(topic)
        given = values if type(values) is tuple else tuple(listed("values", values))  # a copy
        deliveries = Deliveries()
        try:
            if self._interceptors:
                for value in given:
                    delivery = await self.send(topic, value)
                    deliveries.add(delivery.batch, delivery.position, 1)
            else:
                await self._append_many(topic, given, deliveries)
        except KafkaError as error:
            if not deliveries:
                raise
            self._core.fail_rest(topic, given[len(deliveries) :], deliveries, error)
        return deliveries

    async def _append_many(
        self, topic: str, given: tuple[Any, ...], deliveries: Deliveries
    ) -> None:
        if self._core.transactions is not None:
            self._core.transactions.state.check_send()
        accumulator = self._core.accumulator
        encoded = accumulator.encoded(topic, given)
        start_ms = self._core.now_ms()
        start = 0
        while (upto := accumulator.append_many(topic, encoded, start, deliveries)) < len(given):
            if upto > start:
                start_ms = self._core.now_ms()
            start = upto
            waited_ms = self._core.now_ms() - start_ms
            with self._runtime.lock:
                self._core.blocked(topic, waited_ms)
            await self._runtime.wait_progress(self._core.recheck_ms(waited_ms))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged or has failed.

        Raises TimeoutError after timeout seconds, and DeliveryError for records that have failed
        and whose results were not requested by `result`, `await`, `error` or `on_delivery`.
        """
        self._core.require_open()
        check_timeout(timeout)
        await self._wait_for_all(timeout)
        self._core.raise_failures()

    async def _wait_for_all(self, timeout: float | None) -> None:
        accumulator = self._core.accumulator
        accumulator.flushing += 1
        try:
            self._runtime.wake()
            with accumulator.lock:
                batches = list(accumulator.unfinished)
            async with asyncio.timeout(timeout):
                for batch in batches:
                    await self._runtime.wait_for(batch.when_done())
        except builtins.TimeoutError:
            text = f"records were not acknowledged within {timeout} s"
            raise self._core.client.timeout_error(text) from None
        finally:
            accumulator.flushing -= 1

    # ------------------------------------------------------------ transactions

    async def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Get the next epoch of the transactional id: once, before the first transaction.

        Fences producers with the same id, whose open transaction is aborted. With keep_prepared it
        is kept and returned (KIP-939): end it by `complete_transaction`, commit or abort, before
        anything else. Raises FatalTransactionError, and TimeoutError after max.block.ms; then it
        may be called again.
        """
        transactions = self._core.require_transactions()
        self._runtime.attach()
        return await transactions.init(keep_prepared=keep_prepared)

    async def begin_transaction(self) -> None:
        """Begin a transaction, to which all records belong that are sent until its end."""
        self._core.require_transactions().state.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: GroupMetadata,
    ) -> None:
        """Commit a consumer's offsets, the next to read, if the transaction commits.

        `group` is `consumer.group_metadata()`. Raises AbortableTransactionError for a consumer that
        is no longer a member.
        """
        await self._core.require_transactions().send_offsets(as_offsets(offsets), group)

    async def commit_transaction(self) -> None:
        """Wait for all records, then commit.

        Raises AbortableTransactionError if one of them failed, FatalTransactionError for a fenced
        producer, TimeoutError after max.block.ms; then it may be called again.
        """
        transactions = self._core.require_transactions()
        await transactions.commit(lambda: self._wait_for_all(None))
        self._read = None

    async def prepare_transaction(self) -> PreparedTransaction:
        """Wait for all records; then only the decision is left, which may survive this producer.

        Store what is returned together with the decision: `complete_transaction` takes it. Needs
        transaction.two.phase.commit.enable (KIP-939). Raises as `commit_transaction`.
        """
        transactions = self._core.require_transactions()
        return await transactions.prepare(lambda: self._wait_for_all(None))

    async def complete_transaction(self, decided: PreparedTransaction) -> bool:
        """Commit the prepared transaction if it is the one that was decided on, else abort it.

        Returns whether it was committed. Nothing happens where `init_transactions` found none.
        """
        transactions = self._core.require_transactions()
        return await transactions.complete(decided, lambda: self._wait_for_all(None))

    async def abort_transaction(self) -> None:
        """Abort: records that were not sent fail, others are skipped by read_committed consumers.

        Raises FatalTransactionError, and TimeoutError after max.block.ms.
        """
        transactions = self._core.require_transactions()
        try:
            await transactions.abort(lambda: self._wait_for_all(None))
        finally:
            with self._runtime.lock:
                self._core.accumulator.failures.take()
            self._read = self._core.end_read(self._read)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin a transaction and commit it at the end of the block, or abort it on an error.

        The first one calls `init_transactions`. A commit that ends with TimeoutError or is
        cancelled is pending: the next block completes it before it begins its own, or raises
        AbortableTransactionError if it failed.
        """
        await self._end_last_transaction()
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except FatalTransactionError:
            raise
        except BaseException:
            if not self._core.has_pending_commit:
                with suppress(KafkaError):
                    await self.abort_transaction()
            raise

    async def _end_last_transaction(self) -> None:
        """Repeat what an outage or a cancellation has interrupted; then a transaction may begin."""
        call = self._core.interrupted_call()
        try:
            if call is not None:
                await getattr(self, call)()
        except AbortableTransactionError:  # it was not committed: the caller has to know
            with suppress(KafkaError):
                await self.abort_transaction()
            raise

    @asynccontextmanager
    async def process(
        self, consumer: AsyncConsumer, timeout: float = 1.0, max_records: int | None = None
    ) -> AsyncIterator[list[ConsumerRecord]]:
        """Read records and commit their offsets in the transaction of what the block sends.

        The block gets what `consumer.poll` returns. Each record takes effect once: after an error
        of the block and after AbortableTransactionError the consumer is back at the first of them;
        after TimeoutError and a cancellation the next `process` completes the pending commit
        first. Repeat it after these; after FatalTransactionError with a new producer.
        """
        check_consumer(consumer)
        try:
            await self._end_last_transaction()
        except AbortableTransactionError:
            pass  # the consumer is back at the first record of that transaction
        except FatalTransactionError as error:
            self._read = self._core.end_read(self._read, error)
            raise
        records = await consumer.poll(timeout, max_records)
        self._read = read = TransactionalRead(consumer, records)
        try:
            async with self.transaction():
                yield records
                await self.send_offsets_to_transaction(read.offsets, consumer.group_metadata())
        except BaseException as error:
            self._read = self._core.end_read(self._read, error)
            raise

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the topic's partitions; raises TimeoutError after max.block.ms."""
        self._core.require_open()
        check_topic(topic)
        self._runtime.attach()
        start_ms = self._core.now_ms()
        while not (known := self._core.client.metadata.topics.get(topic)) or not known.partitions:
            waited_ms = self._core.now_ms() - start_ms
            with self._runtime.lock:
                self._core.blocked(topic, waited_ms)
            await self._runtime.wait_progress(self._core.recheck_ms(waited_ms))
        return list(known.partitions)

    async def close(self, timeout: float | None = None) -> None:
        """Wait up to timeout seconds for pending deliveries, then close; idempotent.

        Raises DeliveryError, as `flush`, when everything is closed.
        """
        check_timeout(timeout)
        if self._core.client.closed:
            return
        self._core.accumulator.close()
        try:
            if self._runtime.attached:
                with suppress(TimeoutError):
                    await self._wait_for_all(timeout)
        finally:  # a close that is cancelled closes, too
            await self._close_now()
        self._core.raise_failures()

    async def _close_now(self) -> None:
        """Fail the records that are left, and close the connections."""
        with self._runtime.lock:
            self._core.sender.abort_all()
        self._interceptors.close()
        await self._runtime.aclose()
        if self._core.exit_warning is not None:
            self._core.exit_warning.detach()
        with self._runtime.lock:  # batches that a late response returned to the queue
            self._core.sender.abort_all()


def call_on_delivery(
    delivery: Delivery, callback: Callable[[Delivery], None], *, asks: bool = True
) -> None:
    """Call the callback with the delivery once it is done; with asks, that requests the result."""
    batch = delivery.batch
    with batch.owner.runtime.lock:
        if asks:
            delivery.ask()
        if not batch.done:
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append((delivery.position, callback))
            return
    run_callback(callback, delivery)  # without the lock: it may close the producer
