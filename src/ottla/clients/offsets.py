"""Offsets: committed ones and those by time, their requests, and the query of ListOffsets.

Kafka: org.apache.kafka.clients.consumer.{OffsetAndMetadata, OffsetAndTimestamp},
.internals.OffsetFetcher.fetchOffsetsByTimes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.arguments import as_partition
from ottla.errors import ErrorCode, KafkaError
from ottla.errors.base import topic_error
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.purgatory.pending import Pending
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.client import Client
    from ottla.clients.metadata import ClusterMetadata

FIRST_VERSION_WITH_TOPIC_IDS = 10


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read, with the epoch of the record before it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The result of an offset query by timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class CommitIdentity(NamedTuple):
    """The membership in an OffsetCommit; the defaults are those of a non-member."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


def as_offsets(
    given: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets with metadata, from plain offsets or OffsetAndMetadata.

    Raises KafkaError(INVALID_REQUEST) for negative offsets: brokers would store them, but no
    consumer could use them.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"offsets must be a mapping by partition, not {type(given).__name__}")
    found = {as_partition(partition): _as_offset(value) for partition, value in given.items()}
    for partition, value in found.items():
        if value.offset < 0:
            text = f"{partition}: Invalid negative offset {value.offset}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return found


def _as_offset(value: Any) -> OffsetAndMetadata:
    offset = value.offset if isinstance(value, OffsetAndMetadata) else value
    if not isinstance(offset, int):
        text = f"an offset must be int or OffsetAndMetadata, not {type(offset).__name__}: {value!r}"
        raise TypeError(text)
    return value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(offset)


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int],
    metadata: ClusterMetadata,
    *,
    committed_only: bool,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """Return ListOffsets with a timestamp (or special one) for partitions of one leader."""
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for partition, timestamp in timestamps.items():
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = ListOffsetsRequest.ListOffsetsTopic(
                name=partition.topic, partitions=[]
            )
        known = metadata.partition(partition)
        topic.partitions.append(
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=-1 if known is None else known.leader_epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if committed_only else 0,
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


def offset_fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    metadata: ClusterMetadata | None,
    member: CommitIdentity | None = None,
    *,
    require_stable: bool = True,
) -> tuple[OffsetFetchRequest, int | None]:
    """Return OffsetFetch for partitions (None: all of the group), and a version limit.

    With require_stable it waits for the offsets of open transactions (KIP-447).
    """
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics: dict[str, Any] = {}
    for name, partition in partitions or ():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = group.OffsetFetchRequestTopics(
                name=name,
                topic_id=metadata.topic_id(name) if metadata else Uuid(),
                partition_indexes=[],
            )
        topic.partition_indexes.append(partition)
    requested = group(
        group_id=group_id, topics=None if partitions is None else list(topics.values())
    )
    if member is not None and member.member_id:
        requested.member_id, requested.member_epoch = member.member_id, member.generation
    has_ids = partitions is not None and all(topic.topic_id for topic in topics.values())
    limit = None if has_ids and topics else FIRST_VERSION_WITH_TOPIC_IDS - 1
    return OffsetFetchRequest(groups=[requested], require_stable=require_stable), limit


def read_offset_fetch(
    response: Any, names: Mapping[Uuid, str]
) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
    """Return the committed offsets, None for partitions without one; raises group errors."""
    group = response.groups[0]
    if group.error_code:
        raise KafkaError(group.error_code)
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = {}
    for topic in group.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for partition in topic.partitions:
            key = TopicPartition(name, partition.partition_index)
            if partition.error_code:
                found[key] = KafkaError(partition.error_code)
            elif partition.committed_offset < 0:
                found[key] = None
            else:
                found[key] = OffsetAndMetadata(
                    partition.committed_offset,
                    partition.metadata or "",
                    partition.committed_leader_epoch,
                )
    return found


def offset_commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    identity: CommitIdentity,
    metadata: ClusterMetadata | None,
) -> tuple[OffsetCommitRequest, int | None]:
    """Return OffsetCommit, and a version limit if a topic id is unknown."""
    topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for (name, partition), committed in offsets.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name,
                topic_id=metadata.topic_id(name) if metadata else Uuid(),
                partitions=[],
            )
        topic.partitions.append(
            OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=list(topics.values()),
    )
    has_ids = all(topic.topic_id for topic in topics.values())
    return request, None if has_ids else FIRST_VERSION_WITH_TOPIC_IDS - 1


def first_commit_error(response: Any) -> KafkaError | None:
    """Return the first error in an OffsetCommit response."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                return KafkaError(partition.error_code)
    return None


def replace_commit_errors(response: Any, code: ErrorCode) -> None:
    """Replace all errors in an OffsetCommit response by code."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                partition.error_code = code


