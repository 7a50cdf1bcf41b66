"""A task's producer: sends encoded batches through the native producer's accumulator and sender.

Kafka: org.apache.kafka.clients.producer.KafkaProducer, in the calling thread.
Hot path: benchmarks/spark.py.

With idempotence (the default) a retried batch is not written twice. `begin_transaction` makes all
batches part of a transaction, which stays open: the driver ends it. Without one a task that Spark
repeats writes its rows again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.clients.cluster_reader import ClusterReader, TopicLayout, TopicRecreated
from ottla.clients.producer.accumulator import Accumulator
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.transactions import Transactions
from ottla.clients.settings import PRODUCER, read_settings
from ottla.errors import ErrorCode, KafkaError
from ottla.spark.coordination import Coordination
from ottla.spark.decision import Participant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.producer.batches import ProducerBatch
    from ottla.purgatory.pending import Pending
    from ottla.spark.coordination import Mark, TaskProducer
    from ottla.spark.options import WriteOptions
    from ottla.types import TopicPartition


class TaskTransaction(NamedTuple):
    """The transaction that a task writes in."""

    transactional_id: str
    two_phase: bool
    """Whether it is to have no timeout, where the broker allows that."""
    mark: Mark | None = None
    """As it stands while the task may begin; None if it always may."""
    driver: Mark | None = None
    """As it stands until another driver goes on in place of the task's; None if none can."""

    @property
    def marks(self) -> list[Mark]:
        """Those that the task has to find as they are here."""
        return [one for one in (self.mark, self.driver) if one is not None]


TOO_LATE: Final = "another task of this write has failed, or the write has ended without this one"
REQUESTS_IN_MEMORY = 4
"""Batches of so many requests may be queued or in flight before `send` waits."""


