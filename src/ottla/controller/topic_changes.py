"""Creates topics, adds partitions to them, deletes them by name or by id.

Kafka: ReplicationControlManager.createTopics and createPartitions, ControllerApis;
ReplicationControlManager.deleteTopics, ControllerApis.deleteTopics.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.controller.config_operations import EffectiveConfigs
from ottla.controller.partitions.placement import (
    check_manual_assignment,
    new_partition,
    place_replicas,
)
from ottla.controller.policies import NewTopic
from ottla.controller.result import ControllerResult, specific_message
from ottla.controller.topics import check_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.resources import CLUSTER_DEFAULT, ConfigResourceType, ConfiguredResource
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.records.metadata import RemoveTopicRecord, TopicRecord
from ottla.types import METADATA_TOPIC, ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from ottla.config.broker import BrokerConfig
    from ottla.controller.cluster import ClusterControl
    from ottla.controller.configs import ConfigControl
    from ottla.controller.features import FeatureControl
    from ottla.controller.policies import Policies
    from ottla.controller.result import RecordPermits
    from ottla.controller.topics import Topics, TopicState
    from ottla.metadata.partition import PartitionRegistration


MAX_PARTITIONS_PER_REQUEST: Final = 10_000
MAX_RECORDS_PER_REQUEST: Final = 10_000
_MAX_REPLICATION_FACTOR: Final = 32_767
_Topic = CreateTopicsRequest.CreatableTopic
_Result = CreateTopicsResponse.CreatableTopicResult


class TopicCreation:
    """Validates requests and returns the records of new topics and partitions."""

    def __init__(
        self,
        topics: Topics,
        *,
        cluster: ClusterControl,
        configs: ConfigControl,
        features: FeatureControl,
        config: BrokerConfig,
        rng: Random,
        policies: Policies,
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._configs = configs
        self._features = features
        self._config = config
        self._rng = rng
        self._policies = policies

    def create_topics(
        self, request: CreateTopicsRequest, record_permits: RecordPermits | None = None
    ) -> ControllerResult[CreateTopicsResponse]:
        """Create topics; each succeeds or fails on its own, unless the request is too large."""
        records: list[MessageAndVersion] = []
        response = CreateTopicsResponse(topics=[])
        repeated = _duplicate_names([topic.name for topic in request.topics])
        if self._requested_partitions(request, repeated) > MAX_PARTITIONS_PER_REQUEST:
            return _refused(request, _too_many_partitions())
        effective = EffectiveConfigs(
            self._config,
            cluster_settings=self._configs.of(CLUSTER_DEFAULT),
            node_settings=self._configs.of(
                ConfiguredResource(ConfigResourceType.BROKER, str(self._config.node_id))
            ),
        )
        answered: set[str] = set()
        for topic in request.topics:
            if topic.name in answered:
                continue
            answered.add(topic.name)
            try:
                if topic.name in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                result = self._create(topic, effective, records, record_permits)
            except KafkaError as error:
                result = _Result(
                    name=topic.name, error_code=error.code, error_message=specific_message(error)
                )
            response.topics.append(result)
        if len(records) > MAX_RECORDS_PER_REQUEST:
            return _refused(
                request,
                KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    "Unable to perform excessively large batch operation.",
                ),
            )
        return ControllerResult([] if request.validate_only else records, response)

    def _requested_partitions(self, request: CreateTopicsRequest, repeated: set[str]) -> int:
        """Count the requested partitions; negative counts, refused later, are left out.

        Topics whose names are refused in any case do not count.
        """
        counts = (
            len(topic.assignments)
            or (self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions)
            for topic in request.topics
            if topic.name not in repeated and topic.name != METADATA_TOPIC
        )
        return sum(max(0, count) for count in counts)

    def _create(
        self,
        topic: _Topic,
        effective: EffectiveConfigs,
        records: list[MessageAndVersion],
        record_permits: RecordPermits | None,
    ) -> _Result:
        self._check_name(topic.name)
        settings = {config.name: config.value for config in topic.configs}
        nulls = [config.name for config in topic.configs if config.value is None]
        # a setting named twice is null if it is once
        settings |= dict.fromkeys(nulls)
        config_records = self._configs.new_topic_records(topic.name, settings) if settings else []
        partitions = self._partitions(topic)
        self._policies.check_creation(_as_requested(topic, partitions))
        if record_permits is not None:
            record_permits(len(partitions))
        topic_id = self._new_topic_id()
        version = self._features.partition_version
        records.append(MessageAndVersion(TopicRecord(name=topic.name, topic_id=topic_id), 0))
        records += config_records
        records += [
            MessageAndVersion(partition.to_record(topic_id, number, version=version), version)
            for number, partition in enumerate(partitions)
        ]
        own = {name: value for name, value in settings.items() if value is not None}
        return _Result(
            name=topic.name,
            topic_id=topic_id,
            error_code=0,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=effective.of(own),
        )

    def _check_name(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        check_topic_name(name)
        if self._topics.by_name(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._topics.colliding(name)
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )

    def _partitions(self, topic: _Topic) -> list[PartitionRegistration]:
        if topic.assignments:
            return self._assigned_partitions(topic)
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        count = topic.num_partitions
        if count == -1:
            count = self._config.num_partitions
        factor = topic.replication_factor
        if factor == -1:
            factor = self._config.default_replication_factor
        try:
            placed = place_replicas(count, factor, self._cluster, self._rng)
        except KafkaError as error:
            text = f"Unable to replicate the partition {factor} time(s): {error.message}"
            raise KafkaError(error.code, text) from error
        return [
            new_partition(replicas, self._cluster, partition_id=number)
            for number, replicas in enumerate(placed)
        ]

    def _assigned_partitions(self, topic: _Topic) -> list[PartitionRegistration]:
        if topic.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set "
                "to -1.",
            )
        if topic.num_partitions != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        by_number: dict[int, PartitionRegistration] = {}
        factor: int | None = None
        for assignment in topic.assignments:
            number = assignment.partition_index
            if number in by_number:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {number}",
                )
            check_manual_assignment(assignment.broker_ids, factor, self._cluster)
            factor = len(assignment.broker_ids)
            by_number[number] = new_partition(
                assignment.broker_ids, self._cluster, partition_id=number
            )
        if sorted(by_number) != list(range(len(by_number))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return [by_number[number] for number in sorted(by_number)]

    def _new_topic_id(self) -> Uuid:
        """Generate a version 4 UUID whose text does not start with a dash, as in Kafka."""
        while True:
            drawn = bytearray(self._rng.randbytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            topic_id = Uuid(drawn)
            if not str(topic_id).startswith("-") and self._topics.by_id(topic_id) is None:
                return topic_id

    def create_partitions(
        self, request: CreatePartitionsRequest, record_permits: RecordPermits | None = None
    ) -> ControllerResult[CreatePartitionsResponse]:
        """Add partitions; each topic succeeds or fails on its own."""
        records: list[MessageAndVersion] = []
        response = CreatePartitionsResponse(results=[])
        repeated = _duplicate_names([topic.name for topic in request.topics])
        answered: set[str] = set()
        for topic in request.topics:
            if topic.name in answered:
                continue
            answered.add(topic.name)
            error: KafkaError | None = None
            try:
                if topic.name in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += self._add_partitions(topic, len(records), record_permits)
            except KafkaError as problem:
                error = problem
            response.results.append(
                CreatePartitionsResponse.CreatePartitionsTopicResult(
                    name=topic.name,
                    error_code=error.code if error else 0,
                    error_message=specific_message(error),
                )
            )
        return ControllerResult([] if request.validate_only else records, response)

    def _add_partitions(
        self,
        requested: CreatePartitionsRequest.CreatePartitionsTopic,
        already: int,
        record_permits: RecordPermits | None,
    ) -> list[MessageAndVersion]:
        topic = self._topics.by_name(requested.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        current = len(topic.partitions)
        added = self._check_count(requested, current)
        if record_permits is not None:
            record_permits(added)
        if already + added > MAX_PARTITIONS_PER_REQUEST:
            raise _too_many_partitions()
        version = self._features.partition_version
        return [
            MessageAndVersion(
                new_partition(replicas, self._cluster, partition_id=number).to_record(
                    topic.topic_id, number, version=version
                ),
                version,
            )
            for number, replicas in enumerate(
                self._added_replicas(requested, topic, added), current
            )
        ]

    def _check_count(
        self, requested: CreatePartitionsRequest.CreatePartitionsTopic, current: int
    ) -> int:
        """Return the number of partitions to add; KafkaError with Kafka's text."""
        if requested.count == current:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s)."
            )
        if requested.count < current:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {requested.name} currently has {current} partition(s); "
                f"{requested.count} would not be an increase.",
            )
        added = requested.count - current
        if requested.assignments is not None and len(requested.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only "
                f"{len(requested.assignments)} assignment(s) were specified.",
            )
        return added

    def _added_replicas(
        self,
        requested: CreatePartitionsRequest.CreatePartitionsTopic,
        topic: TopicState,
        added: int,
    ) -> Iterator[Sequence[int]]:
        """Yield the replicas of each partition; an invalid one raises when it is reached."""
        first: PartitionRegistration | None = topic.partitions.get(0)
        if first is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Invalid state: topic {topic.name} appears to have no partitions.",
            )
        factor = min(len(first.replicas), _MAX_REPLICATION_FACTOR)
        if requested.assignments is None:
            yield from place_replicas(added, factor, self._cluster, self._rng)
            return
        for assignment in requested.assignments:
            check_manual_assignment(assignment.broker_ids, factor, self._cluster)
            yield assignment.broker_ids


