"""Admin calls for the cluster: brokers, log directories, features, elections.

Kafka: org.apache.kafka.clients.admin.{DescribeClusterResult, LogDirDescription, FeatureMetadata}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import BROKERS, CONTROLLERS, AdminCalls, error_or_none
from ottla.clients.arguments import by_topic
from ottla.clients.client import ANY_NODE
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from ottla.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


class ClusterAdmin(AdminCalls):
    """The part of the admin for the cluster."""

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
            for broker in sorted(answer.brokers, key=lambda one: one.broker_id)
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
        request = DescribeLogDirsRequest(topics=topics)
        deadline_ms = self._deadline_ms(timeout)
        ids = list(broker_ids) if broker_ids is not None else await self._broker_ids(deadline_ms)
        return {
            node_id: _log_dirs(
                await self._call(
                    request, timeout=self._remaining_seconds(deadline_ms), node_id=node_id
                )
            )
            for node_id in ids
        }

    async def elect_leaders(
        self,
        election_type: int = PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect the preferred leader, or an unclean one; all partitions when none are given."""
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=_topics(partitions, ElectLeadersRequest.TopicPartitions),
            timeout_ms=self._settings.request_timeout_ms,
        )
        answer = await self._call(request, timeout=timeout)
        return {
            TopicPartition(topic.topic, one.partition_id): error_or_none(
                one.error_code, one.error_message
            )
            for topic in answer.replica_election_results
            for one in topic.partition_result
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
        """Finalize levels (upgrade_type 1 upgrade, 2 safe downgrade, 3 unsafe); 0 disables."""
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
            error_or_none(result.error_code),
            {
                TopicPartition(topic.name, part.partition_index): ReplicaInfo(
                    part.partition_size, part.offset_lag, part.is_future_key
                )
                for topic in result.topics
                for part in topic.partitions
            },
            result.total_bytes,
            result.usable_bytes,
            result.is_cordoned,
        )
        for result in answer.results
    ]
