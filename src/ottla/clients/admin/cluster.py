"""Admin calls for the cluster: brokers, features, log directories, elections, reassignments.

Kafka: org.apache.kafka.clients.admin.{DescribeClusterResult, LogDirDescription, FeatureMetadata,
PartitionReassignment, AlterReplicaLogDirsResult, DescribeProducersResult}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import BROKERS, CONTROLLERS, AdminCalls, by_partition, error_of
from ottla.clients.arguments import as_partition, by_topic, values_by_topic
from ottla.clients.client import ANY_NODE
from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from ottla.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.errors import KafkaError


PREFERRED, UNCLEAN = 0, 1


class ClusterDescription(NamedTuple):
    """A described cluster; controller is None while unknown."""

    cluster_id: str
    controller: Node | None
    brokers: tuple[Node, ...]
    fenced: frozenset[int]
    authorized_operations: int


class ReplicaInfo(NamedTuple):
    """A replica on disk; offset_lag in records behind the high watermark."""

    size: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory; sizes in bytes, -1 when unknown."""

    path: str
    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool


class FeatureRange(NamedTuple):
    """Supported or finalized levels of a feature."""

    lowest: int
    highest: int


class Features(NamedTuple):
    """Finalized features and those a broker supports; epoch is None while unknown."""

    finalized: Mapping[str, FeatureRange]
    supported: Mapping[str, FeatureRange]
    epoch: int | None


class ProducerState(NamedTuple):
    """A producer's state on a partition; None for values that are not set."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class PartitionReassignment(NamedTuple):
    """A partition under reassignment: all replicas, those added and those removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReplicaPlace(NamedTuple):
    """A replica's directories and offset lags; None and -1 if there is none."""

    current_path: str | None
    current_offset_lag: int
    future_path: str | None
    future_offset_lag: int


