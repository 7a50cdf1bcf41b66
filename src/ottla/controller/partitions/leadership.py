"""Leader and ISR changes: of brokers that come and go, by requested elections, by the clock.

Kafka: ReplicationControlManager.generateLeaderAndIsrUpdates and the handleBroker… methods;
ReplicationControlManager.{electLeaders, maybeBalancePartitionLeaders, maybeElectUncleanLeaders}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.partitions.partition_change import Election, PartitionChange
from ottla.controller.result import PARTITIONS_PER_SLICE, ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.partition import NO_LEADER
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.records.metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ottla.controller.cluster import ClusterControl
    from ottla.controller.configs import ConfigControl
    from ottla.controller.features import FeatureControl
    from ottla.controller.result import Slices
    from ottla.controller.topics import IndexedPartition, Located, Topics, TopicState
    from ottla.metadata.partition import PartitionRegistration
    from ottla.types import Uuid


_FENCE = 1
_UNFENCE = -1


class Leadership:
    """Returns the records of a broker's change and of its partitions."""

    def __init__(
        self,
        topics: Topics,
        *,
        cluster: ClusterControl,
        configs: ConfigControl,
        features: FeatureControl,
    ) -> None:
        self._topics = topics
        self._index = topics.index
        self._cluster = cluster
        self._configs = configs
        self._features = features
        self.lost_brokers: set[int] = set()
        """Brokers fenced before their sessions expire: partitions whose only in-sync replica they
        hold get no unclean leader until then. Soft state."""

    def awaits_lost_broker(self, partition: PartitionRegistration) -> bool:
        """Whether a lost broker that may be back soon could lead without loss."""
        if not self.lost_brokers:
            return False
        candidates = (*partition.isr, *partition.eligible_leader_replicas)
        return not self.lost_brokers.isdisjoint((*candidates, *partition.last_known_elr))

    def allows_unclean_election(self, topic: TopicState) -> bool:
        """Whether a replica that is out of sync may lead the topic."""
        return self._configs.allows_unclean_election(topic.name)

    def change(
        self, topic: TopicState, partition_id: int, partition: PartitionRegistration
    ) -> PartitionChange:
        """Return a change of one partition with the settings of cluster and topic."""

        def can_lead(broker_id: int) -> bool:
            return self._cluster.can_lead(broker_id, partition.directory_of(broker_id))

        change = PartitionChange(
            topic.topic_id, partition_id, partition, can_lead, self._cluster.default_directory
        )
        change.elr_enabled = self._features.is_elr_enabled
        change.bumps_epoch_on_shrink = self._features.bumps_epoch_on_shrink
        change.min_isr = self._min_isr(topic)
        return change

    def _min_isr(self, topic: TopicState) -> int:
        """Return min.insync.replicas, at most the replicas of the first partition, as in Kafka."""
        minimum = self._configs.min_insync_replicas(topic.name)
        return min(minimum, len(topic.partitions[0].replicas))

    def build(self, change: PartitionChange) -> MessageAndVersion | None:
        """Return the record of a change, None without one."""
        return change.build(self._features.partition_version)

    def updates(
        self,
        affected: Iterable[IndexedPartition],
        *,
        removed: int = NO_LEADER,
        added: int = NO_LEADER,
        unclean: int = NO_LEADER,
    ) -> list[MessageAndVersion]:
        """Elect leaders after brokers left or joined.

        `removed` and `unclean` leave the ISR; `unclean` may have lost records, so it is no longer
        an eligible leader either. `added` counts as active, which is recorded only now.
        """
        leaving = (removed, unclean)
        unclean_replicas = () if unclean == NO_LEADER else (unclean,)
        elr_enabled, version = self._features.is_elr_enabled, self._features.partition_version
        bumps_epoch = self._features.bumps_epoch_on_shrink
        rules: dict[Uuid, tuple[int, bool]] = {}  # thousands of partitions, few topics
        records = []
        for topic, partition_id, partition in self._topics.located(affected):
            rule = rules.get(topic.topic_id)
            if rule is None:
                rule = self._min_isr(topic), self.allows_unclean_election(topic)
                rules[topic.topic_id] = rule
            can_lead = self._acceptance(partition, leaving, added)
            change = PartitionChange(
                topic.topic_id, partition_id, partition, can_lead, self._cluster.default_directory
            )
            change.elr_enabled, change.bumps_epoch_on_shrink = elr_enabled, bumps_epoch
            change.unclean_replicas = unclean_replicas
            change.min_isr, allows_unclean = rule
            if allows_unclean and not self.awaits_lost_broker(partition):
                change.election = Election.UNCLEAN
            change.isr = [replica for replica in partition.isr if replica not in leaving]
            record = change.build(version)
            if record is not None:
                records.append(record)
        return records

    def _acceptance(
        self, partition: PartitionRegistration, leaving: tuple[int, int], added: int
    ) -> Callable[[int], bool]:
        def can_lead(broker_id: int) -> bool:
            if broker_id in leaving:
                return False
            directory = partition.directory_of(broker_id)
            if broker_id == added:
                return self._cluster.has_online_directory(broker_id, directory)
            return self._cluster.can_lead(broker_id, directory)

        return can_lead

    def update_slices(
        self,
        affected: Sequence[IndexedPartition],
        first: Iterable[MessageAndVersion] = (),
        **changes: int,
    ) -> Slices[list[MessageAndVersion]]:
        """Yield slices of `first` and of the updates; return the last one.

        changes are those of `updates`. Only the first PARTITIONS_PER_SLICE are made at once.
        """
        records = list(first)
        last = max(0, (len(affected) - 1) // PARTITIONS_PER_SLICE * PARTITIONS_PER_SLICE)
        for start in range(0, last, PARTITIONS_PER_SLICE):
            records += self.updates(affected[start : start + PARTITIONS_PER_SLICE], **changes)
            yield records
            records = []
        return records + self.updates(affected[last:], **changes)

    def fenced(self, broker_id: int, broker_epoch: int) -> Slices[list[MessageAndVersion]]:
        """Fence a broker and elect other leaders."""
        with self._cluster.leaving(broker_id):
            affected = self._index.in_sync(broker_id)
            records = yield from self.update_slices(affected, removed=broker_id)
        record = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, fenced=_FENCE
        )
        return [*records, MessageAndVersion(record, 0)]

    def unfenced(self, broker_id: int, broker_epoch: int) -> Slices[list[MessageAndVersion]]:
        """Unfence a broker and elect leaders for leaderless partitions."""
        record = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, fenced=_UNFENCE
        )
        first = [MessageAndVersion(record, 0)]
        return self.update_slices(self._index.leaderless(), first, added=broker_id)

    def in_controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> Slices[list[MessageAndVersion]]:
        """Move leaderships off a broker in controlled shutdown."""
        record = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, in_controlled_shutdown=1
        )
        first = [MessageAndVersion(record, 1)]
        affected = self._index.in_sync(broker_id)
        with self._cluster.leaving(broker_id):
            return (yield from self.update_slices(affected, first, removed=broker_id))

    def shut_down(self, broker_id: int, *, clean: bool) -> Slices[list[MessageAndVersion]]:
        """Remove the earlier incarnation of a broker from leaderships and ISRs.

        After an unclean shutdown its disk may have lost records, so it also leaves the eligible
        leader replicas (KIP-966).
        """
        affected = self._index.in_sync(broker_id)
        with self._cluster.leaving(broker_id):
            if clean or not self._features.is_elr_enabled:
                return (yield from self.update_slices(affected, removed=broker_id))
            affected += self._index.eligible(broker_id)
            return (yield from self.update_slices(affected, unclean=broker_id))

    def unregistered(self, broker_id: int, broker_epoch: int) -> Slices[list[MessageAndVersion]]:
        """Unregister a broker and elect other leaders."""
        with self._cluster.leaving(broker_id):
            affected = [*self._index.in_sync(broker_id), *self._index.eligible(broker_id)]
            records = yield from self.update_slices(affected, removed=broker_id)
        record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_epoch)
        return [*records, MessageAndVersion(record, 0)]

    def directories_lost(
        self, broker_id: int, broker_epoch: int, lost: tuple[Uuid, ...]
    ) -> Slices[list[MessageAndVersion]]:
        """Move leaderships off replicas whose directories went offline."""
        known = self._cluster.brokers[broker_id].log_directories
        newly_lost = [found for found in known if found in lost]
        if not newly_lost:
            return []
        records: list[MessageAndVersion] = []
        for directory in newly_lost:
            affected = self._index.in_directory(directory)
            records = yield from self.update_slices(affected, records, removed=broker_id)
        online = [found for found in known if found not in newly_lost]
        record = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, log_dirs=online
        )
        return [*records, MessageAndVersion(record, 2)]

    def directories_unclean(
        self, broker_id: int, returned: Sequence[Uuid]
    ) -> Slices[list[MessageAndVersion]]:
        """Treat the replicas in directories that return as those after an unclean shutdown.

        Their disk may have lost records. Kafka has no such directories: it wants a restart.
        """
        if not self._features.is_elr_enabled:
            return []
        records: list[MessageAndVersion] = []
        for directory in returned:
            affected = self._index.in_directory(directory)
            records = yield from self.update_slices(affected, records, unclean=broker_id)
        return records

    def directories_returned(self) -> Slices[list[MessageAndVersion]]:
        """Elect leaders for leaderless partitions once the directories are registered."""
        return self.update_slices(self._index.leaderless())


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