class BatchSender:
    """Sends record batches; `flush` returns after all of them are acknowledged."""

    def __init__(
        self,
        options: WriteOptions,
        transaction: TaskTransaction | None = None,
        *,
        first_answer_ms: int | None = None,
    ) -> None:
        """Send at least once without a transaction."""
        given = {} if transaction is None else {"transactional_id": transaction.transactional_id}
        settings = read_settings(
            PRODUCER,
            options.config,
            {
                **given,
                "acks": options.acks,
                "compression_type": options.compression,  # of halves of batches that are too large
                "enable_idempotence": options.idempotent,
                "max_request_size": options.max_request_bytes,
                "request_timeout_ms": options.request_timeout_ms,
                "delivery_timeout_ms": options.delivery_timeout_ms,
            },
        )
        self._settings = settings
        self._transaction = transaction
        self._producer: TaskProducer | None = None
        self._cluster = ClusterReader(
            settings,
            api_timeout_ms=options.api_timeout_ms,
            first_answer_ms=options.first_answer_ms or first_answer_ms,
        )
        self._coordination = Coordination(self._cluster)
        self._runtime = self._cluster.runtime
        client = self._cluster.client
        self._accumulator = Accumulator(
            settings,
            client.metadata,
            rng=client.rng,
            wake=self._runtime.wake,
            wall_ns=self._runtime.environment.wall_ns,
            owner=self._runtime,
        )
        self._sender = Sender(settings, client, self._accumulator)
        client.register(self._sender)
        self._options = options
        self._topics: dict[str, TopicLayout] = {}
        self._unsent_bytes = 0
        self._failure: KafkaError | None = None
        self._accepted_bytes: dict[str, int] = {}
        """The largest batch that topics have taken which have refused larger ones."""
        self.records_sent = 0

    def begin_transaction(self) -> None:
        """Begin the transaction; an earlier one of its id ends.

        KafkaError if the write has ended: the driver no longer ends this transaction. Had it the
        producer already, the write's end has fenced it.
        """
        given = self._transaction
        assert given is not None
        self._coordination.look_up(mark.transactional_id for mark in given.marks)
        producer = self._coordination.init_producer(
            given.transactional_id,
            self._options.transaction_timeout_ms,
            two_phase=given.two_phase,
        )
        self._check_not_late(given)
        self._producer = producer
        transactions = Transactions(self._settings, self._runtime, self._sender)  # type: ignore[arg-type] # a batch needs its client only
        transactions.begin_with(*producer[:3])
        self._sender.transactions = transactions

    def _check_not_late(self, given: TaskTransaction) -> None:
        current = self._coordination.current(mark.transactional_id for mark in given.marks)
        for expected, found in zip(given.marks, current, strict=True):
            if found == expected:
                continue
            if expected == given.driver:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, TOO_LATE)

    @property
    def cluster(self) -> ClusterReader:
        """The connections, which outlive this object if it is not closed."""
        return self._cluster

    @property
    def participant(self) -> Participant | None:
        """The transaction that the records belong to; None without records or a transaction."""
        if self._producer is None or self._transaction is None or not self.records_sent:
            return None
        return Participant(self._transaction.transactional_id, *self._producer[:3])

    @property
    def has_timeout(self) -> bool:
        """Whether the broker aborts the transaction after its timeout."""
        return self._producer is not None and not self._producer.is_two_phase

    def abort_transaction(self) -> None:
        """Abort what was sent, as far as the coordinator can be reached."""
        if self._producer is None or self._transaction is None:
            return
        with suppress(KafkaError):
            name = self._transaction.transactional_id
            self._coordination.end(Participant(name, *self._producer[:3]), committed=False)

    def check_topic(self) -> None:
        """Wait for the cluster; KafkaError if the topic of all rows does not exist."""
        topic = self._options.topic
        self._named_topics([] if topic is None else [topic])

    def _named_topics(self, names: list[str]) -> dict[str, TopicLayout]:
        return self._cluster.named_topics(names, may_create=self._options.may_create_topics)

    def partition_count(self, topic: str) -> int:
        """Return a topic's partition count; KafkaError if it does not exist."""
        if topic not in self._topics:
            self._topics |= self._named_topics([*self._topics, topic])
        return len(self._topics[topic].leaders)

    def batch_bytes(self, topic: str) -> int:
        """Return the limit of a topic's batches: smaller ones where larger ones were refused."""
        limit = self._options.batch_bytes
        return min(limit, self._accepted_bytes.get(topic, limit))

    def send(self, partition: TopicPartition, batch: bytearray) -> None:
        """Queue a batch without a producer id; waits while too many bytes are queued."""
        queued = self._accumulator.append_encoded(partition, batch)
        if queued is None:  # the topic was deleted since `partition_count`
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
        queued.when_done().on_done(self._finished)
        self._unsent_bytes += len(batch)
        limit_bytes = self._options.max_request_bytes
        if self._unsent_bytes >= limit_bytes:
            self._unsent_bytes = 0
            self._runtime.run_turn(self._runtime.now_ms())
            self._wait_until_below(REQUESTS_IN_MEMORY * limit_bytes)

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises KafkaError for the first failed batch."""
        self._wait_until_below(1)

    def close(self) -> None:
        """Close the connections; queued batches are dropped."""
        self._cluster.close()

    def _wait_until_below(self, limit_bytes: int) -> None:
        accumulator = self._accumulator
        while self._failure is None and accumulator.unfinished:
            self._check_topics()
            if accumulator.used_bytes < limit_bytes:
                break
            self._runtime.run_turn()
        if self._failure is not None:
            raise self._failure

    def _finished(self, done: Pending[ProducerBatch]) -> None:
        batch = done.value
        if batch.error is None:
            self.records_sent += batch.record_count
            if batch.split_into is not None:
                topic, size = batch.topic_partition.topic, max(map(_size, _parts(batch)))
                self._accepted_bytes[topic] = min(size, self._accepted_bytes.get(topic, size))
        elif self._failure is None:
            self._failure = _located(batch, batch.error)

    def _check_topics(self) -> None:
        metadata = self._cluster.client.metadata
        for name, topic in self._topics.items():
            current = metadata.topic_id(name)
            if topic.topic_id and current and current != topic.topic_id:
                raise TopicRecreated(
                    name, "the records of this write were for the old one; run the query again"
                )


def _parts(batch: ProducerBatch) -> Iterator[ProducerBatch]:
    """Yield the batches that were written in place of one that was too large."""
    if batch.split_into is None:
        yield batch
    for _, part in batch.split_into or ():
        yield from _parts(part)


def _size(batch: ProducerBatch) -> int:
    return batch.size


def _located(batch: ProducerBatch, error: KafkaError) -> KafkaError:
    place = str(batch.topic_partition)
    return error if place in error.message else KafkaError(error.code, f"{place}: {error.message}")
