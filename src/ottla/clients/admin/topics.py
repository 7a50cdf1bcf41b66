"""Topics and partitions: create, delete, describe, grow, cut.

Kafka: org.apache.kafka.clients.admin.{Admin, NewTopic, TopicDescription, NewPartitions}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import AdminCalls, error_or_none
from ottla.clients.consumer.offsets import OffsetAndTimestamp, list_offsets_request
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_records import DeleteRecordsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.types import Node, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    Answered = tuple[int, dict[Any, Any]]  # for how long to be silent in ms, outcomes by topic

CORRUPT_ONLY = frozenset({ErrorCode.CORRUPT_MESSAGE})
EARLIEST, LATEST = -2, -1
MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -3, -4, -5, -6


class NewTopic(NamedTuple):
    """A topic to be made. -1 leaves partitions or replication to the cluster's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, Any] | None = None
    assignments: Mapping[int, Sequence[int]] | None = None


class CreatedTopic(NamedTuple):
    """What the cluster made of a NewTopic."""

    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int


class TopicListing(NamedTuple):
    """A line of `list_topics`."""

    name: str
    topic_id: Uuid
    is_internal: bool


class PartitionDescription(NamedTuple):
    """A partition with its replicas; leader is None while there is none."""

    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic with its partitions."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: int


