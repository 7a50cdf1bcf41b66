"""A task's producer: batches per partition, sent to leaders, repeated until they are there.

Kafka: org.apache.kafka.clients.producer.internals.{Sender, RecordAccumulator}, one request at a
time. Hot path: benchmarks/spark.py.

With idempotence (the default) a repeated request is not written twice; a task that Spark runs
again writes again: at least once.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.batch import RecordBatch, add_to_sequence
from ottla.spark.cluster import (
    STALE_LEADER_CODES,
    ClusterReader,
    Topic,
    TopicRecreated,
    is_retriable,
)
from ottla.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.apis.produce import ProduceResponse
    from ottla.spark.options import WriteOptions

    Answered = ProduceResponse.TopicProduceResponse.PartitionProduceResponse

ALREADY_STORED = (ErrorCode.DUPLICATE_SEQUENCE_NUMBER,)
"""Codes that say the batch is in the log already."""


class Outgoing(NamedTuple):
    """A batch on its way."""

    partition: TopicPartition
    batch: bytearray
    deadline: float


class BatchSender:
    """Sends batches; `flush` returns when all of them are acknowledged."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.cluster = ClusterReader(options.config, api_timeout_ms=options.api_timeout_ms)
        self.topics: dict[str, Topic] = {}
        self.producer_id, self.producer_epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, list[Outgoing]] = {}
        self._waiting_bytes = 0
        self.records_sent = 0

    def topic(self, name: str) -> Topic:
        """Return a topic with its partitions; KafkaError when it does not exist."""
        found = self.topics.get(name)
        if found is None:
            selected = self.cluster.retry(lambda: self.cluster.named_topics([name]))
            found = self.topics[name] = selected[name]
        return found

    def start(self) -> None:
        """Get a producer id where duplicates are to be prevented."""
        if not self.options.idempotent or self.producer_id >= 0:
            return

        def send() -> None:
            answer = self.cluster.send_to_any(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            )
            if answer.error_code:
                raise KafkaError(answer.error_code)
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

        self.cluster.retry(send)

    def next_sequence(self, partition: TopicPartition, count: int) -> int:
        """Return the first sequence number of the next count records; -1 without idempotence."""
        if self.producer_id < 0:
            return -1
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = add_to_sequence(first, count)
        return first

    def send(self, partition: TopicPartition, batch: bytearray) -> None:
        """Queue a batch; send the queues when they hold a request's worth."""
        deadline = time.monotonic() + self.options.delivery_timeout_ms / 1000
        self._waiting.setdefault(partition, []).append(Outgoing(partition, batch, deadline))
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= self.options.max_request_bytes:
            self.flush()

    def flush(self) -> None:
        """Send everything that waits; KafkaError when a batch cannot be delivered in time."""
        backoff = 0.05
        while self._waiting:
            if not self._send_round():
                time.sleep(backoff)
                backoff = min(backoff * 2, 1.0)
                self._refresh()
        self._waiting_bytes = 0

    def close(self) -> None:
        """Close the connections; nothing is sent any more."""
        self.cluster.close()

    def _send_round(self) -> bool:
        """Send the first batch of every partition; False when some must be tried again."""
        by_leader: dict[Node, list[Outgoing]] = {}
        all_sent = True
        for partition, queue in self._waiting.items():
            leader = self.topic(partition.topic).leaders.get(partition.partition)
            if leader is None:
                self._check_deadline(queue[0], "it has no leader")
                all_sent = False
            else:
                by_leader.setdefault(leader, []).append(queue[0])
        for leader, outgoing in by_leader.items():
            all_sent = self._send_to(leader, outgoing) and all_sent
        return all_sent

    def _send_to(self, leader: Node, outgoing: Sequence[Outgoing]) -> bool:
        timeout = self.options.request_timeout_ms / 1000
        try:
            response = self.cluster.send(leader, self._request(outgoing), timeout=timeout)
        except KafkaError as error:
            if not is_retriable(error):
                raise
            for one in outgoing:
                self._check_deadline(one, error.message)
            return False
        if response is None:  # acks=0: nobody answers
            for one in outgoing:
                self._done(one)
            return True
        answers = self._answers(response)
        taken = [self._take(one, answers[one.partition]) for one in outgoing]
        return all(taken)

    def _answers(self, response: ProduceResponse) -> dict[TopicPartition, Answered]:
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        return {
            TopicPartition(topic.name or names[topic.topic_id], one.index): one
            for topic in response.responses
            for one in topic.partition_responses
        }

    def _request(self, outgoing: Sequence[Outgoing]) -> ProduceRequest:
        topics: dict[str, ProduceRequest.TopicProduceData] = {}
        for one in outgoing:
            name = one.partition.topic
            data = topics.get(name)
            if data is None:
                data = topics[name] = ProduceRequest.TopicProduceData(
                    name=name, topic_id=self.topics[name].topic_id, partition_data=[]
                )
            data.partition_data.append(
                ProduceRequest.TopicProduceData.PartitionProduceData(
                    index=one.partition.partition, records=memoryview(one.batch)
                )
            )
        return ProduceRequest(
            acks=self.options.acks,
            timeout_ms=self.options.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    def _take(self, one: Outgoing, answer: Answered) -> bool:
        """Act on what the leader said about one batch; False when it is to be sent again."""
        code = answer.error_code
        if not code or code in ALREADY_STORED:
            self._done(one)
            return True
        known = ErrorCode(code)
        text = answer.error_message or known.text
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            raise KafkaError(
                known,
                f"{one.partition}: a batch of {len(one.batch)} bytes is larger than the topic's "
                "max.message.bytes; raise that, or lower option kafka.batch.size",
            )
        if code not in STALE_LEADER_CODES and not known.is_retriable:
            raise KafkaError(known, f"{one.partition}: {text}")
        self._check_deadline(one, text)
        return False

    def _done(self, one: Outgoing) -> None:
        queue = self._waiting[one.partition]
        queue.pop(0)
        if not queue:
            del self._waiting[one.partition]
        self.records_sent += RecordBatch(one.batch).record_count

    def _check_deadline(self, one: Outgoing, reason: str) -> None:
        if time.monotonic() > one.deadline:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{one.partition}: not delivered within {self.options.delivery_timeout_ms} ms "
                f"(kafka.delivery.timeout.ms): {reason}",
            )

    def _refresh(self) -> None:
        """Learn leaders anew; a broker that is away does not count as an error yet."""
        try:
            found = self.cluster.existing_topics(self.topics)
        except KafkaError as error:
            if not is_retriable(error):
                raise
            return
        for name, topic in found.items():
            known = self.topics[name]
            if known.topic_id and topic.topic_id != known.topic_id:
                raise TopicRecreated(name, "run the query again to write to the new one")
            self.topics[name] = topic
