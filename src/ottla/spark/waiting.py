"""Waits for new records at the end of all partitions, so that an idle query costs little.

Kafka: none; the official connector polls the end offsets without a pause.

Spark polls an idle query for new offsets a hundred times per second. Here a Fetch to each leader
waits at the brokers, for longer the longer a query is idle, and ends with the first new record. A
query that has been at work since the last wait (on another source) waits for a moment only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import KafkaError
from ottla.protocol.apis.fetch import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.purgatory.pending import Pending
    from ottla.spark.cluster import ClusterReader, TopicLayout
    from ottla.types import Node, TopicPartition

PURPOSE: Final = "wait"
"""Of a connection of its own: a waiting request holds back those after it."""
MIN_WAIT_MS: Final = 16
MAX_WAIT_MS: Final = 512
BATCH_PAUSE_MS: Final = 50
"""The query has run a micro-batch between two waits that are further apart."""


class RecordWait:
    """The waits of one query's source."""

    def __init__(self, cluster: ClusterReader, isolation_level: int) -> None:
        self._cluster, self._isolation_level = cluster, isolation_level
        self._pending: dict[int, Pending[Any]] = {}
        self._wait_ms = MIN_WAIT_MS
        self._ended_ms = 0

    def wait(
        self, topics: Mapping[str, TopicLayout], positions: Mapping[TopicPartition, int]
    ) -> bool:
        """Wait for records from the positions on; False without any, or any answer."""
        runtime = self._cluster.runtime
        if runtime.now_ms() - self._ended_ms > BATCH_PAUSE_MS:
            self._wait_ms = MIN_WAIT_MS
        for node, places in _by_leader(topics, positions).items():
            if node.node_id not in self._pending:
                request = self._request(topics, places)
                self._pending[node.node_id] = self._cluster.client.send(
                    node.node_id, request, purpose=PURPOSE, node=node
                )
        has_records = False

        def is_over() -> bool:
            nonlocal has_records
            has_records = any(_has_records(one) for one in self._pending.values())
            return has_records

        runtime.wait_until(is_over, runtime.now_ms() + self._wait_ms)
        self._pending = {id_: one for id_, one in self._pending.items() if not one.done}
        self._wait_ms = MIN_WAIT_MS if has_records else min(2 * self._wait_ms, MAX_WAIT_MS)
        self._ended_ms = runtime.now_ms()
        return has_records

    def _request(
        self, topics: Mapping[str, TopicLayout], places: Mapping[TopicPartition, int]
    ) -> FetchRequest:
        kind = FetchRequest.FetchTopic
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1,
            isolation_level=self._isolation_level,
            topics=[
                kind(
                    topic=part.topic,
                    topic_id=topics[part.topic].topic_id,
                    partitions=[
                        kind.FetchPartition(
                            partition=part.partition, fetch_offset=offset, partition_max_bytes=1
                        )
                    ],
                )
                for part, offset in places.items()
            ],
        )


def _by_leader(
    topics: Mapping[str, TopicLayout], positions: Mapping[TopicPartition, int]
) -> dict[Node, dict[TopicPartition, int]]:
    found: dict[Node, dict[TopicPartition, int]] = {}
    for part, offset in positions.items():
        topic = topics.get(part.topic)
        leader = None if topic is None else topic.leaders.get(part.partition)
        if leader is not None:
            found.setdefault(leader, {})[part] = offset
    return found


def _has_records(pending: Pending[Any]) -> bool:
    """Whether an answer has records; errors are found by the query's own requests."""
    if not pending.done:
        return False
    try:
        answer = pending.value
    except KafkaError:
        return False
    return any(part.records for topic in answer.responses for part in topic.partitions)
