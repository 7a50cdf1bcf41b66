"""One task's share of a partition, fetched chunk by chunk from its leader.

Kafka: org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer. Hot path: benchmarks/spark.py.

Requests are sessionless: a task reads one partition once. The leader may move and brokers may
restart meanwhile: the task asks again, from the offset it has come to, until its time is up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.fetch import FetchRequest
from ottla.spark.cluster import STALE_LEADER_CODES, ClusterReader, TopicRecreated, is_retriable
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.apis.fetch import FetchResponse
    from ottla.spark.options import ReadOptions
    from ottla.spark.planning import OffsetRange
    from ottla.types import Node

    PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

WAIT_MS = 500
TOPIC_ID_MISMATCH = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})


class Chunk(NamedTuple):
    """What one Fetch answered: whole record batches, the last one perhaps cut short."""

    records: memoryview
    aborted: list[tuple[int, int]] | None
    """(producer id, first offset) of aborted transactions; None unless read committed."""


class RangeFetcher:
    """Fetches one offset range. `advance` says how far the caller has come."""

    def __init__(
        self, options: ReadOptions, offset_range: OffsetRange, topic_id: str, leader: Node | None
    ) -> None:
        self.options = options
        self.offset_range = offset_range
        self.position = offset_range.start
        self._topic_id = Uuid.parse(topic_id) if topic_id else Uuid()
        self._leader = leader
        self._cluster = ClusterReader(
            options.config, api_timeout_ms=options.poll_timeout_ms, seed=leader
        )

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks until the range is read; KafkaError when that cannot be.

        The caller calls `advance` after each chunk.
        """
        deadline = self._new_deadline()
        try:
            while self.position < self.offset_range.until:
                previous = self.position
                answer = self._fetch()
                if answer is not None and isinstance(answer.records, memoryview):
                    yield Chunk(answer.records, self._aborted(answer))
                if self.position > previous:
                    deadline = self._new_deadline()
                elif time.monotonic() > deadline:
                    self._skip_missing_end()
        finally:
            self._cluster.close()

    def advance(self, next_offset: int) -> None:
        """Go on at next_offset, which is past the last batch seen, also an empty one."""
        self.position = max(self.position, next_offset)

    def _new_deadline(self) -> float:
        return time.monotonic() + self.options.poll_timeout_ms / 1000

    def _skip_missing_end(self) -> None:
        """Give up a rest that the log does not have any more; KafkaError when it may yet come."""
        end = self._cluster.offsets({self.offset_range.partition: -1})[self.offset_range.partition]
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
        return [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]

    def _fetch(self) -> PartitionData | None:
        """Ask the leader once; None when it was worth a try but brought nothing."""
        try:
            leader = self._leader or self._find_leader()
            self._leader = leader
            response: FetchResponse = self._cluster.send(leader, self._request())
        except KafkaError as error:
            self._leader = None
            if not is_retriable(error):
                raise
            time.sleep(0.1)
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
            raise TopicRecreated(topic, "start the query with a new checkpoint")
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
            self._find_leader()  # raises when the topic is another one; else its news were late
            time.sleep(0.1)
            return None
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_deleted()
            return None
        known = ErrorCode(code)
        if code in STALE_LEADER_CODES or known.is_retriable:
            self._leader = None
            time.sleep(0.1)
            return None
        raise KafkaError(known, f"{self.offset_range.partition}: {known.text}")

    def _skip_deleted(self) -> None:
        """Go past offsets that are gone, or raise KafkaError when that was not allowed."""
        part = self.offset_range.partition
        earliest = self._cluster.offsets({part: -2})[part]
        if self.options.fail_on_data_loss:
            raise data_loss(
                f"{part}: offsets {self.position} to {self.offset_range.until - 1} were to be "
                f"read, but the log starts at {earliest}"
            )
        self.advance(earliest if earliest > self.position else self.offset_range.until)


def data_loss(what: str) -> KafkaError:
    """Return the error for records that are no longer there (retention, truncation)."""
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{what}. Records were lost to retention or truncation before they were read; "
        "option failOnDataLoss=false goes on with what is there",
    )
