"""Moves partitions to other brokers, step by step (KIP-455).

Kafka: ReplicationControlManager.{alterPartitionReassignments, listPartitionReassignments},
PartitionReassignmentReplicas, PartitionReassignmentRevert.

A reassignment first adds the new replicas and notes which ones are to leave. It is complete when
AlterPartition brings the new ones into the ISR: the same record then removes the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.controller.partitions.partition_change import Election
from ottla.controller.partitions.placement import check_manual_assignment
from ottla.controller.result import ControllerResult, specific_message
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.controller.cluster import ClusterControl
    from ottla.controller.partitions.leadership import Leadership
    from ottla.controller.partitions.partition_change import PartitionChange
    from ottla.controller.topics import Topics, TopicState
    from ottla.metadata.framing import MessageAndVersion
    from ottla.metadata.partition import PartitionRegistration

_Reassigned = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Ongoing = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Requested: TypeAlias = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition


class Reassignments:
    """Starts, changes, cancels and lists reassignments."""

    def __init__(self, topics: Topics, leadership: Leadership, *, cluster: ClusterControl) -> None:
        self._topics = topics
        self._leadership = leadership
        self._cluster = cluster

    def list(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Return the partitions with a reassignment in progress."""
        response = ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
        for topic, partition_ids in self._requested(request):
            ongoing = [
                _Ongoing.OngoingPartitionReassignment(
                    partition_index=partition_id,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
                for partition_id in partition_ids
                if (partition := topic.partitions.get(partition_id)) and partition.is_reassigning
            ]
            if ongoing:
                response.topics.append(_Ongoing(name=topic.name, partitions=ongoing))
        return response

    def _requested(
        self, request: ListPartitionReassignmentsRequest
    ) -> Iterable[tuple[TopicState, Iterable[int]]]:
        if request.topics is not None:
            for requested in request.topics:
                topic = self._topics.by_name(requested.name)
                if topic is not None:
                    yield topic, requested.partition_indexes
            return
        by_topic: dict[str, tuple[TopicState, list[int]]] = {}
        for topic, partition_id, _ in self._topics.located(self._topics.index.reassigning):
            by_topic.setdefault(topic.name, (topic, []))[1].append(partition_id)
        yield from by_topic.values()

    def alter(
        self, request: AlterPartitionReassignmentsRequest
    ) -> ControllerResult[AlterPartitionReassignmentsResponse]:
        """Start reassignments, or cancel those with null replicas; each partition on its own."""
        records: list[MessageAndVersion] = []
        response = AlterPartitionReassignmentsResponse(
            error_code=0,
            error_message=None if request.topics else "",  # as in Kafka
            responses=[],
            allow_replication_factor_change=request.allow_replication_factor_change,
        )
        for topic in request.topics:
            result = _Reassigned(name=topic.name, partitions=[])
            for requested in topic.partitions:
                error: KafkaError | None = None
                try:
                    change = self._change(
                        topic.name,
                        requested,
                        factor_may_change=request.allow_replication_factor_change,
                    )
                    record = self._leadership.build(change)
                except KafkaError as problem:
                    error, record = problem, None
                if record is not None:
                    records.append(record)
                result.partitions.append(
                    _Reassigned.ReassignablePartitionResponse(
                        partition_index=requested.partition_index,
                        error_code=error.code if error else 0,
                        error_message=specific_message(error),
                    )
                )
            response.responses.append(result)
        return ControllerResult(records, response)

    def _change(
        self, name: str, requested: _Requested, *, factor_may_change: bool
    ) -> PartitionChange:
        topic = self._topics.by_name(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
            )
        partition_id = requested.partition_index
        partition: PartitionRegistration | None = topic.partitions.get(partition_id)
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Unable to find partition {name}:{partition_id}.",
            )
        change = self._leadership.change(topic, partition_id, partition)
        if requested.replicas is None:
            self._revert(change, topic, partition)
            return change
        check_manual_assignment(requested.replicas, None, self._cluster)
        if not factor_may_change:
            target = len(requested.replicas)
            # The factor of the assignment without the reassignment in progress is to stay.
            current = {*partition.replicas, *partition.adding_replicas} - {
                *partition.removing_replicas
            }
            if len(current) != target:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor is changed from {len(current)} to {target}",
                )
        # A reassignment replaces one in progress: replicas that it was adding and that are not in
        # the target are removed.
        removing = sorted(set(partition.replicas) - set(requested.replicas))
        adding = sorted(set(requested.replicas) - set(partition.replicas))
        change.replicas = [*requested.replicas, *removing]
        if removing:
            change.removing_replicas = removing
        if adding:
            change.adding_replicas = adding
        return change

    def _revert(
        self, change: PartitionChange, topic: TopicState, partition: PartitionRegistration
    ) -> None:
        """Restore the replicas from before; KafkaError where that would lose the ISR."""
        if not partition.is_reassigning:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        adding = partition.adding_replicas
        change.replicas = [replica for replica in partition.replicas if replica not in adding]
        change.isr = [replica for replica in partition.isr if replica not in adding]
        change.adding_replicas, change.removing_replicas = [], []
        is_unclean_allowed = self._leadership.allows_unclean_election(topic)
        if not change.isr:
            if not change.replicas:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    "Invalid replica assignment: addingReplicas contains all replicas.",
                )
            if not is_unclean_allowed:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Unable to revert partition assignment for {topic.name}:"
                    f"{change.partition_id} because it would require an unclean leader election.",
                )
            change.isr = change.replicas[:1]
        if is_unclean_allowed:
            change.election = Election.UNCLEAN