class ClusterAdmin(AdminCalls):
    """The part of the admin for the cluster, its features and replicas."""

    async def describe_cluster(
        self,
        *,
        include_fenced_brokers: bool = False,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """Return id, brokers and controller."""
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=include_authorized_operations,
            include_fenced_brokers=include_fenced_brokers,
            endpoint_type=CONTROLLERS if self._uses_controllers else BROKERS,
        )
        answer = await self._call(request, timeout=timeout)
        brokers = tuple(
            Node(broker.broker_id, broker.host, broker.port, broker.rack)
            for broker in sorted(answer.brokers, key=lambda broker: broker.broker_id)
        )
        by_id = {node.node_id: node for node in brokers}
        return ClusterDescription(
            answer.cluster_id,
            by_id.get(answer.controller_id),
            brokers,
            frozenset(broker.broker_id for broker in answer.brokers if broker.is_fenced),
            answer.cluster_authorized_operations,
        )

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> dict[int, list[LogDirDescription]]:
        """Return the log directories of some brokers, or of all."""
        topics = _topics(partitions, DescribeLogDirsRequest.DescribableLogDirTopic)
        answers = await self._call_brokers(
            DescribeLogDirsRequest(topics=topics), timeout, broker_ids
        )
        return {node_id: _log_dirs(answer) for node_id, answer in answers.items()}

    async def elect_leaders(
        self,
        election_type: int = PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of partitions, by default of all (KIP-460); returns an outcome for each.

        Parameters:
            election_type: PREFERRED, or UNCLEAN, which may lose records.
        """
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=_topics(partitions, ElectLeadersRequest.TopicPartitions),
            timeout_ms=self._settings.request_timeout_ms,
        )
        answer = await self._call(request, timeout=timeout)
        return {
            TopicPartition(topic.topic, partition.partition_id): error_of(partition)
            for topic in answer.replica_election_results
            for partition in topic.partition_result
        }

    async def describe_features(
        self, node_id: int | None = None, *, timeout: float | None = None
    ) -> Features:
        """Return the finalized features, and those that a node (any, by default) supports."""
        target = ANY_NODE if node_id is None else node_id
        answer = await self._call(_api_versions(), timeout=timeout, node_id=target)
        return Features(
            {
                feature.name: FeatureRange(feature.min_version_level, feature.max_version_level)
                for feature in answer.finalized_features
            },
            {
                feature.name: FeatureRange(feature.min_version, feature.max_version)
                for feature in answer.supported_features
            },
            answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
        )

    async def api_versions(
        self,
        node_id: int | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[int, tuple[int, int]]:
        """Return the API versions that a broker (any, by default) supports."""
        target = ANY_NODE if node_id is None else node_id
        answer = await self._call(_api_versions(), timeout=timeout, node_id=target)
        return {
            api_key.api_key: (api_key.min_version, api_key.max_version)
            for api_key in answer.api_keys
        }

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: int = 1,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Finalize levels of features, 0 to disable one (KIP-584); raises KafkaError.

        Parameters:
            upgrade_type: 1 upgrade, 2 safe downgrade, 3 downgrade that may lose metadata.
            validate_only: whether the levels are only checked.
        """
        request = UpdateFeaturesRequest(
            timeout_ms=self._settings.request_timeout_ms,
            feature_updates=[
                UpdateFeaturesRequest.FeatureUpdateKey(
                    feature=name, max_version_level=level, upgrade_type=upgrade_type
                )
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        await self._call(request, timeout=timeout)

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """Return the producers with state in partitions, from their leaders or from one broker."""
        requested = dict.fromkeys(map(as_partition, partitions), 0)
        if broker_id is None:
            return await self._call_leaders(requested, _query_producers, _producers, timeout)
        request = _query_producers(requested)
        answer = await self._call(request, timeout=timeout, node_id=broker_id)
        return _producers(answer)

    async def list_partition_reassignments(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions (by default of all) that are being reassigned."""
        kind = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        topics = None
        if partitions is not None:
            topics = [
                kind(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self._request_timeout_ms(timeout), topics=topics
        )
        answer = await self._call(request, timeout=timeout)
        return by_partition(
            answer.topics,
            lambda partition: PartitionReassignment(
                tuple(partition.replicas),
                tuple(partition.adding_replicas),
                tuple(partition.removing_replicas),
            ),
        )

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions to these replicas, the preferred leader first; None cancels a move.

        Complete when the moves have begun: `list_partition_reassignments` returns those that last.
        """
        topic_type = AlterPartitionReassignmentsRequest.ReassignableTopic
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._request_timeout_ms(timeout),
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[
                topic_type(
                    name=name,
                    partitions=[
                        topic_type.ReassignablePartition(
                            partition_index=index,
                            replicas=None if replicas is None else list(replicas),
                        )
                        for index, replicas in moves.items()
                    ],
                )
                for name, moves in values_by_topic(reassignments).items()
            ],
        )
        answer = await self._call(request, timeout=timeout)
        return by_partition(answer.responses, error_of)

    async def describe_replica_log_dirs(
        self,
        replicas: Iterable[tuple[TopicPartition, int]],
        *,
        timeout: float | None = None,
    ) -> dict[tuple[TopicPartition, int], ReplicaPlace]:
        """Return the log directory of each (partition, broker id)."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition, broker_id in replicas:
            by_broker.setdefault(broker_id, []).append(TopicPartition(*partition))
        places: dict[tuple[TopicPartition, int], ReplicaPlace] = {}
        for broker_id, partitions in by_broker.items():
            described = await self.describe_log_dirs(
                [broker_id], partitions=partitions, timeout=timeout
            )
            for partition in partitions:
                place = ReplicaPlace(None, -1, None, -1)
                for directory in described[broker_id]:
                    replica = directory.replicas.get(partition)
                    if replica is None:
                        continue
                    here = (directory.path, replica.offset_lag)
                    place = (
                        ReplicaPlace(*place[:2], *here)
                        if replica.is_future
                        else ReplicaPlace(*here, *place[2:])
                    )
                places[partition, broker_id] = place
        return places

    async def alter_replica_log_dirs(
        self,
        moves: Mapping[tuple[TopicPartition, int], str],
        *,
        timeout: float | None = None,
    ) -> dict[tuple[TopicPartition, int], KafkaError | None]:
        """Move replicas, each a (partition, broker id), to these log directories of their brokers.

        Complete when the moves have begun: `describe_replica_log_dirs` shows how far they are. A
        replica that its broker does not have yet is REPLICA_NOT_AVAILABLE, and will be created in
        the directory.
        """
        by_broker: dict[int, dict[TopicPartition, str]] = {}
        for (partition, broker_id), path in moves.items():
            by_broker.setdefault(broker_id, {})[TopicPartition(*partition)] = path
        deadline_ms = self._deadline_ms(timeout)
        outcomes: dict[tuple[TopicPartition, int], KafkaError | None] = {}
        for broker_id, paths in by_broker.items():
            remaining = self._remaining_seconds(deadline_ms)
            request = _alter_directories(paths)
            answer = await self._call(request, timeout=remaining, node_id=broker_id)
            errors = by_partition(answer.results, error_of, "topic_name")
            outcomes |= {(partition, broker_id): error for partition, error in errors.items()}
        return outcomes


def _topics(partitions: Iterable[TopicPartition] | None, kind: type[Any]) -> list[Any] | None:
    """Return partitions by topic, None for all."""
    if partitions is None:
        return None
    return [kind(topic=name, partitions=indexes) for name, indexes in by_topic(partitions).items()]


def _api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="ottla", client_software_version="1")


def _log_dirs(answer: Any) -> list[LogDirDescription]:
    return [
        LogDirDescription(
            result.log_dir,
            error_of(result),
            by_partition(
                result.topics,
                lambda replica: ReplicaInfo(
                    replica.partition_size, replica.offset_lag, replica.is_future_key
                ),
            ),
            result.total_bytes,
            result.usable_bytes,
            result.is_cordoned,
        )
        for result in answer.results
    ]


def _alter_directories(paths: Mapping[TopicPartition, str]) -> AlterReplicaLogDirsRequest:
    by_path: dict[str, list[TopicPartition]] = {}
    for partition, path in paths.items():
        by_path.setdefault(path, []).append(partition)
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    return AlterReplicaLogDirsRequest(
        dirs=[
            directory(
                path=path,
                topics=[
                    directory.AlterReplicaLogDirTopic(name=name, partitions=indexes)
                    for name, indexes in by_topic(partitions).items()
                ],
            )
            for path, partitions in by_path.items()
        ]
    )


def _query_producers(partitions: Mapping[TopicPartition, int]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    )


def _producers(answer: Any) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
    return by_partition(
        answer.topics,
        lambda partition: error_of(partition) or list(map(_producer, partition.active_producers)),
    )


def _producer(state: Any) -> ProducerState:
    start = state.current_txn_start_offset
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch if state.coordinator_epoch >= 0 else None,
        start if start >= 0 else None,
    )
