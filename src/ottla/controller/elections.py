"""Requested leader elections and partition reassignments.

Kafka: ReplicationControlManager.{electLeaders, listPartitionReassignments,
alterPartitionReassignments, handleAssignReplicasToDirs}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.controller.assignment import check_manual_assignment
from ottla.controller.partition_change import Election
from ottla.controller.result import ControllerResult, specific_message
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.controller.cluster import ClusterControl
    from ottla.controller.features import FeatureControl
    from ottla.controller.leadership import Leadership
    from ottla.controller.topics import Topics, TopicState
    from ottla.metadata.framing import MessageAndVersion
    from ottla.metadata.partition import PartitionRegistration

_ElectionResult = ElectLeadersResponse.ReplicaElectionResult
_Reassigned = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Ongoing = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Reassignment: TypeAlias = (
    AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
)


class Elections:
    """Elects leaders and reassigns partitions; returns the records."""

    def __init__(
        self,
        topics: Topics,
        leadership: Leadership,
        *,
        cluster: ClusterControl,
        features: FeatureControl,
    ) -> None:
        self._topics = topics
        self._leadership = leadership
        self._cluster = cluster
        self._features = features

    def elect_leaders(self, request: ElectLeadersRequest) -> ControllerResult[ElectLeadersResponse]:
        """Elect the preferred (0) or, where there is no leader, an unclean leader (1)."""
        if request.election_type not in (0, 1):
            return ControllerResult([], _refuse_election(request))
        preferred = request.election_type == 0
        records: list[MessageAndVersion] = []
        response = ElectLeadersResponse(error_code=0, replica_election_results=[])
        if request.topic_partitions is None:
            requested = [(topic.name, list(topic.partitions)) for topic in self._topics]
        else:
            requested = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
        for name, partition_ids in requested:
            result = _ElectionResult(topic=name, partition_result=[])
            for partition_id in partition_ids:
                error = self._elect(name, partition_id, records, preferred=preferred)
                needless = error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED
                if needless and request.topic_partitions is None:
                    continue
                result.partition_result.append(
                    _ElectionResult.PartitionResult(
                        partition_id=partition_id,
                        error_code=error.code if error else 0,
                        error_message=error.message if error else None,
                    )
                )
            response.replica_election_results.append(result)
        return ControllerResult(records, response)

    def _elect(
        self, name: str, partition_id: int, records: list[MessageAndVersion], *, preferred: bool
    ) -> KafkaError | None:
        topic = self._topics.by_name(name)
        if topic is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        partition: PartitionRegistration | None = topic.partitions.get(partition_id)
        if partition is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition_id}"
            )
        if partition.leader == partition.preferred_replica if preferred else partition.has_leader:
            return KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        change = self._leadership.change(topic, partition_id, partition)
        change.election = Election.PREFERRED if preferred else Election.UNCLEAN
        record = change.build(self._features.partition_version)
        if record is None:
            return KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
                if preferred
                else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            )
        records.append(record)
        return None

    def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Return the partitions with a reassignment in progress."""
        response = ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])
        requested = None
        if request.topics is not None:
            requested = {topic.name: set(topic.partition_indexes) for topic in request.topics}
        for topic in self._topics:
            if requested is not None and topic.name not in requested:
                continue
            ongoing = [
                _Ongoing.OngoingPartitionReassignment(
                    partition_index=partition_id,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
                for partition_id, partition in topic.partitions.items()
                if partition.is_reassigning
                and (requested is None or partition_id in requested[topic.name])
            ]
            if ongoing:
                response.topics.append(_Ongoing(name=topic.name, partitions=ongoing))
        return response

    def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> ControllerResult[AlterPartitionReassignmentsResponse]:
        """Start reassignments, or cancel those with null replicas; each partition on its own."""
        records: list[MessageAndVersion] = []
        response = AlterPartitionReassignmentsResponse(
            error_code=0,
            error_message=None,
            responses=[],
            allow_replication_factor_change=request.allow_replication_factor_change,
        )
        for topic in request.topics:
            result = _Reassigned(name=topic.name, partitions=[])
            for requested in topic.partitions:
                error: KafkaError | None = None
                try:
                    records += self._reassign(
                        topic.name,
                        requested,
                        factor_may_change=request.allow_replication_factor_change,
                    )
                except KafkaError as problem:
                    error = problem
                result.partitions.append(
                    _Reassigned.ReassignablePartitionResponse(
                        partition_index=requested.partition_index,
                        error_code=error.code if error else 0,
                        error_message=specific_message(error),
                    )
                )
            response.responses.append(result)
        return ControllerResult(records, response)

    def _reassign(
        self, name: str, requested: _Reassignment, *, factor_may_change: bool
    ) -> Sequence[MessageAndVersion]:
        topic = self._topics.by_name(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
            )
        partition: PartitionRegistration | None = topic.partitions.get(requested.partition_index)
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Unable to find partition {name}:{requested.partition_index}.",
            )
        change = self._leadership.change(topic, requested.partition_index, partition)
        before = [
            replica for replica in partition.replicas if replica not in partition.adding_replicas
        ]
        if requested.replicas is None:
            if not partition.is_reassigning:
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            change.replicas = before
            change.isr = [replica for replica in partition.isr if replica in before]
            change.adding_replicas, change.removing_replicas = [], []
        else:
            target = list(requested.replicas)
            check_manual_assignment(target, None, self._cluster)
            if not factor_may_change and len(target) != len(before):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor is changed from {len(before)} to {len(target)}",
                )
            removing = [replica for replica in before if replica not in target]
            change.replicas = target + removing
            change.adding_replicas = [replica for replica in target if replica not in before]
            change.removing_replicas = removing
        self._assign_directories(change.replicas, topic, requested.partition_index)
        record = change.build(self._features.partition_version)
        return [] if record is None else [record]

    def _assign_directories(
        self, replicas: Sequence[int], topic: TopicState, partition_id: int
    ) -> None:
        """Refuse replicas on other brokers: moving data requires replication, not implemented."""
        partition = topic.partitions[partition_id]
        if any(replica not in partition.replicas for replica in replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Partitions cannot be moved to other brokers yet.",
            )


def _refuse_election(request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Return the error of an unknown election type; an empty topic list (not null) has none."""
    if request.topic_partitions is not None and not request.topic_partitions:
        return ElectLeadersResponse(error_code=0, replica_election_results=[])
    code = ErrorCode.INVALID_REQUEST
    text = f"Unknown election type {request.election_type}"
    results = [
        _ElectionResult(
            topic=topic.topic,
            partition_result=[
                _ElectionResult.PartitionResult(
                    partition_id=partition_id, error_code=code, error_message=text
                )
                for partition_id in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)