class TopicsAdmin(AdminCalls):
    """The part of the admin for topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; each has its own outcome.

        What a quota refuses is asked for again after the pause that the broker names, unless
        retry_on_quota_violation is unset or the pause goes beyond the time.
        """

        async def ask(left: list[Any], seconds: float) -> Answered:
            request = CreateTopicsRequest(
                topics=left,
                timeout_ms=self._request_timeout_ms(timeout),
                validate_only=validate_only,
            )
            answer = await self._call(request, timeout=seconds, error_of=_not_controller)
            return answer.throttle_time_ms, {
                one.name: error_or_none(one.error_code, one.error_message)
                or CreatedTopic(one.name, one.topic_id, one.num_partitions, one.replication_factor)
                for one in answer.topics
            }

        wanted = [_creatable(topic) for topic in topics]
        return await self._within_quota(ask, wanted, timeout, retries=retry_on_quota_violation)

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
        timeout: float | None = None,
    ) -> CreatedTopic | None:
        """Create one topic; raises KafkaError. None when it existed and if_not_exists is set."""
        new = NewTopic(name, partitions, replication_factor, configs)
        outcome = (await self.create_topics([new], timeout=timeout))[name]
        if isinstance(outcome, KafkaError):
            if if_not_exists and outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return None
            raise outcome
        return outcome

    async def delete_topics(
        self,
        topics: Iterable[str | Uuid],
        *,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> dict[str | Uuid, KafkaError | None]:
        """Delete topics by name or by id; each has its own outcome (None: deleted).

        About quotas see `create_topics`.
        """
        wanted = list(topics)
        state = DeleteTopicsRequest.DeleteTopicState

        async def ask(left: list[Any], seconds: float) -> Answered:
            request = DeleteTopicsRequest(topics=left, timeout_ms=self._request_timeout_ms(timeout))
            answer = await self._call(request, timeout=seconds, error_of=_not_controller)
            by_key: dict[Any, KafkaError | None] = {}
            for one in answer.responses:
                outcome = error_or_none(one.error_code, one.error_message)
                by_key[one.name] = by_key[one.topic_id] = outcome
            return answer.throttle_time_ms, by_key

        states = [
            state(topic_id=topic) if isinstance(topic, Uuid) else state(name=topic, topic_id=Uuid())
            for topic in wanted
        ]
        by_key = await self._within_quota(ask, states, timeout, retries=retry_on_quota_violation)
        return {topic: by_key.get(topic) for topic in wanted}

    async def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Delete one topic; raises KafkaError."""
        outcome = (await self.delete_topics([name], timeout=timeout))[name]
        if outcome is not None:
            raise outcome

    async def list_topics(
        self,
        *,
        include_internal: bool = True,
        timeout: float | None = None,
    ) -> list[TopicListing]:
        """Return all topics, by name."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self._call(request, timeout=timeout)
        listed = [
            TopicListing(topic.name, topic.topic_id, topic.is_internal)
            for topic in answer.topics
            if include_internal or not topic.is_internal
        ]
        return sorted(listed)

    async def describe_topics(
        self,
        topics: Iterable[str | Uuid] | None = None,
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str | Uuid, TopicDescription | KafkaError]:
        """Describe topics by name or id (None: all); each has its own outcome."""
        wanted = None if topics is None else list(topics)
        topic_type = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=None
            if wanted is None
            else [
                topic_type(name=None, topic_id=topic)
                if isinstance(topic, Uuid)
                else topic_type(name=topic)
                for topic in wanted
            ],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=include_authorized_operations,
        )
        answer = await self._call(request, timeout=timeout)
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        by_key: dict[Any, TopicDescription | KafkaError] = {}
        for topic in answer.topics:
            described = _described(topic, nodes)
            if topic.topic_id:
                by_key[topic.topic_id] = described
            by_key[topic.name] = described
        if wanted is None:
            return {topic.name: by_key[topic.name] for topic in answer.topics}
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {topic: by_key.get(topic, missing) for topic in wanted}

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Raise the partition count of topics to a new total; each has its own outcome.

        About quotas see `create_topics`.
        """
        topic_type = CreatePartitionsRequest.CreatePartitionsTopic
        placed = assignments or {}

        async def ask(left: list[Any], seconds: float) -> Answered:
            request = CreatePartitionsRequest(
                topics=left,
                timeout_ms=self._request_timeout_ms(timeout),
                validate_only=validate_only,
            )
            answer = await self._call(request, timeout=seconds, error_of=_not_controller_in_results)
            return answer.throttle_time_ms, {
                one.name: error_or_none(one.error_code, one.error_message) for one in answer.results
            }

        wanted = [
            topic_type(
                name=name,
                count=count,
                assignments=[
                    topic_type.CreatePartitionsAssignment(broker_ids=list(brokers))
                    for brokers in placed[name]
                ]
                if name in placed
                else None,
            )
            for name, count in counts.items()
        ]
        return await self._within_quota(ask, wanted, timeout, retries=retry_on_quota_violation)

    async def _within_quota(
        self,
        ask: Callable[[list[Any], float], Awaitable[Answered]],
        wanted: list[Any],
        timeout: float | None,
        *,
        retries: bool,
    ) -> dict[Any, Any]:
        """Ask for all, and again for what a quota refused, until the time would be up."""
        deadline_ms = self._deadline_ms(timeout)
        outcomes: dict[Any, Any] = {}
        left = wanted
        while True:
            pause_ms, answered = await ask(left, self._seconds_left(deadline_ms))
            outcomes.update(answered)
            left = [one for one in left if _is_over_quota(answered.get(_key(one)))]
            pause_ms = max(pause_ms, self._settings.retry_backoff_ms)
            if not left or not retries or self._runtime.now_ms() + pause_ms >= deadline_ms:
                return outcomes
            await self._runtime.sleep(pause_ms)

    # ------------------------------------------------------------ by leader

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        """Return offsets by timestamp in ms or by a special one (EARLIEST, LATEST, …).

        An offset of -1 means that there is no such record.
        """

        def build(part: Mapping[TopicPartition, int]) -> Any:
            return list_offsets_request(
                part,
                self._client.metadata,
                committed_only=read_committed,
                timeout_ms=self._settings.request_timeout_ms,
            )

        def read(answer: Any) -> dict[TopicPartition, Any]:
            return {
                TopicPartition(topic.name, one.partition_index): error_or_none(one.error_code)
                or OffsetAndTimestamp(one.offset, one.timestamp, one.leader_epoch)
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._by_leader(timestamps, build, read, timeout)

    async def delete_records(
        self,
        before_offsets: Mapping[TopicPartition, int],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete records below offsets (-1: all); returns the new log start offsets."""
        topic_type = DeleteRecordsRequest.DeleteRecordsTopic

        def build(part: Mapping[TopicPartition, int]) -> Any:
            topics: dict[str, Any] = {}
            for (name, partition), offset in part.items():
                topic = topics.setdefault(name, topic_type(name=name, partitions=[]))
                topic.partitions.append(
                    topic_type.DeleteRecordsPartition(partition_index=partition, offset=offset)
                )
            return DeleteRecordsRequest(
                topics=list(topics.values()), timeout_ms=self._request_timeout_ms(timeout)
            )

        def read(answer: Any) -> dict[TopicPartition, Any]:
            return {
                TopicPartition(topic.name, one.partition_index): error_or_none(one.error_code)
                or one.low_watermark
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._by_leader(before_offsets, build, read, timeout)

    async def _by_leader(
        self,
        wanted: Mapping[TopicPartition, int],
        build: Callable[[Mapping[TopicPartition, int]], Any],
        read: Callable[[Any], dict[TopicPartition, Any]],
        timeout: float | None,
    ) -> dict[TopicPartition, Any]:
        """Send each leader its part; try again for partitions whose leader was wrong."""
        deadline_ms = self._deadline_ms(timeout)
        left = {TopicPartition(*partition): value for partition, value in wanted.items()}
        if not left:
            return {}
        topics = {partition.topic for partition in left}
        with self._looking_at(topics):
            found = await self._ask_leaders(left, build, read, deadline_ms)
        return {
            TopicPartition(*partition): found[TopicPartition(*partition)] for partition in wanted
        }

    @contextmanager
    def _looking_at(self, topics: set[str]) -> Iterator[None]:
        """Have metadata of topics for the time of a question; it may be one of several."""
        metadata = self._client.metadata
        self._looked_at.update(topics)
        metadata.want(topics)
        try:
            yield
        finally:
            self._looked_at.subtract(topics)
            self._looked_at = +self._looked_at
            metadata.want_only(self._looked_at)

    async def _ask_leaders(
        self,
        left: dict[TopicPartition, int],
        build: Callable[[Mapping[TopicPartition, int]], Any],
        read: Callable[[Any], dict[TopicPartition, Any]],
        deadline_ms: float,
    ) -> dict[TopicPartition, Any]:
        result: dict[TopicPartition, Any] = {}
        await self._refresh_until(deadline_ms)
        while left:
            failure = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            for leader, part in self._split(left, result).items():
                try:
                    pending = self._client.send(
                        leader, build(part), timeout_ms=self._patience_ms(deadline_ms)
                    )
                    answer = await self._runtime.wait_for(pending)
                except KafkaError as error:
                    failure = error
                    continue
                for partition, outcome in read(answer).items():
                    if isinstance(outcome, KafkaError) and outcome.is_retriable:
                        failure = outcome
                    else:
                        result[partition] = outcome
            left = {
                partition: value for partition, value in left.items() if partition not in result
            }
            if left:
                try:
                    # A leader that does not know a topic of the metadata will, or is none.
                    await self._pause(failure, deadline_ms, not_retried=CORRUPT_ONLY)
                    await self._refresh_until(deadline_ms)
                except KafkaError as error:
                    result.update(dict.fromkeys(left, error))
                    break
        return result

    def _split(
        self, left: Mapping[TopicPartition, int], result: dict[TopicPartition, Any]
    ) -> dict[int, dict[TopicPartition, int]]:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        metadata = self._client.metadata
        for partition, value in left.items():
            code = metadata.error(partition.topic)
            count = metadata.partition_count(partition.topic)
            leader = metadata.leader(partition)
            if code and KafkaError(code).code != ErrorCode.LEADER_NOT_AVAILABLE:
                result[partition] = KafkaError(code)
            elif partition.partition < 0 or 0 < count <= partition.partition:
                result[partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif leader >= 0:
                by_leader.setdefault(leader, {})[partition] = value
        return by_leader

    def _request_timeout_ms(self, timeout: float | None) -> int:
        limit: int = self._settings.request_timeout_ms
        return limit if timeout is None else min(limit, int(timeout * 1000))


def _key(wanted: Any) -> Any:
    """Return by what the answer names a topic that was asked for."""
    return getattr(wanted, "topic_id", None) or wanted.name


def _is_over_quota(outcome: Any) -> bool:
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return isinstance(outcome, KafkaError) and outcome.code == code


def _creatable(topic: NewTopic | str) -> CreateTopicsRequest.CreatableTopic:
    new = NewTopic(topic) if isinstance(topic, str) else topic
    cls = CreateTopicsRequest.CreatableTopic
    return cls(
        name=new.name,
        num_partitions=-1 if new.assignments else new.partitions,
        replication_factor=-1 if new.assignments else new.replication_factor,
        assignments=[
            cls.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (new.assignments or {}).items()
        ],
        configs=[
            cls.CreatableTopicConfig(name=name, value=config_text(value))
            for name, value in (new.configs or {}).items()
        ],
    )


def config_text(value: Any) -> str | None:
    """Return a config value as the text that Kafka stores."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _described(topic: Any, nodes: Mapping[int, Node]) -> TopicDescription | KafkaError:
    if topic.error_code:
        return KafkaError(topic.error_code)
    partitions = tuple(
        PartitionDescription(
            one.partition_index,
            nodes.get(one.leader_id),
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.offline_replicas),
        )
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    )
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.is_internal,
        partitions,
        topic.topic_authorized_operations,
    )


def _not_controller(answer: Any) -> int:
    """Return NOT_CONTROLLER when the answer is full of it: worth another try."""
    outcomes = getattr(answer, "topics", None) or getattr(answer, "responses", None) or ()
    return next((o.error_code for o in outcomes if o.error_code == ErrorCode.NOT_CONTROLLER), 0)


def _not_controller_in_results(answer: Any) -> int:
    codes = (one.error_code for one in answer.results)
    return next((code for code in codes if code == ErrorCode.NOT_CONTROLLER), 0)
