"""Admin calls for replicas: log directories, reassignments, active producers.

Kafka: org.apache.kafka.clients.admin.{AlterReplicaLogDirsResult, DescribeReplicaLogDirsResult,
PartitionReassignment, DescribeProducersResult}.
"""

from __future__ import annotations

# ruff: noqa: ASYNC109 - as in Kafka, a call's timeout covers its retries; it is no cancellation
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.admin.calls import error_or_none
from ottla.clients.admin.cluster import ClusterAdmin
from ottla.clients.admin.topics import TopicsAdmin
from ottla.clients.arguments import by_topic
from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.errors import KafkaError


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


class ReplicasAdmin(TopicsAdmin, ClusterAdmin):
    """The part of the admin for replicas."""

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """Return the producers with state in partitions, from their leaders or from one broker."""
        requested = dict.fromkeys((TopicPartition(*partition) for partition in partitions), 0)
        if broker_id is None:
            return await self._by_leader(requested, _query_producers, _producers, timeout)
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
        return {
            TopicPartition(topic.name, partition.partition_index): PartitionReassignment(
                tuple(partition.replicas),
                tuple(partition.adding_replicas),
                tuple(partition.removing_replicas),
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

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
        topics: dict[str, Any] = {}
        for (name, partition), replicas in reassignments.items():
            topic = topics.setdefault(name, topic_type(name=name, partitions=[]))
            topic.partitions.append(
                topic_type.ReassignablePartition(
                    partition_index=partition,
                    replicas=None if replicas is None else list(replicas),
                )
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._request_timeout_ms(timeout),
            allow_replication_factor_change=allow_replication_factor_change,
            topics=list(topics.values()),
        )
        answer = await self._call(request, timeout=timeout)
        return {
            TopicPartition(topic.name, one.partition_index): error_or_none(
                one.error_code, one.error_message
            )
            for topic in answer.responses
            for one in topic.partitions
        }

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
        found: dict[tuple[TopicPartition, int], ReplicaPlace] = {}
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
                found[partition, broker_id] = place
        return found

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
            for topic in answer.results:
                for one in topic.partitions:
                    partition = TopicPartition(topic.topic_name, one.partition_index)
                    outcomes[partition, broker_id] = error_or_none(one.error_code)
        return outcomes


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
    return {
        TopicPartition(topic.name, partition.partition_index): error_or_none(
            partition.error_code, partition.error_message
        )
        or [_producer(state) for state in partition.active_producers]
        for topic in answer.topics
        for partition in topic.partitions
    }


def _producer(state: Any) -> ProducerState:
    started = state.current_txn_start_offset
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch if state.coordinator_epoch >= 0 else None,
        started if started >= 0 else None,
    )
