"""The broker role of a node: what request handlers work on.

Kafka: kafka.server.BrokerServer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.purgatory.purgatory import Purgatory
from ottla.quota.quotas import Quotas
from ottla.replication.fetch_session import FetchSessionCache
from ottla.server.broker.internal_topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    internal_topic_settings,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.controller.result import RecordPermits
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.metadata.image.image import MetadataImage
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.replication.delayed_fetch import DelayedFetch
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.metadata import BrokerMetadata
    from ottla.server.broker.producer_ids import ProducerIds
    from ottla.server.broker.telemetry import Telemetry
    from ottla.server.controller.channel import ControllerChannel
    from ottla.server.requests.decompression import Decompression
    from ottla.server.system.environment import RunInWorker
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import Node

_ONE_TOPIC_PARTITIONS = -1
"""num_partitions and replication_factor of a request that leaves both to the broker."""


class Broker:
    """Everything one broker serves requests from; owned by one loop."""

    def __init__(  # noqa: PLR0913 - a broker is made of all that handlers use
        self,
        metadata: BrokerMetadata,
        *,
        cluster_id: str,
        clock: Clock,
        rng: random.Random,
        timer: TimingWheel,
        controller: ControllerChannel,
        replicas: ReplicaSet,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        telemetry: Telemetry,
        decompression: Decompression,
        run_in_worker: RunInWorker,
    ) -> None:
        """Take the parts; none is changed for another while the broker runs."""
        config = metadata.config
        self.metadata = metadata
        self.settings = metadata.settings
        self.image: MetadataImage = metadata.image
        self.node_id: int = config.node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.rng = rng
        self.controller = controller
        self.replicas = replicas
        self.logs: LogSet = replicas.logs
        self.groups = groups
        self.producer_ids = producer_ids
        self.telemetry = telemetry
        self.decompression = decompression
        self.run_in_worker = run_in_worker
        self.fetch_max_bytes: int = config.fetch_max_bytes
        self.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots, rng
        )
        self.delayed_fetches: Purgatory[DelayedFetch] = Purgatory("Fetch", timer)
        self.quotas = Quotas(config)
        self.stored_configs = metadata.stored_configs
        self.refusal = metadata.refusal
        self.config_sources = metadata.config_sources
        self.topic_config = metadata.topic_config
        self.topic_id = metadata.topic_id
        self.topic_name = metadata.topic_name
        self.has_partition = metadata.has_partition
        self.nodes = metadata.nodes
        self._creating: set[str] = set()
        replicas.on_high_watermark(self.delayed_fetches.check_and_complete)

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self.metadata.config

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """Feature name → (lowest, highest) level this node can run."""
        return self.controller.supported_features

    def any_controller_id(self) -> int:
        """Return the broker that clients are told to send controller requests to."""
        return self.node_id

    def is_internal_topic(self, name: str) -> bool:
        """Say whether clients may not write to the topic."""
        return name in INTERNAL_TOPICS

    def group_coordinator_node(self, group_id: str, listener_name: str) -> Node | None:
        """Return the broker that coordinates a group; begin to make the offsets topic if needed."""
        topic = self.image.topics.by_name.get(OFFSETS_TOPIC)
        if topic is None:
            self.auto_create_topics([OFFSETS_TOPIC])
            return None
        partition = topic.partitions.get(self.groups.partition_for(group_id))
        if partition is None or partition.leader < 0:
            return None
        leader = self.image.cluster.brokers.get(partition.leader)
        return leader.node(listener_name) if leader is not None else None

    def auto_create_topics(
        self, names: list[str], record_permits: RecordPermits | None = None
    ) -> dict[str, ErrorCode]:
        """Start to create topics, counted in the quota of the client; return the error of each."""
        wanted = [name for name in names if name not in self._creating]
        if wanted:
            self._creating.update(wanted)
            request = CreateTopicsRequest(
                topics=[self._creatable(name) for name in wanted],
                timeout_ms=self.config.request_timeout_ms,
            )
            created = self.controller.create_topics(request, record_permits)
            created.on_done(lambda _done: self._creating.difference_update(wanted))
        return dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _creatable(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        settings = internal_topic_settings(name, self.config)
        if settings is None:
            return CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=_ONE_TOPIC_PARTITIONS,
                replication_factor=_ONE_TOPIC_PARTITIONS,
                assignments=[],
                configs=[],
            )
        return CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=settings.partitions,
            replication_factor=settings.replication_factor,
            assignments=[],
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                for key, value in settings.configs.items()
            ],
        )