def _as_requested(topic: _Topic, partitions: list[PartitionRegistration]) -> NewTopic:
    """Return the topic as policies see it, with defaults filled in."""
    is_manual = bool(topic.assignments)
    return NewTopic(
        topic=topic.name,
        num_partitions=None if is_manual else len(partitions),
        replication_factor=None if is_manual else len(partitions[0].replicas),
        replicas_assignments={
            number: list(partition.replicas) for number, partition in enumerate(partitions)
        }
        if is_manual
        else None,
        configs={config.name: config.value for config in topic.configs if config.value is not None},
    )


def _duplicate_names(names: list[str]) -> set[str]:
    seen: set[str] = set()
    repeated: set[str] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)
    return repeated


def _refused(
    request: CreateTopicsRequest, error: KafkaError
) -> ControllerResult[CreateTopicsResponse]:
    """Return the same error for each entry of a request, also repeated ones."""
    results = [
        _Result(name=topic.name, error_code=error.code, error_message=error.message)
        for topic in request.topics
    ]
    return ControllerResult([], CreateTopicsResponse(topics=results))


def _too_many_partitions() -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
    )


_Deletion = DeleteTopicsResponse.DeletableTopicResult
_NEITHER: Final = "Neither topic name nor id were specified."
_BOTH: Final = "You may not specify both topic name and topic id."
_SUPPLIED: Final = "The provided topic name maps to an ID that was already supplied."


