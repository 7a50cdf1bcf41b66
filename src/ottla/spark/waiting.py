"""Waits for new records at the end of all partitions, so that an idle query costs little.

Kafka: none; the official connector polls the end offsets without a pause.

Spark polls an idle query for new offsets a hundred times per second. Here a Fetch to each leader
waits at the brokers, for longer the longer a query is idle, and ends with the first new record. A
query that has been at work since the last wait (on another source) waits for a moment only. While
the answers are empty, topics and end offsets are asked for every two seconds only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import KafkaError
from ottla.protocol.apis.fetch import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.cluster_reader import ClusterReader, TopicLayout
    from ottla.purgatory.pending import Pending
    from ottla.types import Node, TopicPartition

PURPOSE: Final = "wait"
"""Of a connection of its own: a waiting request holds back those after it."""
MIN_WAIT_MS: Final = 16
MAX_WAIT_MS: Final = 512
FETCH_WAIT_MS: Final = 2000
"""A Fetch waits over several calls: between two of them nothing is missed."""
LOOK_MS: Final = 2000
"""How often an idle query looks for new partitions, deleted topics and truncated logs."""
BATCH_PAUSE_MS: Final = 50
"""The query has run a micro-batch between two waits that are further apart."""


class RecordWait:
    """The waits of one query's source."""

    def __init__(self, cluster: ClusterReader, isolation_level: int) -> None:
        self._cluster, self._isolation_level = cluster, isolation_level
        self._pending: dict[int, Pending[Any]] = {}
        self._wait_ms = MIN_WAIT_MS
        self._ended_ms = 0
        self._idle_at: Mapping[TopicPartition, int] | None = None
        """Where the last wait ended without records and without errors."""
        self._looked_ms = cluster.runtime.now_ms()

    @property
    def is_idle(self) -> bool:
        """Whether the last wait has found that there is nothing new."""
        return self._idle_at is not None

    def is_idle_at(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether the last wait says that these are the ends, and they were looked up lately."""
        is_recent = self._cluster.runtime.now_ms() - self._looked_ms < LOOK_MS
        return is_recent and positions == self._idle_at

    def looking_up(self) -> None:
        """Note that the caller looks up topics and ends now: the last wait says nothing more."""
        self._idle_at, self._looked_ms = None, self._cluster.runtime.now_ms()

    def wait(
        self, topics: Mapping[str, TopicLayout], positions: Mapping[TopicPartition, int]
    ) -> bool:
        """Wait for records from the positions on; False without any, or any answer."""
        runtime = self._cluster.runtime
        if runtime.now_ms() - self._ended_ms > BATCH_PAUSE_MS:
            self._wait_ms = MIN_WAIT_MS
        is_whole = self._send(topics, positions)

        def is_over() -> bool:  # an answer with an error ends no wait: Spark would ask at once
            return any(_answered(one) is not None for one in self._pending.values())

        runtime.wait_until(is_over, runtime.now_ms() + self._wait_ms)
        answers = [_answered(one) for one in self._pending.values() if one.done]
        has_records = any(part.records for found in answers for part in found or ())
        is_idle = is_whole and not has_records and None not in answers
        self._idle_at = positions if is_idle else None
        self._pending = {id_: one for id_, one in self._pending.items() if not one.done}
        self._wait_ms = MIN_WAIT_MS if has_records else min(2 * self._wait_ms, MAX_WAIT_MS)
        self._ended_ms = runtime.now_ms()
        return has_records

    def _send(
        self, topics: Mapping[str, TopicLayout], positions: Mapping[TopicPartition, int]
    ) -> bool:
        """Have a Fetch wait at each leader; False if a partition has none."""
        by_leader = _by_leader(topics, positions)
        for node, places in by_leader.items():
            if node.node_id not in self._pending:
                self._pending[node.node_id] = self._cluster.client.send(
                    node.node_id, self._request(topics, places), purpose=PURPOSE, node=node
                )
        return sum(map(len, by_leader.values())) == len(positions)

    def _request(
        self, topics: Mapping[str, TopicLayout], places: Mapping[TopicPartition, int]
    ) -> FetchRequest:
        kind = FetchRequest.FetchTopic
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
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


def _answered(pending: Pending[Any]) -> list[Any] | None:
    """Return the partitions of an answer; None without one, or with an error.

    Errors are found by the query's own requests.
    """
    if not pending.done:
        return None
    try:
        answer = pending.value
    except KafkaError:
        return None
    found = [part for topic in answer.responses for part in topic.partitions]
    has_error = answer.error_code or any(part.error_code for part in found)
    return None if has_error else found
