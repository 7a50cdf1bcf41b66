"""Fetches a range of offsets, in chunks, from the partition's leader.

Kafka: org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer. Hot path: benchmarks/spark.py.

Requests are sessionless: a task of Spark or a scan reads one partition once. The leader may change
and brokers may restart: it retries from its position until `poll_timeout_ms` without progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.clients.cluster_reader import OLD_OFFSETS, TopicRecreated, is_retriable
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.cluster_reader import ClusterReader
    from ottla.protocol.apis.fetch import FetchResponse
    from ottla.types import Node

    PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

WAIT_MS = 500
BACKOFF_MS = 100
TOPIC_ID_MISMATCH = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


class Chunk(NamedTuple):
    """The records of one Fetch response: complete record batches, perhaps a partial last one."""

    records: memoryview
    aborted: list[tuple[int, int]] | None
    """(producer id, first offset) of aborted transactions; None unless read committed."""


class OffsetRange(NamedTuple):
    """Offsets from start to until, exclusive."""

    partition: TopicPartition
    start: int
    until: int

    @property
    def size(self) -> int:
        """The number of offsets, an upper bound of the records."""
        return self.until - self.start


class FetchOptions(Protocol):
    """The part of a reader's options that a fetcher needs."""

    @property
    def poll_timeout_ms(self) -> int:
        """How long a range may make no progress."""

    @property
    def partition_max_bytes(self) -> int:
        """The size of a response."""

    @property
    def isolation_level(self) -> int:
        """0, or 1 for read_committed."""

    @property
    def fail_on_data_loss(self) -> bool:
        """Whether deleted offsets are an error."""


class RangeFetcher:
    """Fetches one offset range; the caller reports its progress with `advance`."""

    def __init__(
        self,
        cluster: ClusterReader,
        options: FetchOptions,
        offset_range: OffsetRange,
        topic_id: str,
        leader: Node | None,
    ) -> None:
        """Take a cluster, which `chunks` closes."""
        self.options = options
        self.offset_range = offset_range
        self.position = offset_range.start
        self._topic_id = Uuid.parse(topic_id) if topic_id else Uuid()
        self._leader = leader
        self._cluster = cluster
        self._runtime = self._cluster.runtime
        if leader is not None:  # planning knew it: no metadata request before the first Fetch
            self._cluster.client.metadata.assume_current(self._runtime.now_ms())

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks up to the end of the range; raises KafkaError.

        The caller calls `advance` after each chunk.
        """
        deadline_ms = self._new_deadline_ms()
        try:
            while self.position < self.offset_range.until:
                previous = self.position
                answer = self._fetch()
                if answer is not None and isinstance(answer.records, memoryview):
                    yield Chunk(answer.records, self._aborted(answer))
                if self.position > previous:
                    deadline_ms = self._new_deadline_ms()
                elif self._runtime.now_ms() > deadline_ms:
                    self._skip_missing_end()
        finally:
            self._cluster.close()

    def advance(self, next_offset: int) -> None:
        """Continue at next_offset, after the last batch, also an empty one."""
        self.position = max(self.position, next_offset)

    def _new_deadline_ms(self) -> int:
        return self._runtime.now_ms() + self.options.poll_timeout_ms

    def _skip_missing_end(self) -> None:
        """Skip offsets after the end of the log; KafkaError if they are required or may come."""
        part = self.offset_range.partition
        end = self._cluster.offsets({part: LATEST_TIMESTAMP})[part]
        if end > self.position:
            raise self._poll_timed_out()
        if self.options.fail_on_data_loss:
            raise data_loss(
                f"{self.offset_range.partition}: offsets up to {self.offset_range.until} were to "
                f"be read, but the log ends at {end}"
            )
        self.advance(self.offset_range.until)

    def _poll_timed_out(self) -> KafkaError:
        return KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{self.offset_range.partition}: no records from offset {self.position} on within "
            f"{self.options.poll_timeout_ms} ms (option kafkaConsumer.pollTimeoutMs), though "
            f"offsets up to {self.offset_range.until} were planned",
        )

    def _aborted(self, answer: PartitionData) -> list[tuple[int, int]] | None:
        if not self.options.isolation_level:
            return None
        return [
            (transaction.producer_id, transaction.first_offset)
            for transaction in answer.aborted_transactions or ()
        ]

    def _fetch(self) -> PartitionData | None:
        """Send one Fetch to the leader; None after a retriable error or a move of the position."""
        try:
            leader = self._leader or self._find_leader()
            self._leader = leader
            client = self._cluster.client
            client.advance(self._runtime.now_ms())
            response: FetchResponse = self._runtime.wait_for(
                client.send(leader.node_id, self._request(), node=leader)
            )
        except KafkaError as error:
            self._leader = None
            if not is_retriable(error):
                raise
            self._runtime.sleep(BACKOFF_MS)
            return None
        if response.error_code:
            raise KafkaError(response.error_code)
        return self._checked(response.responses[0].partitions[0])

    def _request(self) -> FetchRequest:
        topic, partition = self.offset_range.partition
        size = self.options.partition_max_bytes
        requested = FetchRequest.FetchTopic.FetchPartition(
            partition=partition, fetch_offset=self.position, partition_max_bytes=size
        )
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=self.options.isolation_level,
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic, topic_id=self._topic_id, partitions=[requested]
                )
            ],
        )

    def _find_leader(self) -> Node:
        topic, partition = self.offset_range.partition
        found = self._cluster.existing_topics([topic]).get(topic)
        leader = None if found is None else found.leaders.get(partition)
        if found is not None and self._topic_id and found.topic_id != self._topic_id:
            raise TopicRecreated(topic, OLD_OFFSETS)
        if leader is None:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{self.offset_range.partition}: no leader"
            )
        return leader

    def _checked(self, data: PartitionData) -> PartitionData | None:
        code = data.error_code
        if not code:
            return data
        if code in TOPIC_ID_MISMATCH:
            self._find_leader()  # raises if the topic was recreated; else the broker lagged
            self._runtime.sleep(BACKOFF_MS)
            return None
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_deleted()
            return None
        error = KafkaError(code)
        if error.is_retriable:
            self._leader = None
            self._runtime.sleep(BACKOFF_MS)
            return None
        raise KafkaError(error.code, f"{self.offset_range.partition}: {error.message}")

    def _skip_deleted(self) -> None:
        """Skip deleted offsets, or raise KafkaError with failOnDataLoss."""
        part = self.offset_range.partition
        earliest = self._cluster.offsets({part: EARLIEST_TIMESTAMP})[part]
        if self.options.fail_on_data_loss:
            if earliest <= self.position:
                latest = self._cluster.offsets({part: LATEST_TIMESTAMP})[part]
                raise beyond_end(
                    f"{part}: offset {self.position} is to be read, but the log ends at {latest}"
                )
            raise data_loss(
                f"{part}: offsets {self.position} to {self.offset_range.until - 1} were to be "
                f"read, but the log starts at {earliest}"
            )
        self.advance(earliest if earliest > self.position else self.offset_range.until)


def beyond_end(what: str) -> KafkaError:
    """Return the error for offsets that a log does not reach."""
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{what}. Was the topic deleted and created again, or was its log truncated? Option "
        "failOnDataLoss=false continues at the end",
    )


def data_loss(what: str) -> KafkaError:
    """Return the error for records deleted by retention or truncation."""
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{what}. Records were lost to retention or truncation before they were read; "
        "option failOnDataLoss=false continues with the remaining records",
    )