def _unknown_partition(partition: TopicPartition, count: int) -> KafkaError | None:
    """Return the error of a partition that the metadata lacks: the topic may have got more."""
    if 0 <= partition.partition < count:
        return None
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{partition} does not exist: the topic has {count} partition(s)",
    )


def is_retried(error: KafkaError) -> bool:
    """Whether a call is repeated: also after BROKER_NOT_AVAILABLE, which is not retriable."""
    return error.is_retriable or error.code == ErrorCode.BROKER_NOT_AVAILABLE


def is_retriable_read(error: KafkaError) -> bool:
    """Whether a consumer reads a partition again: also after an unexpected error of its broker.

    Kafka: FetchCollector, ShareFetchCollector and OffsetFetcherUtils log it and go on.
    """
    return error.is_retriable or error.code == ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetQuery:
    """The state machine of one query; the topics must stay in the metadata until it is done.

    `result` completes with all offsets. It fails with the first error that is not retriable, with
    the client's pending error, and at the deadline.
    """

    def __init__(
        self,
        client: Client,
        timestamps: Mapping[TopicPartition, int],
        *,
        committed_only: bool,
        deadline_ms: float,
    ) -> None:
        self.result: Pending[dict[TopicPartition, OffsetAndTimestamp]] = Pending()
        self._client = client
        self._remaining = dict(timestamps)
        self._found: dict[TopicPartition, OffsetAndTimestamp] = {}
        self._committed_only = committed_only
        self._deadline_ms = deadline_ms
        self._in_flight = 0
        self._failure: KafkaError | None = None
        self._retry_at_ms = 0

    def poll(self, now_ms: int) -> None:
        """Send the requests that are due; fail after the deadline."""
        if self.result.done:
            return
        error = self._client.pending_error()
        if error is None and now_ms >= self._deadline_ms:
            error = self._client.timeout_error(
                "Timeout expired before the offsets were known", self._failure
            )
        if error is not None:
            self.result.fail(error)
        elif not self._in_flight and self._retry_at_ms <= now_ms:
            self._send(now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the query is retried or expires."""
        if self.result.done:
            return None
        waits = self._retry_at_ms > self._client.now_ms
        return min(int(self._deadline_ms), self._retry_at_ms) if waits else int(self._deadline_ms)

    def _send(self, now_ms: int) -> None:
        if not self._remaining:
            self.result.complete(self._found)
            return
        client = self._client
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in self._remaining.items():
            leader = client.metadata.leader(partition)
            if leader >= 0:
                by_leader.setdefault(leader, {})[partition] = timestamp
            elif count := client.metadata.partition_count(partition.topic):
                self._failure = _unknown_partition(partition, count) or self._failure
        error = self._topic_error()
        if error is not None:
            self.result.fail(error)
            return
        if not by_leader:
            client.metadata.mark_stale()
            return
        self._in_flight = len(by_leader)
        self._retry_at_ms = now_ms
        for leader, timestamps in by_leader.items():
            request = list_offsets_request(
                timestamps,
                client.metadata,
                committed_only=self._committed_only,
                timeout_ms=client.settings.request_timeout_ms,
            )
            client.send(leader, request).on_done(self._answered)

    def _topic_error(self) -> KafkaError | None:
        metadata = self._client.metadata
        for partition in self._remaining:
            code = metadata.error(partition.topic)
            if code and not KafkaError(code).is_retriable:
                return topic_error(partition.topic, code)
            if partition.partition < 0:  # no newer metadata has it
                return _unknown_partition(partition, metadata.partition_count(partition.topic))
        return None

    def _answered(self, done: Pending[Any]) -> None:
        self._in_flight -= 1
        if done.error is not None:
            self._failed(done.error)
        else:
            for topic in done.value.topics:
                for one in topic.partitions:
                    partition = TopicPartition(topic.name, one.partition_index)
                    if one.error_code:
                        text = f"{partition}: {KafkaError(one.error_code).message}"
                        self._failed(KafkaError(one.error_code, text))
                    elif self._remaining.pop(partition, None) is not None:
                        self._found[partition] = OffsetAndTimestamp(
                            one.offset, one.timestamp, one.leader_epoch
                        )
        if self._in_flight:
            return
        if not self._remaining:
            self.result.complete(self._found)
            return
        self._client.metadata.mark_stale()

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, KafkaError) or not is_retried(error):
            self.result.fail(error)
            return
        self._failure = error
        self._retry_at_ms = self._client.now_ms + self._client.settings.retry_backoff_ms
