"""A blocking view of a cluster for Spark's worker processes: topics, leaders, offsets.

Kafka: org.apache.spark.sql.kafka010.{KafkaOffsetReaderAdmin, ConsumerStrategy}.

Brokers may go away and come back: every question is asked again, of whoever answers, until its
deadline; what a user then reads is one line.
"""

from __future__ import annotations

import re
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.clients.bootstrap import bootstrap_nodes, unreachable
from ottla.clients.connection import BlockingConnection
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.types import Node, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from ottla.protocol.apis.metadata import MetadataResponse
    from ottla.protocol.schema import Request
    from ottla.spark.options import Selection

T = TypeVar("T")
REQUEST_TIMEOUT_SECONDS = 15.0
INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.05, 1.0
NEW_TOPIC_TIMEOUT_SECONDS = 3.0
"""How long a topic that is not known may still be about to appear: creation spreads by metadata."""
CONNECTION_ERRORS = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
STALE_LEADER_CODES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Topic(NamedTuple):
    """A topic as metadata has it; leaders by partition, None where there is none."""

    name: str
    topic_id: Uuid
    leaders: dict[int, Node | None]
    is_internal: bool = False


class ClusterReader:
    """Connections to the brokers of one cluster; one request at a time each."""

    def __init__(
        self, config: Mapping[str, str], *, api_timeout_ms: int = 60_000, seed: Node | None = None
    ) -> None:
        self._config = dict(config)
        self._api_timeout = api_timeout_ms / 1000
        self._connections: dict[tuple[str, int], BlockingConnection] = {}
        self._bootstrap = bootstrap_nodes(self._config["bootstrap.servers"].split(","))
        self._brokers: dict[int, Node] = {} if seed is None else {seed.node_id: seed}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ------------------------------------------------------------ asking

    def connection(self, node: Node) -> BlockingConnection:
        """Return an open connection to a node; KafkaError(NETWORK_EXCEPTION) when none is made."""
        place = (node.host, node.port)
        found = self._connections.get(place)
        if found is None:
            found = self._connections[place] = BlockingConnection(
                node.host, node.port, timeout=REQUEST_TIMEOUT_SECONDS, config=self._config
            )
        return found

    def send(
        self, node: Node, request: Request, *, timeout: float = REQUEST_TIMEOUT_SECONDS
    ) -> Any:
        """Send a request to a node; a connection that failed is dropped, its error raised."""
        connection = self.connection(node)
        try:
            return connection.request(request, timeout)
        except (KafkaError, OSError):
            self.drop(node)
            raise

    def drop(self, node: Node) -> None:
        """Forget the connection to a node."""
        connection = self._connections.pop((node.host, node.port), None)
        if connection is not None:
            connection.close()

    def send_to_any(self, request: Request) -> Any:
        """Send a request to the first node that answers; KafkaError when none does."""
        reason = ""
        for node in (*self._brokers.values(), *self._bootstrap):
            try:
                return self.send(node, request)
            except KafkaError as error:
                if error.code not in (*CONNECTION_ERRORS, ErrorCode.CORRUPT_MESSAGE):
                    raise
                reason = error.message
        raise unreachable(
            self._bootstrap, reason.partition(":")[0] if not reason else _without_hint(reason)
        )

    def retry(self, attempt: Callable[[], T], *, seconds: float | None = None) -> T:
        """Try until it succeeds, until an error that time does not heal, or until the deadline."""
        deadline = time.monotonic() + (self._api_timeout if seconds is None else seconds)
        backoff = INITIAL_BACKOFF_SECONDS
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not is_retriable(error) or time.monotonic() + backoff > deadline:
                    raise
            time.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)

    # ------------------------------------------------------------ topics

    def topics(self, selection: Selection) -> dict[str, Topic]:
        """Return the chosen topics with their leaders; KafkaError naming one that is missing.

        For an assignment only the assigned partitions are in `leaders`.
        """
        if selection.pattern:
            everything = self.retry(lambda: self._metadata(None))
            pattern = re.compile(selection.pattern)
            return {
                name: topic
                for name, topic in sorted(everything.items())
                if pattern.fullmatch(name) and not topic.is_internal
            }
        topics = self.retry(lambda: self.named_topics(selection.names))
        if not selection.partitions:
            return topics
        assigned: dict[str, dict[int, Node | None]] = {name: {} for name in topics}
        for topic, partition in selection.partitions:
            leaders = topics[topic].leaders
            if partition not in leaders:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has partitions 0 to {len(leaders) - 1}, not {partition}",
                )
            assigned[topic][partition] = leaders[partition]
        return {name: topics[name]._replace(leaders=leaders) for name, leaders in assigned.items()}

    def named_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return topics by name, waiting a moment for new ones; KafkaError when one is missing."""
        requested = sorted(names)
        deadline = time.monotonic() + NEW_TOPIC_TIMEOUT_SECONDS
        while True:
            found = self._metadata(requested)
            missing = [name for name in requested if name not in found]
            if not missing:
                return found
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        existing = [name for name in self._metadata(None) if not name.startswith("__")]
        near = get_close_matches(missing[0], existing, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        # INVALID_TOPIC_EXCEPTION and not the retriable code: waiting longer will not help
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no topic {missing[0]!r}{hint}"
        )

    def existing_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of the topics that exist, at once."""
        requested = sorted(names)
        return self.retry(lambda: self._metadata(requested)) if requested else {}

    def _metadata(self, names: list[str] | None) -> dict[str, Topic]:
        requested = None
        if names is not None:
            requested = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer: MetadataResponse = self.send_to_any(
            MetadataRequest(topics=requested, allow_auto_topic_creation=False)
        )
        self._brokers = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in answer.brokers
        }
        return {
            topic.name: self._topic(topic)
            for topic in answer.topics
            if topic.name is not None and not self._is_unknown(topic)
        }

    @staticmethod
    def _is_unknown(topic: MetadataResponse.MetadataResponseTopic) -> bool:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return True
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            code = ErrorCode(topic.error_code)
            raise KafkaError(code, f"topic {topic.name!r}: {code.text}")
        return False

    def _topic(self, topic: MetadataResponse.MetadataResponseTopic) -> Topic:
        leaders = {
            partition.partition_index: self._brokers.get(partition.leader_id)
            for partition in sorted(topic.partitions, key=lambda part: part.partition_index)
        }
        return Topic(topic.name or "", topic.topic_id, leaders, topic.is_internal)

    # ------------------------------------------------------------ offsets

    def offsets(
        self, requested: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, int]:
        """Return the offset for each partition's timestamp in ms; -2 earliest, -1 latest.

        -1 as an answer: no record is that young. The deadline is the API timeout.
        """
        found: dict[TopicPartition, int] = {}

        def attempt() -> dict[TopicPartition, int]:
            missing = {part: at for part, at in requested.items() if part not in found}
            topics = self._metadata(sorted({part.topic for part in missing}))
            groups: dict[Node, dict[TopicPartition, int]] = {}
            for part, at in missing.items():
                topic = topics.get(part.topic)
                leader = None if topic is None else topic.leaders.get(part.partition)
                if leader is None:
                    raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{part} has no leader")
                groups.setdefault(leader, {})[part] = at
            for leader, group in groups.items():
                found.update(self._list_offsets(leader, group, isolation_level))
            return found

        return self.retry(attempt)

    def _list_offsets(
        self, leader: Node, group: Mapping[TopicPartition, int], isolation_level: int
    ) -> dict[TopicPartition, int]:
        request_topic = ListOffsetsRequest.ListOffsetsTopic
        topics: dict[str, Any] = {}
        for part, at in group.items():
            topic = topics.setdefault(part.topic, request_topic(name=part.topic, partitions=[]))
            topic.partitions.append(
                request_topic.ListOffsetsPartition(partition_index=part.partition, timestamp=at)
            )
        answer = self.send(
            leader,
            ListOffsetsRequest(
                replica_id=-1, isolation_level=isolation_level, topics=list(topics.values())
            ),
        )
        found = {}
        for topic in answer.topics:
            for answered in topic.partitions:
                part = TopicPartition(topic.name, answered.partition_index)
                if answered.error_code:
                    raise KafkaError(
                        answered.error_code, f"{part}: {ErrorCode(answered.error_code).text}"
                    )
                found[part] = answered.offset
        return found


class TopicRecreated(KafkaError):
    """A topic was deleted and made anew while its old incarnation was in use."""

    def __init__(self, topic: str, advice: str) -> None:
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic {topic!r} was deleted and created again: the offsets of the old one mean "
            f"nothing in it; {advice}",
        )


def is_retriable(error: KafkaError) -> bool:
    """Whether an error may heal with time: lost connections, moved leaders, retriable codes."""
    if isinstance(error, (CorruptMessage, TopicRecreated)):
        return False
    return (
        error.is_retriable
        or error.code in CONNECTION_ERRORS
        or error.code is ErrorCode.BROKER_NOT_AVAILABLE
    )


def _without_hint(reason: str) -> str:
    return reason.partition(": is a broker")[0]