def delete_topics(
    request: DeleteTopicsRequest,
    topics: Topics,
    *,
    enabled: bool,
    record_permits: RecordPermits | None = None,
) -> ControllerResult[DeleteTopicsResponse]:
    """Delete topics; each succeeds or fails on its own. `enabled` is delete.topic.enable."""
    if not enabled:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    records: list[MessageAndVersion] = []
    found, results = _find_topics(request, topics)
    for topic in found:
        try:
            if record_permits is not None:
                record_permits(len(topic.partitions))
        except KafkaError as error:
            results.append(_refused_deletion(topic.name, topic.topic_id, error))
            continue
        results.append(_Deletion(name=topic.name, topic_id=topic.topic_id))
        records.append(MessageAndVersion(RemoveTopicRecord(topic_id=topic.topic_id), 0))
    return ControllerResult(records, DeleteTopicsResponse(responses=results))


def _requested_topics(request: DeleteTopicsRequest) -> Iterator[tuple[str | None, Uuid]]:
    """Yield name and id of each requested topic."""
    for name in request.topic_names:
        yield name, ZERO_UUID
    for topic in request.topics:
        yield topic.name, topic.topic_id


def _find_topics(
    request: DeleteTopicsRequest, topics: Topics
) -> tuple[list[TopicState], list[_Deletion]]:
    """Return the topics to delete, and the errors of all other entries."""
    names, ids, refused = _count_entries(request)
    states: dict[Uuid, TopicState] = {}
    for topic_id, times in ids.items():
        topic = topics.by_id(topic_id)
        if times > 1:
            refused.append(_refused_deletion(None, topic_id, _invalid("Duplicate topic id.")))
        elif topic is None:
            refused.append(
                _refused_deletion(None, topic_id, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
            )
        else:
            states[topic_id] = topic
    for name, times in names.items():
        topic = topics.by_name(name)
        if times > 1:
            refused.append(_refused_deletion(name, ZERO_UUID, _invalid("Duplicate topic name.")))
        elif topic is None:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            refused.append(_refused_deletion(name, ZERO_UUID, error))
        elif topic.topic_id in ids:  # named in both ways: not deleted
            states.pop(topic.topic_id, None)
            refused.append(_refused_deletion(name, topic.topic_id, _invalid(_SUPPLIED)))
        else:
            states[topic.topic_id] = topic
    return list(states.values()), refused


def _count_entries(
    request: DeleteTopicsRequest,
) -> tuple[Counter[str], Counter[Uuid], list[_Deletion]]:
    """Return how often each name and each id is given, and the errors of malformed entries."""
    names: Counter[str] = Counter()
    ids: Counter[Uuid] = Counter()
    refused: list[_Deletion] = []
    for name, topic_id in _requested_topics(request):
        if name is not None and not topic_id:
            names[name] += 1
        elif name is None and topic_id:
            ids[topic_id] += 1
        else:
            text = _NEITHER if name is None else _BOTH
            refused.append(_refused_deletion(name, topic_id, _invalid(text)))
    return names, ids, refused


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _refused_deletion(name: str | None, topic_id: Uuid, error: KafkaError) -> _Deletion:
    is_throttled = error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return _Deletion(
        name=name,
        topic_id=topic_id,
        error_code=error.code,
        error_message=None if is_throttled else error.message,
    )
