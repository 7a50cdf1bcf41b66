"""Leader elections, by request and by the clock.

Kafka: ReplicationControlManager.{electLeaders, maybeBalancePartitionLeaders,
maybeElectUncleanLeaders}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.partitions.partition_change import Election
from ottla.controller.result import PARTITIONS_PER_SLICE, ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ottla.controller.partitions.leadership import Leadership
    from ottla.controller.result import Slices
    from ottla.controller.topics import IndexedPartition, Located, Topics
    from ottla.metadata.framing import MessageAndVersion
    from ottla.metadata.partition import PartitionRegistration

_ElectionResult = ElectLeadersResponse.ReplicaElectionResult
_PREFERRED, _UNCLEAN = 0, 1


class LeaderElections:
    """Elects leaders; returns the records."""

    def __init__(self, topics: Topics, leadership: Leadership) -> None:
        self._topics = topics
        self._leadership = leadership

    def elect_leaders(
        self, request: ElectLeadersRequest
    ) -> Slices[ControllerResult[ElectLeadersResponse]]:
        """Elect the preferred (0) or, where there is no leader, an unclean leader (1)."""
        if request.election_type not in (_PREFERRED, _UNCLEAN):
            return ControllerResult([], _refuse_election(request))
        preferred = request.election_type == _PREFERRED
        records: list[MessageAndVersion] = []
        response = ElectLeadersResponse(error_code=0, replica_election_results=[])
        if request.topic_partitions is None:
            requested = [(topic.name, list(topic.partitions)) for topic in self._topics]
        else:
            requested = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
        count = 0
        for name, partition_ids in requested:
            result = _ElectionResult(topic=name, partition_result=[])
            for partition_id in partition_ids:
                count += 1
                if count % PARTITIONS_PER_SLICE == 0:
                    yield records
                    records = []
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
        return ControllerResult(records, response, is_atomic=False)

    def balance_leaders(self) -> Slices[ControllerResult[None]]:
        """Elect preferred leaders where they can lead."""
        for located in self._sliced(self._topics.index.imbalanced):
            records: list[MessageAndVersion] = []
            for topic, partition_id, _ in located:
                self._elect(topic.name, partition_id, records, preferred=True)
            yield records
        return ControllerResult([], None)

    def elect_unclean_leaders(self) -> Slices[ControllerResult[None]]:
        """Elect leaders where there are none and an unclean election is allowed."""
        leadership = self._leadership
        for located in self._sliced(self._topics.index.leaderless()):
            records: list[MessageAndVersion] = []
            for topic, partition_id, partition in located:
                is_allowed = leadership.allows_unclean_election(topic)
                if is_allowed and not leadership.awaits_lost_broker(partition):
                    self._elect(topic.name, partition_id, records, preferred=False)
            yield records
        return ControllerResult([], None)

    def _sliced(self, keys: Collection[IndexedPartition]) -> Iterator[list[Located]]:
        """Yield the partitions in slices, each as it is when the slice is made."""
        remaining = list(keys)
        for first in range(0, len(remaining), PARTITIONS_PER_SLICE):
            yield self._topics.located(remaining[first : first + PARTITIONS_PER_SLICE])

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
        record = self._leadership.build(change)
        if record is None:
            return KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
                if preferred
                else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            )
        records.append(record)
        return None


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
