"""The parts of a broker that request handlers work with; its decisions are in the parts.

Kafka: kafka.server.BrokerServer, the constructor arguments of KafkaApis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.metrics.ledger import Ledger

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.metadata.image.image import MetadataImage
    from ottla.purgatory.expiries import Expiries
    from ottla.purgatory.purgatory import Purgatory
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.purgatory.work import Worker
    from ottla.quota.quotas import Quotas
    from ottla.replication.delayed_fetch import DelayedFetch
    from ottla.replication.fetch_session import FetchSessionCache
    from ottla.replication.replica_set import RackAwareReplicaSelector, ReplicaSet
    from ottla.security.authorizer import StandardAuthorizer
    from ottla.server.broker.broker_channel import BrokerChannel
    from ottla.server.broker.coordinator_parts import Coordinators
    from ottla.server.broker.directory_moves import DirectoryMoves
    from ottla.server.broker.log_cleaner import LogCleaner
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.broker.replication import Replication
    from ottla.server.broker.telemetry import Telemetry
    from ottla.server.broker.topic_auto_creation import StreamsTopicCreation, TopicAutoCreation
    from ottla.server.broker.transaction_markers import MarkerWriter
    from ottla.server.broker.transaction_partitions import ProducerIdManager, TransactionPartitions
    from ottla.server.broker.transaction_verification import TransactionVerification
    from ottla.server.controller.channel import ControllerChannel
    from ottla.server.controller.quorum_view import QuorumRequests, QuorumView
    from ottla.server.controller.schedule import FailureDetection
    from ottla.server.remote.log_manager import RemoteLogManager
    from ottla.server.remote.reader import RemoteReader
    from ottla.server.requests.decompression import Decompression
    from ottla.server.share.partitions import SharePartitions
    from ottla.server.system.environment import RunInWorker, RunOnVolume
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import Node, Uuid


@dataclass(slots=True, kw_only=True, eq=False)
class Broker:
    """Everything one broker serves requests from; owned by one loop."""

    metadata: BrokerMetadata
    cluster_id: str
    clock: Clock
    rng: random.Random
    timer: TimingWheel
    worker: Worker
    run_on_volume: RunOnVolume
    run_trial: RunInWorker
    """Runs trials of changed settings, which open files."""
    authorizer: StandardAuthorizer | None
    """None where everyone may do everything."""
    controller: ControllerChannel
    """Reaches the active controller, wherever it is."""
    own_controller: ControllerChannel
    """Reaches this node's controller."""
    quorum: QuorumView
    quorum_requests: QuorumRequests
    failure_detection: FailureDetection
    replicas: ReplicaSet
    replication: Replication
    moves: DirectoryMoves
    log_cleaner: LogCleaner
    delayed_fetches: Purgatory[DelayedFetch]
    fetch_sessions: FetchSessionCache
    replica_selector: RackAwareReplicaSelector | None
    """Refers consumers to near replicas (KIP-392); its name was checked at the start."""
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share: SharePartitions
    coordinators: Coordinators
    verification: TransactionVerification
    channel: BrokerChannel
    """Reaches any broker, this one included."""
    markers: MarkerWriter
    transaction_partitions: TransactionPartitions
    expiries: Expiries
    """Produce requests and markers that wait for other replicas."""
    producer_ids: ProducerIdManager
    topic_auto_creation: TopicAutoCreation
    streams_topic_creation: StreamsTopicCreation
    telemetry: Telemetry
    quotas: Quotas
    decompression: Decompression
    remote_reader: RemoteReader | None = field(init=False, default=None)
    """Reads the tier; set where remote.log.storage.system.enable is true."""
    remote_logs: RemoteLogManager | None = field(init=False, default=None)
    """Copies to the tier and deletions there, by topic."""
    ledger: Ledger = field(init=False, default_factory=Ledger)
    """Of the memory that is kept for clients."""
    # What handlers read most often, from the parts above.
    node_id: int = field(init=False)
    image: MetadataImage = field(init=False)
    logs: LogSet = field(init=False)
    nodes: Callable[[str], list[Node]] = field(init=False)
    topic_name: Callable[[Uuid], str | None] = field(init=False)
    has_partition: Callable[[str, int], bool] = field(init=False)
    fetch_max_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.node_id = self.metadata.node_id
        self.image = self.metadata.image
        self.logs = self.replicas.logs
        self.nodes = self.metadata.nodes
        self.topic_name = self.metadata.topic_name
        self.has_partition = self.metadata.has_partition
        holders = (self.quotas, self.fetch_sessions, self.share.sessions, self.telemetry)
        for holder in (*holders, self.groups, self.logs.producers, self.authorizer):
            if holder is not None:
                holder.account_in(self.ledger)
        self.reconfigure(self.metadata.config)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self.fetch_max_bytes = config.fetch_max_bytes
