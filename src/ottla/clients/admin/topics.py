"""Admin calls for topics: create, delete, describe, add partitions, delete records.

Kafka: org.apache.kafka.clients.admin.{Admin, NewTopic, TopicDescription, NewPartitions}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import AdminCalls, by_partition, error_of, topic_error_of
from ottla.clients.arguments import check_int, check_topic, either, listed, values_by_topic
from ottla.clients.offsets import OffsetAndTimestamp, list_offsets_request
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_records import DeleteRecordsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.types import Node, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.protocol.schema import Request


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

        Parameters:
            topics: names, or NewTopic with partitions, replication factor and configs.
            validate_only: whether the controller only checks the requests.
            timeout: seconds for everything, by default default.api.timeout.ms.

        Requests that a quota rejects are sent again after the broker's throttle time, unless
        retry_on_quota_violation is false or the timeout would pass.
        """

        def build(remaining: list[Any]) -> Request:
            return CreateTopicsRequest(
                topics=remaining,
                timeout_ms=self._request_timeout_ms(timeout),
                validate_only=validate_only,
            )

        def read(answer: Any) -> dict[str, CreatedTopic | KafkaError]:
            return {
                topic.name: error_of(topic)
                or CreatedTopic(
                    topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor
                )
                for topic in answer.topics
            }

        requested = [_creatable(topic) for topic in listed("topics", topics)]
        return await self._within_quota(
            requested, build, read, timeout, retries=retry_on_quota_violation
        )

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
        """Create one topic; None when it existed and if_not_exists is set.

        Parameters:
            partitions, replication_factor: -1 for num.partitions, default.replication.factor.
            configs: settings of the topic; `config`, the fixtures' word, is the same.

        Raises KafkaError, such as TOPIC_ALREADY_EXISTS.
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

        def build(remaining: list[Any]) -> Request:
            return DeleteTopicsRequest(
                topics=remaining, timeout_ms=self._request_timeout_ms(timeout)
            )

        def read(answer: Any) -> dict[Any, KafkaError | None]:
            by_key: dict[Any, KafkaError | None] = {}
            for response in answer.responses:
                topic = response.topic_id if response.name is None else response.name
                outcome = topic_error_of(response, topic)
                by_key[response.name] = by_key[response.topic_id] = outcome
            return by_key

        states = [
            state(topic_id=topic) if isinstance(topic, Uuid) else state(name=topic, topic_id=Uuid())
            for topic in requested
        ]
        by_key = await self._within_quota(
            states, build, read, timeout, retries=retry_on_quota_violation
        )
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

        Parameters:
            counts: the new total by topic.
            assignments: the broker ids of each new partition by topic, the preferred leader first.

        For quotas, see `create_topics`.
        """
        for name, count in counts.items():
            check_topic(name)
            check_int("a partition count", count)
        topic_type = CreatePartitionsRequest.CreatePartitionsTopic
        replicas = assignments or {}

        def build(remaining: list[Any]) -> Request:
            return CreatePartitionsRequest(
                topics=remaining,
                timeout_ms=self._request_timeout_ms(timeout),
                validate_only=validate_only,
            )

        def read(answer: Any) -> dict[str, KafkaError | None]:
            return {result.name: topic_error_of(result, result.name) for result in answer.results}

        requested = [
            topic_type(
                name=name,
                count=count,
                assignments=[
                    topic_type.CreatePartitionsAssignment(broker_ids=list(brokers))
                    for brokers in replicas[name]
                ]
                if name in replicas
                else None,
            )
            for name, count in counts.items()
        ]
        return await self._within_quota(
            requested, build, read, timeout, retries=retry_on_quota_violation
        )

    async def _within_quota(
        self,
        remaining: list[Any],
        build: Callable[[list[Any]], Request],
        read: Callable[[Any], dict[Any, Any]],
        timeout: float | None,
        *,
        retries: bool,
    ) -> dict[Any, Any]:
        """Call for all topics, and again for those that a quota rejected, until the timeout."""
        deadline_ms = self._deadline_ms(timeout)
        outcomes: dict[Any, Any] = {}
        while True:
            answer = await self._call(
                build(remaining),
                timeout=self._remaining_seconds(deadline_ms),
                error_of=_not_controller,
            )
            answered = read(answer)
            outcomes.update(answered)
            remaining = [
                topic
                for topic in remaining
                if _is_over_quota(answered.get(getattr(topic, "topic_id", None) or topic.name))
            ]
            throttle_time_ms = max(answer.throttle_time_ms, self._settings.retry_backoff_ms)
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
            return by_partition(
                answer.topics,
                lambda partition: (
                    error_of(partition)
                    or OffsetAndTimestamp(
                        partition.offset, partition.timestamp, partition.leader_epoch
                    )
                ),
            )

        return await self._call_leaders(timestamps, build, read, timeout)

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
            return DeleteRecordsRequest(
                topics=[
                    topic_type(
                        name=name,
                        partitions=[
                            topic_type.DeleteRecordsPartition(partition_index=index, offset=offset)
                            for index, offset in offsets.items()
                        ],
                    )
                    for name, offsets in values_by_topic(part).items()
                ],
                timeout_ms=self._request_timeout_ms(timeout),
            )

        def read(answer: Any) -> dict[TopicPartition, Any]:
            return by_partition(
                answer.topics, lambda partition: error_of(partition) or partition.low_watermark
            )

        return await self._call_leaders(before_offsets, build, read, timeout)


def _is_over_quota(outcome: Any) -> bool:
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return isinstance(outcome, KafkaError) and outcome.code == code


def _topics(topics: Iterable[str | Uuid]) -> list[str | Uuid]:
    """Return names and ids; raises TypeError for anything else."""
    requested = list(listed("topics", topics))
    for topic in requested:
        if not isinstance(topic, Uuid):
            check_topic(topic)
    return requested


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
    error = error_of(topic)
    if error is not None:
        return error
    partitions = tuple(
        PartitionDescription(
            partition.partition_index,
            nodes.get(partition.leader_id),
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.is_internal,
        partitions,
        topic.topic_authorized_operations,
    )


def _not_controller(answer: Any) -> int:
    """Return NOT_CONTROLLER if a topic has it: the call is sent to the new controller."""
    fields = (getattr(answer, name, None) for name in ("topics", "responses", "results"))
    codes = (topic.error_code for topics in fields for topic in topics or ())
    return next((code for code in codes if code == ErrorCode.NOT_CONTROLLER), 0)
