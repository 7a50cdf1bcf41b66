"""Admin calls for topics: create, delete, describe, add partitions, delete records.

Kafka: org.apache.kafka.clients.admin.{Admin, NewTopic, TopicDescription, NewPartitions}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import AdminCalls, error_or_none, topic_error_or_none
from ottla.clients.arguments import (
    as_partition,
    check_int,
    check_timeout,
    check_topic,
    either,
    listed,
)
from ottla.clients.offsets import OffsetAndTimestamp, list_offsets_request
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_records import DeleteRecordsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.types import Node, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    Answered = tuple[int, dict[Any, Any]]  # throttle time in ms, outcomes by topic

CORRUPT_ONLY = frozenset({ErrorCode.CORRUPT_MESSAGE})


class NewTopic(NamedTuple):
    """A topic to create; -1 uses the cluster's default for partitions or replication."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, Any] | None = None
    assignments: Mapping[int, Sequence[int]] | None = None


class CreatedTopic(NamedTuple):
    """A created topic as the cluster reports it."""

    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int


class TopicListing(NamedTuple):
    """One entry of `list_topics`."""

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
        """Create topics; returns an outcome for each.

        Requests that a quota rejects are sent again after the broker's throttle time, unless
        retry_on_quota_violation is false or the timeout would pass.
        """

        async def call(remaining: list[Any], seconds: float) -> Answered:
            request = CreateTopicsRequest(
                topics=remaining,
                timeout_ms=self._request_timeout_ms(timeout),
                validate_only=validate_only,
            )
            answer = await self._call(request, timeout=seconds, error_of=_not_controller)
            return answer.throttle_time_ms, {
                topic.name: error_or_none(topic.error_code, topic.error_message)
                or CreatedTopic(
                    topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor
                )
                for topic in answer.topics
            }

        requested = [_creatable(topic) for topic in listed("topics", topics)]
        return await self._within_quota(call, requested, timeout, retries=retry_on_quota_violation)

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        if_not_exists: bool = False,
        timeout: float | None = None,
    ) -> CreatedTopic | None:
        """Create one topic; raises KafkaError. None when it existed and if_not_exists is set.

        `config` is the same as `configs`: the fixtures' word.
        """
        new = NewTopic(name, partitions, replication_factor, either("configs", configs, config))
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
        """Delete topics by name or id; returns an outcome for each (None: deleted).

        For quotas, see `create_topics`.
        """
        requested = _topics(topics)
        state = DeleteTopicsRequest.DeleteTopicState

        async def call(remaining: list[Any], seconds: float) -> Answered:
            request = DeleteTopicsRequest(
                topics=remaining, timeout_ms=self._request_timeout_ms(timeout)
            )
            answer = await self._call(request, timeout=seconds, error_of=_not_controller)
            by_key: dict[Any, KafkaError | None] = {}
            for response in answer.responses:
                named = response.topic_id if response.name is None else response.name
                outcome = topic_error_or_none(named, response.error_code, response.error_message)
                by_key[response.name] = by_key[response.topic_id] = outcome
            return answer.throttle_time_ms, by_key

        states = [
            state(topic_id=topic) if isinstance(topic, Uuid) else state(name=topic, topic_id=Uuid())
            for topic in requested
        ]
        by_key = await self._within_quota(call, states, timeout, retries=retry_on_quota_violation)
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks the topic")
        return {topic: by_key.get(topic, missing) for topic in requested}

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
        """Describe topics by name or id (None: all); returns an outcome for each."""
        requested = None if topics is None else _topics(topics)
        topic_type = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=None
            if requested is None
            else [
                topic_type(name=None, topic_id=topic)
                if isinstance(topic, Uuid)
                else topic_type(name=topic)
                for topic in requested
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
        if requested is None:
            return {topic.name: by_key[topic.name] for topic in answer.topics}
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {topic: by_key.get(topic, missing) for topic in requested}

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Increase the partition count of topics to a new total; returns an outcome for each.

        For quotas, see `create_topics`.
        """
        for name, count in counts.items():
            check_topic(name)
            check_int("a partition count", count)
        topic_type = CreatePartitionsRequest.CreatePartitionsTopic
        placed = assignments or {}

        async def call(remaining: list[Any], seconds: float) -> Answered:
            request = CreatePartitionsRequest(
                topics=remaining,
                timeout_ms=self._request_timeout_ms(timeout),
                validate_only=validate_only,
            )
            answer = await self._call(request, timeout=seconds, error_of=_not_controller_in_results)
            return answer.throttle_time_ms, {
                result.name: topic_error_or_none(
                    result.name, result.error_code, result.error_message
                )
                for result in answer.results
            }

        requested = [
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
        return await self._within_quota(call, requested, timeout, retries=retry_on_quota_violation)

    async def _within_quota(
        self,
        call: Callable[[list[Any], float], Awaitable[Answered]],
        requested: list[Any],
        timeout: float | None,
        *,
        retries: bool,
    ) -> dict[Any, Any]:
        """Call for all items, and again for those that a quota rejected, until the timeout."""
        deadline_ms = self._deadline_ms(timeout)
        outcomes: dict[Any, Any] = {}
        remaining = requested
        while True:
            throttle_time_ms, answered = await call(remaining, self._remaining_seconds(deadline_ms))
            outcomes.update(answered)
            remaining = [
                one
                for one in remaining
                if _is_over_quota(answered.get(getattr(one, "topic_id", None) or one.name))
            ]
            throttle_time_ms = max(throttle_time_ms, self._settings.retry_backoff_ms)
            if (
                not remaining
                or not retries
                or self._runtime.now_ms() + throttle_time_ms >= deadline_ms
            ):
                return outcomes
            await self._runtime.sleep(throttle_time_ms)

    # ------------------------------------------------------------ by leader

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        """Return offsets by timestamp in ms or by a special one of `protocol/offset_timestamps.py`.

        `MAX_TIMESTAMP` finds the record with the largest timestamp. Offset -1: there is none.
        """
        for timestamp in timestamps.values():
            check_int("a timestamp", timestamp)

        def build(part: Mapping[TopicPartition, int]) -> Any:
            return list_offsets_request(
                part,
                self._client.metadata,
                committed_only=read_committed,
                timeout_ms=self._settings.request_timeout_ms,
            )

        def read(answer: Any) -> dict[TopicPartition, Any]:
            return {
                TopicPartition(topic.name, partition.partition_index): error_or_none(
                    partition.error_code
                )
                or OffsetAndTimestamp(partition.offset, partition.timestamp, partition.leader_epoch)
                for topic in answer.topics
                for partition in topic.partitions
            }

        return await self._by_leader(timestamps, build, read, timeout)

    async def delete_records(
        self,
        before_offsets: Mapping[TopicPartition, int],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete records below offsets (-1: all); returns the new log start offsets."""
        for offset in before_offsets.values():
            check_int("an offset", offset)
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
                TopicPartition(topic.name, partition.partition_index): error_or_none(
                    partition.error_code
                )
                or partition.low_watermark
                for topic in answer.topics
                for partition in topic.partitions
            }

        return await self._by_leader(before_offsets, build, read, timeout)

    async def _by_leader(
        self,
        requested: Mapping[TopicPartition, int],
        build: Callable[[Mapping[TopicPartition, int]], Any],
        read: Callable[[Any], dict[TopicPartition, Any]],
        timeout: float | None,
    ) -> dict[TopicPartition, Any]:
        """Send each leader its partitions; retry those that were sent to a former leader."""
        deadline_ms = self._deadline_ms(timeout)
        remaining = {as_partition(partition): value for partition, value in requested.items()}
        if not remaining:
            return {}
        topics = {partition.topic for partition in remaining}
        with self._keeping_topics(topics):
            found = await self._query_leaders(remaining, build, read, deadline_ms)
        return {partition: found[partition] for partition in remaining}

    @contextmanager
    def _keeping_topics(self, topics: set[str]) -> Iterator[None]:
        """Keep topics in the metadata during a call; several calls may overlap."""
        metadata = self._client.metadata
        self._topics_in_calls.update(topics)
        metadata.add_topics(topics)
        try:
            yield
        finally:
            self._topics_in_calls.subtract(topics)
            self._topics_in_calls = +self._topics_in_calls
            metadata.set_topics(self._topics_in_calls)

    async def _query_leaders(
        self,
        remaining: dict[TopicPartition, int],
        build: Callable[[Mapping[TopicPartition, int]], Any],
        read: Callable[[Any], dict[TopicPartition, Any]],
        deadline_ms: float,
    ) -> dict[TopicPartition, Any]:
        result: dict[TopicPartition, Any] = {}
        await self._refresh_until(deadline_ms)
        attempt = 0
        while True:
            attempt += 1
            failure = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            for leader, part in self._split(remaining, result).items():
                try:
                    pending = self._client.send(
                        leader, build(part), timeout_ms=self._request_limit_ms(deadline_ms)
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
            remaining = {
                partition: value
                for partition, value in remaining.items()
                if partition not in result
            }
            if not remaining:
                break
            try:
                # A leader may not know a topic yet that is in the metadata, or may be stale.
                await self._wait_before_retry(
                    failure, attempt, deadline_ms, not_retried=CORRUPT_ONLY
                )
                await self._refresh_until(deadline_ms)
            except KafkaError as error:
                result.update(dict.fromkeys(remaining, error))
                break
        return result

    def _split(
        self, remaining: Mapping[TopicPartition, int], result: dict[TopicPartition, Any]
    ) -> dict[int, dict[TopicPartition, int]]:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        metadata = self._client.metadata
        for partition, value in remaining.items():
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
        check_timeout(timeout)
        limit: int = self._settings.request_timeout_ms
        return limit if timeout is None else min(limit, int(timeout * 1000))


def _is_over_quota(outcome: Any) -> bool:
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return isinstance(outcome, KafkaError) and outcome.code == code


def _topics(given: Iterable[str | Uuid]) -> list[str | Uuid]:
    """Return names and ids; raises TypeError for anything else."""
    found = list(listed("topics", given))
    for topic in found:
        if not isinstance(topic, Uuid):
            check_topic(topic)
    return found


def _creatable(topic: NewTopic | str) -> CreateTopicsRequest.CreatableTopic:
    new = topic if isinstance(topic, NewTopic) else NewTopic(topic)
    check_topic(new.name)
    check_int("partitions", new.partitions)
    check_int("replication_factor", new.replication_factor)
    if new.configs is not None and not isinstance(new.configs, Mapping):
        raise TypeError(f"configs must be a mapping, not {type(new.configs).__name__}")
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
            partition.partition_index,
            nodes.get(partition.leader_id),
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda one: one.partition_index)
    )
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.is_internal,
        partitions,
        topic.topic_authorized_operations,
    )


def _not_controller(answer: Any) -> int:
    """Return NOT_CONTROLLER if every result has it: the call is retried."""
    outcomes = getattr(answer, "topics", None) or getattr(answer, "responses", None) or ()
    return next((o.error_code for o in outcomes if o.error_code == ErrorCode.NOT_CONTROLLER), 0)


def _not_controller_in_results(answer: Any) -> int:
    codes = (result.error_code for result in answer.results)
    return next((code for code in codes if code == ErrorCode.NOT_CONTROLLER), 0)
