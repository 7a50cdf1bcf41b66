"""The parts of a broker that request handlers work with; its decisions are in the parts.

Kafka: kafka.server.BrokerServer, the constructor arguments of KafkaApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from ottla.purgatory.expiries import Expiries
from ottla.purgatory.purgatory import Purgatory
from ottla.replication.fetch_session import FetchSessionCache
from ottla.replication.replica_selector import RackAwareReplicaSelector
from ottla.server.broker.directory_moves import DirectoryMoves
from ottla.server.broker.internal_topics import OFFSETS_TOPIC
from ottla.server.broker.streams_topic_creation import StreamsTopicCreation
from ottla.server.broker.topic_auto_creation import TopicAutoCreation
from ottla.server.broker.transaction_markers import MarkerWriter
from ottla.server.broker.transaction_partitions import TransactionPartitions

if TYPE_CHECKING:
    import random

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.metadata.image.image import MetadataImage
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.quota.quotas import Quotas
    from ottla.replication.delayed_fetch import DelayedFetch
    from ottla.replication.replica_set import ReplicaSet
    from ottla.security.authorizer import StandardAuthorizer
    from ottla.server.broker.broker_channel import BrokerChannel
    from ottla.server.broker.coordinators import Coordinators
    from ottla.server.broker.log_cleaning import LogCleaning
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.broker.producer_ids import ProducerIdManager
    from ottla.server.broker.replication import Replication
    from ottla.server.broker.telemetry import Telemetry
    from ottla.server.broker.transaction_verification import TransactionVerification
    from ottla.server.controller.channel import ControllerChannel
    from ottla.server.controller.failure_detection import FailureDetection
    from ottla.server.controller.quorum_requests import QuorumRequests
    from ottla.server.controller.quorum_view import QuorumView
    from ottla.server.requests.decompression import Decompression
    from ottla.server.share.partitions import SharePartitions
    from ottla.server.system.environment import RunInWorker, RunOnVolume
    from ottla.storage.log_set.log_set import LogSet


class Broker:
    """Everything one broker serves requests from; owned by one loop."""

    __slots__ = (
        "authorizer",
        "channel",
        "clock",
        "cluster_id",
        "controller",
        "coordinators",
        "decompression",
        "delayed_fetches",
        "expiries",
        "failure_detection",
        "fetch_max_bytes",
        "fetch_sessions",
        "groups",
        "has_partition",
        "image",
        "log_cleaning",
        "logs",
        "markers",
        "metadata",
        "moves",
        "node_id",
        "nodes",
        "own_controller",
        "producer_ids",
        "quorum",
        "quorum_requests",
        "quotas",
        "replica_selector",
        "replicas",
        "replication",
        "rng",
        "run_on_volume",
        "run_trial",
        "share",
        "streams_topic_creation",
        "telemetry",
        "timer",
        "topic_auto_creation",
        "topic_name",
        "transaction_partitions",
        "transactions",
        "verification",
    )

    def __init__(  # noqa: PLR0913, PLR0915 - a broker is made of all that handlers use
        self,
        metadata: BrokerMetadata,
        *,
        cluster_id: str,
        clock: Clock,
        rng: random.Random,
        timer: TimingWheel,
        controller: ControllerChannel,
        own_controller: ControllerChannel,
        quorum: QuorumView,
        quorum_requests: QuorumRequests,
        failure_detection: FailureDetection,
        replicas: ReplicaSet,
        replication: Replication,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        share: SharePartitions,
        coordinators: Coordinators,
        verification: TransactionVerification,
        channel: BrokerChannel,
        producer_ids: ProducerIdManager,
        telemetry: Telemetry,
        quotas: Quotas,
        decompression: Decompression,
        run_on_volume: RunOnVolume,
        run_move: RunOnVolume,
        run_trial: RunInWorker,
        log_cleaning: LogCleaning,
        authorizer: StandardAuthorizer | None = None,
    ) -> None:
        """Take the parts; none is changed for another while the broker runs.

        controller reaches the active controller wherever it is, own_controller that of this node.
        """
        config = metadata.config
        self.metadata = metadata
        self.image: MetadataImage = metadata.image
        self.nodes = metadata.nodes
        self.topic_name = metadata.topic_name
        self.has_partition = metadata.has_partition
        self.node_id: int = config.node_id
        self.authorizer = authorizer
        """None where everyone may do everything."""
        self.cluster_id = cluster_id
        self.clock = clock
        self.rng = rng
        self.controller = controller
        self.own_controller = own_controller
        self.quorum = quorum
        self.quorum_requests = quorum_requests
        self.failure_detection = failure_detection
        self.replicas = replicas
        self.replication = replication
        self.timer = timer
        self.logs: LogSet = replicas.logs
        self.groups = groups
        self.transactions, self.share = transactions, share
        self.coordinators = coordinators
        self.verification = verification
        self.channel = channel
        """To any broker, this one included."""
        self.producer_ids = producer_ids
        self.telemetry = telemetry
        self.quotas = quotas
        self.decompression = decompression
        self.run_on_volume = run_on_volume
        self.run_trial = run_trial
        self.log_cleaning = log_cleaning
        self.topic_auto_creation = TopicAutoCreation(metadata, controller)
        self.streams_topic_creation = StreamsTopicCreation(metadata, controller, clock)
        self.fetch_max_bytes: int = config.fetch_max_bytes
        self.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots, rng
        )
        self.replica_selector = (
            RackAwareReplicaSelector(metadata.image.cluster)
            if config.replica_selector_class
            else None
        )
        """What refers consumers to near replicas (KIP-392); its name was checked at the start."""
        self.expiries = Expiries(timer)
        """Produce requests and markers that wait for other replicas."""
        self.markers = MarkerWriter(
            replicas, {OFFSETS_TOPIC: groups}, self.expiries, clock, config.request_timeout_ms
        )
        self.transaction_partitions = TransactionPartitions(transactions, metadata.has_partition)
        channel.answer_locally(WriteTxnMarkersRequest, self.markers.write)
        channel.answer_locally(AddPartitionsToTxnRequest, self.transaction_partitions.answer)
        self.delayed_fetches: Purgatory[DelayedFetch] = Purgatory("Fetch", timer)
        replicas.has_partition = metadata.has_partition
        replicas.on_high_watermark(self.delayed_fetches.check_and_complete)
        replicas.on_log_end(self.delayed_fetches.check_and_complete)
        self.moves = DirectoryMoves(
            metadata,
            replicas,
            replication.directories,
            quota=quotas.replication.directories,
            run_on_volume=run_move,
            clock=clock,
            timer=timer,
            on_exchanged=self.delayed_fetches.complete_watchers,
        )

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self.fetch_max_bytes = config.fetch_max_bytes
        self.quotas.configure(config)
        self.log_cleaning.settings_changed(config)
