"""Changes that brokers request: in-sync replicas (KIP-497), directories of replicas (KIP-858).

A leader learns from the error whether its request was late (FENCED_LEADER_EPOCH,
INVALID_UPDATE_VERSION), ahead of this controller (NOT_CONTROLLER), or named a replica that may not
be in sync (INELIGIBLE_REPLICA, KIP-841 and KIP-903).

Kafka: ReplicationControlManager.{alterPartition, handleAssignReplicasToDirs}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ottla.controller.partitions.partition_change import Election
from ottla.controller.result import PARTITIONS_PER_SLICE, ControllerResult, in_one_turn
from ottla.controller.topics import IndexedPartition, Located
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.partition import NO_LEADER_CHANGE, LeaderRecoveryState
from ottla.protocol.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.protocol.apis.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.protocol.records.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.controller.cluster import ClusterControl
    from ottla.controller.partitions.leadership import Leadership
    from ottla.controller.result import Decision, Slices
    from ottla.controller.topics import Topics, TopicState
    from ottla.metadata.broker import BrokerRegistration
    from ottla.metadata.framing import MessageAndVersion
    from ottla.metadata.partition import PartitionRegistration
    from ottla.types import Uuid


_TopicAnswer: TypeAlias = AlterPartitionResponse.TopicData
_Answer = _TopicAnswer.PartitionData
_Requested: TypeAlias = AlterPartitionRequest.TopicData.PartitionData
_Member = _Requested.BrokerState
_NO_EPOCH = -1
_RECOVERY_STATES = (LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING)


class AlterPartition:
    """Validates the requests of leaders and returns the records."""

    def __init__(self, topics: Topics, leadership: Leadership, *, cluster: ClusterControl) -> None:
        self._topics = topics
        self._leadership = leadership
        self._cluster = cluster

    def alter(self, request: AlterPartitionRequest) -> Decision[AlterPartitionResponse]:
        """Change the ISR of each partition on its own; KafkaError STALE_BROKER_EPOCH.

        The response holds the partition as it is after the change. Few partitions are changed at
        once, also while a sliced decision is in progress.
        """
        slices = self._alter_all(request)
        count = sum(len(topic.partitions) for topic in request.topics)
        return slices if count >= PARTITIONS_PER_SLICE else in_one_turn(slices)

    def _alter_all(
        self, request: AlterPartitionRequest
    ) -> Slices[ControllerResult[AlterPartitionResponse]]:
        response = AlterPartitionResponse(topics=[])
        if not request.topics:
            return ControllerResult([], response)
        self._cluster.check_epoch(request.broker_id, request.broker_epoch)
        records: list[MessageAndVersion] = []
        count = 0
        for requested in request.topics:
            answers = []
            for partition in requested.partitions:
                count += 1
                if count % PARTITIONS_PER_SLICE == 0:
                    yield records
                    records = []
                topic = self._topics.by_id(requested.topic_id)
                if topic is None:
                    answers.append(_refused(partition, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    answers.append(self._alter(request.broker_id, topic, partition, records))
            response.topics.append(_TopicAnswer(topic_id=requested.topic_id, partitions=answers))
        return ControllerResult(records, response, is_atomic=False)

    def _alter(
        self,
        broker_id: int,
        topic: TopicState,
        requested: _Requested,
        records: list[MessageAndVersion],
    ) -> _Answer:
        partition: PartitionRegistration | None = topic.partitions.get(requested.partition_index)
        members = _members(requested)
        error = self._check(broker_id, partition, requested, members)
        if error is not ErrorCode.NONE or partition is None:
            return _refused(requested, error)
        change = self._leadership.change(topic, requested.partition_index, partition)
        if self._leadership.allows_unclean_election(topic):
            change.election = Election.UNCLEAN
        change.isr = [member.broker_id for member in members]
        change.recovery_state = requested.leader_recovery_state
        record = self._leadership.build(change)
        if record is not None:
            records.append(record)
            assert isinstance(record.message, PartitionChangeRecord)
            partition = partition.merge(record.message)
            if record.message.leader not in {broker_id, NO_LEADER_CHANGE}:
                # the change completed a reassignment away from this leader
                return _refused(requested, ErrorCode.NEW_LEADER_ELECTED)
        return _Answer(
            partition_index=requested.partition_index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _check(
        self,
        broker_id: int,
        partition: PartitionRegistration | None,
        requested: _Requested,
        members: list[_Member],
    ) -> ErrorCode:
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = _check_epochs(broker_id, partition, requested)
        if error is not ErrorCode.NONE:
            return error
        if not _is_valid(partition, requested, [member.broker_id for member in members]):
            return ErrorCode.INVALID_REQUEST
        if not all(self._is_eligible(member) for member in members):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _is_eligible(self, member: _Member) -> bool:
        """Whether a broker may be in sync: active, in the incarnation that the leader saw."""
        broker: BrokerRegistration | None = self._cluster.brokers.get(member.broker_id)
        if broker is None or not self._cluster.is_active(member.broker_id):
            return False
        return member.broker_epoch in {_NO_EPOCH, broker.broker_epoch}


def _members(requested: _Requested) -> list[_Member]:
    """Return the requested ISR; version 2 has no epochs."""
    if requested.new_isr_with_epochs:
        return list(requested.new_isr_with_epochs)
    return [_Member(broker_id=broker_id) for broker_id in requested.new_isr]


def _check_epochs(
    broker_id: int, partition: PartitionRegistration, requested: _Requested
) -> ErrorCode:
    """Return an error where the broker is not the leader of the partition as it is now."""
    leader_epoch, partition_epoch = requested.leader_epoch, requested.partition_epoch
    if leader_epoch > partition.leader_epoch or partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the broker has state of a newer controller
    if leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _is_valid(partition: PartitionRegistration, requested: _Requested, isr: list[int]) -> bool:
    """Whether the ISR has replicas only, each once and the leader, and the state is possible.

    A leader that recovers from an unclean election is alone in its ISR, and one that has recovered
    does not recover again.
    """
    if len(set(isr)) != len(isr) or not set(isr).issubset(partition.replicas):
        return False
    if partition.leader not in isr or requested.leader_recovery_state not in _RECOVERY_STATES:
        return False
    if requested.leader_recovery_state == LeaderRecoveryState.RECOVERING:
        is_recovering = partition.leader_recovery_state == LeaderRecoveryState.RECOVERING
        return len(isr) == 1 and is_recovering
    return True


def _refused(requested: _Requested, error: ErrorCode) -> _Answer:
    return _Answer(
        partition_index=requested.partition_index,
        error_code=error,
        leader_id=0,
        leader_epoch=0,
        isr=[],
        partition_epoch=0,
    )


_Directory = AssignReplicasToDirsResponse.DirectoryData


def assign_replicas(
    request: AssignReplicasToDirsRequest,
    topics: Topics,
    leadership: Leadership,
    *,
    cluster: ClusterControl,
) -> Slices[ControllerResult[AssignReplicasToDirsResponse]]:
    """Record the directories of replicas; those in one that is offline lose their leaderships.

    KafkaError STALE_BROKER_EPOCH for another epoch.
    """
    broker = cluster.check_epoch(request.broker_id, request.broker_epoch)
    records: list[MessageAndVersion] = []
    offline: dict[IndexedPartition, None] = {}
    response = AssignReplicasToDirsResponse(error_code=0, directories=[])
    count = 0
    for directory in request.directories:
        answer = _Directory(id=directory.id, topics=[])
        is_online = broker.has_online_directory(directory.id)
        for topic in directory.topics:
            topic_answer = _Directory.TopicData(topic_id=topic.topic_id, partitions=[])
            for requested in topic.partitions:
                count += 1
                if count % PARTITIONS_PER_SLICE == 0:
                    yield records
                    records = []
                number = requested.partition_index
                try:
                    change = _replica_of(broker.broker_id, topic.topic_id, number, topics)
                except KafkaError as error:
                    code = error.code
                else:
                    code = ErrorCode.NONE
                    records += _moved(change, broker.broker_id, directory.id, leadership)
                    if not is_online:
                        offline[IndexedPartition(topic.topic_id, number)] = None
                topic_answer.partitions.append(
                    _Directory.TopicData.PartitionData(partition_index=number, error_code=code)
                )
            answer.topics.append(topic_answer)
        response.directories.append(answer)
    records = yield from leadership.update_slices([*offline], records, removed=broker.broker_id)
    return ControllerResult(records, response, is_atomic=False)


def _replica_of(broker_id: int, topic_id: Uuid, partition_id: int, topics: Topics) -> Located:
    """Return a partition of the broker; KafkaError when it is none."""
    topic = topics.by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition: PartitionRegistration | None = topic.partitions.get(partition_id)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return Located(topic, partition_id, partition)


def _moved(
    located: Located, broker_id: int, directory: Uuid, leadership: Leadership
) -> list[MessageAndVersion]:
    change = leadership.change(*located)
    change.directories[broker_id] = directory
    record = leadership.build(change)
    return [] if record is None else [record]
