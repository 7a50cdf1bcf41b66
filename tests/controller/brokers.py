"""A controller with several brokers that only send requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.protocol.apis.alter_partition import AlterPartitionRequest
from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.unregister_broker import UnregisterBrokerRequest
from ottla.types import Uuid
from tests.controller.harness import CLUSTER_ID, Harness, assigned_topic, incremental_change

if TYPE_CHECKING:
    from ottla.metadata.partition import PartitionRegistration

TopicData = AlterPartitionRequest.TopicData
PartitionData = TopicData.PartitionData
Moved = AlterPartitionReassignmentsRequest.ReassignableTopic


def directory_of(broker_id: int, number: int = 0) -> Uuid:
    """Return the id of a log directory of a broker."""
    return Uuid(bytes([number + 100, broker_id] * 8))


def registration(broker_id: int, incarnation: int, **fields: Any) -> BrokerRegistrationRequest:
    """Return the registration of a broker with one directory."""
    values: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": Uuid(bytes([broker_id, incarnation] * 8)),
        "listeners": [
            BrokerRegistrationRequest.Listener(
                name="PLAINTEXT", host="127.0.0.1", port=9000 + broker_id, security_protocol=0
            )
        ],
        "features": [
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=levels.low, max_supported_version=levels.high
            )
            for name, levels in SUPPORTED_FEATURES.items()
        ],
        "rack": None,
        "log_dirs": [directory_of(broker_id)],
        "previous_broker_epoch": -1,
        **fields,
    }
    return BrokerRegistrationRequest(**values)


class Brokers(Harness):
    """Brokers 1 to `count`, registered and unfenced."""

    def __init__(self, count: int = 3, **properties: Any) -> None:
        super().__init__(**properties)
        self.epochs: dict[int, int] = {}
        self._incarnations: dict[int, int] = {}
        self.run_turn()
        for broker_id in range(1, count + 1):
            self.join(broker_id)

    def join(self, broker_id: int, **fields: Any) -> int:
        """Register a new incarnation of a broker; return its epoch. It stays fenced."""
        self.enrol(broker_id, **fields)
        self.beat(broker_id)
        return self.epochs[broker_id]

    def enrol(self, broker_id: int, **fields: Any) -> None:
        """Register a new incarnation of a broker, its session having ended; it stays fenced."""
        if broker_id in self._incarnations:
            self.let_sessions_expire(broker_id)
        self._incarnations[broker_id] = self._incarnations.get(broker_id, 0) + 1
        fields.setdefault("previous_broker_epoch", self.epochs.get(broker_id, -1))
        request = registration(broker_id, self._incarnations[broker_id], **fields)
        self.epochs[broker_id] = self.ask(request).broker_epoch

    def register_again(self, broker_id: int, **fields: Any) -> Any:
        """Register the same incarnation of a broker with other values; return the answer."""
        return self.ask(registration(broker_id, self._incarnations[broker_id], **fields))

    def let_sessions_expire(self, *silent: int) -> None:
        """Advance the clock while all other unfenced brokers send heartbeats."""
        self.clock.ms += self.config.broker_session_timeout_ms
        for broker_id, broker in sorted(self.image.cluster.brokers.items()):
            if broker_id not in silent and not broker.fenced:
                self.beat(broker_id)

    def beat(
        self,
        broker_id: int,
        *,
        fence: bool = False,
        stop: bool = False,
        offline: list[Uuid] | None = None,
    ) -> Any:
        """Send a heartbeat that has replayed everything."""
        return self.ask(self.heartbeat_of(broker_id, fence=fence, stop=stop, offline=offline))

    def heartbeat_of(
        self,
        broker_id: int,
        *,
        fence: bool = False,
        stop: bool = False,
        offline: list[Uuid] | None = None,
    ) -> BrokerHeartbeatRequest:
        """Return a heartbeat that has replayed everything."""
        return BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.image.offset_and_epoch.offset,
            want_fence=fence,
            want_shut_down=stop,
            offline_log_dirs=offline or [],
        )

    def assigned(self, name: str, *replicas: list[int], **configs: str) -> Uuid:
        """Create a topic with these replicas; return its id."""
        topic = assigned_topic(name, *replicas)
        struct = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
        topic.configs = [
            struct(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        answer = self.ask(CreateTopicsRequest(topics=[topic])).topics[0]
        assert answer.error_code == 0, answer
        topic_id: Uuid = answer.topic_id
        return topic_id

    def partition(self, name: str, number: int = 0) -> PartitionRegistration:
        """Return a partition as committed."""
        return self.image.topics.by_name[name].partitions[number]

    def alter(
        self, leader: int, name: str, *isr: int | tuple[int, int], number: int = 0, **fields: int
    ) -> Any:
        """Send a leader's AlterPartition for one partition; return the partition's answer.

        A member is a broker, with its epoch, or with the one given in a pair.
        """
        topic = self.image.topics.by_name[name]
        partition = topic.partitions[number]
        members = [
            one if isinstance(one, tuple) else (one, self.epochs.get(one, -1)) for one in isr
        ]
        values: dict[str, Any] = {
            "partition_index": number,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "leader_recovery_state": partition.leader_recovery_state,
            "new_isr_with_epochs": [
                PartitionData.BrokerState(broker_id=one, broker_epoch=epoch)
                for one, epoch in members
            ],
            **fields,
        }
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.epochs[leader],
            topics=[TopicData(topic_id=topic.topic_id, partitions=[PartitionData(**values)])],
        )
        return self.ask(request).topics[0].partitions[0]

    def reassign(
        self, name: str, replicas: list[int] | None, number: int = 0, *, factor: bool = True
    ) -> tuple[int, str | None]:
        """Start or (None) cancel a reassignment; return error code and message."""
        partition = Moved.ReassignablePartition(partition_index=number, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=factor,
            topics=[Moved(name=name, partitions=[partition])],
        )
        result = self.ask(request).responses[0].partitions[0]
        return result.error_code, result.error_message

    def elect(self, kind: int, name: str, number: int = 0) -> int:
        """Ask for a preferred (0) or unclean (1) election; return the error code."""
        struct = ElectLeadersRequest.TopicPartitions
        request = ElectLeadersRequest(
            election_type=kind, topic_partitions=[struct(topic=name, partitions=[number])]
        )
        answer = self.ask(request).replica_election_results[0].partition_result[0]
        code: int = answer.error_code
        return code

    def place(self, broker_id: int, name: str, directory: Uuid, number: int = 0) -> int:
        """Report the log directory of a replica; return the error code."""
        data = AssignReplicasToDirsRequest.DirectoryData
        topic = data.TopicData(
            topic_id=self.image.topics.by_name[name].topic_id,
            partitions=[data.TopicData.PartitionData(partition_index=number)],
        )
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            directories=[data(id=directory, topics=[topic])],
        )
        answer = self.ask(request).directories[0].topics[0].partitions[0]
        code: int = answer.error_code
        return code

    def unregister(self, broker_id: int) -> None:
        """Remove a broker from the cluster."""
        assert self.ask(UnregisterBrokerRequest(broker_id=broker_id)).error_code == 0

    def configure_topic(self, name: str, **configs: str) -> None:
        """Set settings of a topic, by underlined names."""
        changes = [(key.replace("_", "."), 0, value) for key, value in configs.items()]
        answer = self.ask(incremental_change(2, name, *changes))
        assert answer.responses[0].error_code == 0
