"""The broker role of a node: what handlers work on, and what metadata changes do to it.

Kafka: kafka.server.BrokerServer, BrokerMetadataPublisher.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.config.describe import BrokerSources
from ottla.config.topic import load_topic_config
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.purgatory.purgatory import Purgatory
from ottla.quota.quotas import Quotas
from ottla.replication.fetch_session import FetchSessionCache
from ottla.replication.replica_set import ReplicaSet
from ottla.server.broker.coordinator_log import TopicLog
from ottla.server.broker.internal_topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    internal_topic_settings,
)
from ottla.server.node.dynamic_settings import DynamicSettings, cordoned_directories
from ottla.storage.log.config import LogConfig

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.config.topic import TopicConfig
    from ottla.controller.result import RecordPermits
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.topic import TopicImage
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.replication.delayed_fetch import DelayedFetch
    from ottla.replication.partition import Partition
    from ottla.server.broker.producer_ids import ProducerIds
    from ottla.server.broker.telemetry import Telemetry
    from ottla.server.controller.controller_node import ControllerNode
    from ottla.server.requests.decompression import Decompression
    from ottla.server.system.environment import RunInWorker
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import Node, Uuid

_ONE_TOPIC_PARTITIONS = -1
"""num_partitions and replication_factor of a request that leaves both to the broker."""

_MAX_LOG_CONFIGS = 1024

log = logging.getLogger("ottla.broker")


class Broker:
    """Everything one broker serves requests from; owned by one loop."""

    groups: GroupCoordinator
    logs: LogSet
    producer_ids: ProducerIds
    replicas: ReplicaSet
    decompression: Decompression
    telemetry: Telemetry

    def __init__(
        self,
        config: BrokerConfig,
        *,
        cluster_id: str,
        clock: Clock,
        rng: random.Random,
        controller: ControllerNode,
        timer: TimingWheel,
    ) -> None:
        self._reported: set[str] = set()
        self.config = config
        self.settings = DynamicSettings(config)
        self.node_id: int = config.node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.rng = rng
        self.controller = controller
        self.image: MetadataImage = controller.image
        self.fetch_max_bytes: int = config.fetch_max_bytes
        self.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots, rng
        )
        self.delayed_fetches: Purgatory[DelayedFetch] = Purgatory("Fetch", timer)
        self.quotas = Quotas(config)
        self._creating: set[str] = set()
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        """By what topics set themselves."""
        self.run_in_worker: RunInWorker | None = None
        """How a handler has the disk waited for; without it, reads of cold files wait here."""

    def open_logs(self, logs: LogSet) -> None:
        """Take the node's logs; the settings of a log come from `log_config`."""
        self.logs = logs
        logs.cordoned = cordoned_directories(self.config)
        logs.producers.most = self.config.own.producer_states_max
        self.replicas = ReplicaSet(self.node_id, logs)
        self.replicas.on_high_watermark(self.delayed_fetches.check_and_complete)

    # What handlers ask

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """Feature name → (lowest, highest) level this node can run."""
        return self.controller.supported_features

    def nodes(self, listener_name: str) -> list[Node]:
        """Return the brokers as they are advertised on a listener."""
        found = (one.node(listener_name) for one in self.image.cluster.unfenced_brokers())
        return [node for node in found if node is not None]

    def any_controller_id(self) -> int:
        """Return the broker that clients are told to send controller requests to."""
        return self.node_id

    def is_internal_topic(self, name: str) -> bool:
        """Say whether clients may not write to the topic."""
        return name in INTERNAL_TOPICS

    def stored_configs(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the settings stored for a resource."""
        return self.image.configs.of(kind, name)

    def refusal(self, resource_name: str, settings: Mapping[str, str]) -> str | None:
        """Say why this broker could not run with these settings of a broker or of all brokers."""
        return self.settings.refusal(self.image, resource_name, settings)

    def config_sources(self) -> BrokerSources:
        """Return all places this broker's settings come from."""
        return BrokerSources(
            self.config,
            self.stored_configs(ConfigResourceType.BROKER, str(self.node_id)),
            self.stored_configs(ConfigResourceType.BROKER, ""),
        )

    def topic_config(self, name: str) -> TopicConfig:
        """Return a topic's effective settings."""
        return load_topic_config(self.stored_configs(ConfigResourceType.TOPIC, name), self.config)

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

    def offsets_partitions(self) -> int | None:
        """Return how many partitions the offsets topic has; None while there is no such topic."""
        topic = self.image.topics.by_name.get(OFFSETS_TOPIC)
        return None if topic is None else len(topic.partitions)

    def topic_id(self, name: str) -> Uuid | None:
        """Return the id of a topic; None when there is no such topic."""
        return self.image.topics.topic_id(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the name of a topic; None when there is no such topic."""
        topic = self.image.topics.by_id.get(topic_id)
        return topic.name if topic is not None else None

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic exists and has that partition."""
        topic = self.image.topics.by_name.get(name)
        return topic is not None and partition in topic.partitions

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

    # What metadata changes do

    def topic_log(self, topic: str) -> TopicLog:
        """Return a coordinator's view of an internal topic."""
        return TopicLog(topic, self.replicas, self.clock)

    def partition_committed(self, partition: Partition) -> None:
        """Tell the group coordinator how far its log is committed."""
        self.groups.on_high_watermark(
            partition.topic_partition.partition, partition.log.high_watermark
        )

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply committed metadata; a part that fails is logged and stops no other part."""
        self.image = image
        now_ms = self.clock.now_ms()
        for topic in delta.topics_deleted.values():
            self._apply(f"deletion of {topic.name}", self._drop_topic, topic, now_ms)
        for topic_id, partitions in delta.partitions_changed.items():
            topic = image.topics.by_id[topic_id]
            for index, before in partitions.items():
                is_new = not delta.is_snapshot and (
                    before is None or self.node_id not in before.replicas
                )
                host = partial(self._host_partition, is_new=is_new)
                self._apply(f"change of {topic.name}-{index}", host, topic, index, now_ms)
        if delta.quotas_changed:
            quotas = image.quotas.by_entity
            self._apply("change of quotas", self.quotas.update, quotas, delta.quotas_changed)
        for resource in delta.configs_changed:
            what = f"change of settings of {resource.name}"
            if resource.type == ConfigResourceType.TOPIC:
                self._apply(what, self._reconfigure, resource.name)
            elif resource.type == ConfigResourceType.CLIENT_METRICS:
                self._apply(what, self.telemetry.update, image, resource.name)
        if any(one.type == ConfigResourceType.BROKER for one in delta.configs_changed):
            self._apply("change of brokers' settings", self._reconfigure_all)

    def _apply(self, what: str, change: Callable[..., None], *arguments: object) -> None:
        try:
            change(*arguments)
        except Exception:  # the other changes of the delta must still be applied
            log.exception("%s failed", what, extra={"event": "metadata.not_applied"})

    def _drop_topic(self, topic: TopicImage, now_ms: int) -> None:
        for index in sorted(topic.partitions):
            try:
                self.replicas.drop(topic.name, index, now_ms=now_ms)
            except KafkaError as error:
                # its directory is offline now; what else changed must not be passed over
                log.error("not removed: %s", error, extra={"event": "partition.broken"})  # noqa: TRY400 - the message names the log
            if topic.name == OFFSETS_TOPIC:
                self.groups.on_resigned(index)
        if topic.name != OFFSETS_TOPIC:
            self.groups.on_topics_deleted([(topic.name, topic.topic_id)])

    def _host_partition(self, topic: TopicImage, index: int, now_ms: int, *, is_new: bool) -> None:
        image = topic.partitions[index]
        if self.node_id not in image.replicas:
            return
        name = topic.name
        try:
            partition = self.replicas.host(
                name, index, topic.topic_id, now_ms=now_ms, is_new=is_new
            )
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            if str(error) not in self._reported:  # one log that cannot be opened stops no other
                self._reported.add(str(error))
                log.error("not served: %s", error, extra={"event": "partition.broken"})  # noqa: TRY400 - the message names the log
            return
        partition.replicas, partition.isr = image.replicas, image.isr
        partition.partition_epoch = image.partition_epoch
        partition.is_internal = name in INTERNAL_TOPICS
        partition.min_insync_replicas = self.log_config(name).min_insync_replicas
        if image.leader == self.node_id:
            self._lead(partition, image.leader_epoch)
        else:
            partition.resign(image.leader, image.leader_epoch)

    def _lead(self, partition: Partition, leader_epoch: int) -> None:
        is_new = not partition.is_leader or leader_epoch != partition.leader_epoch
        topic, index = partition.topic_partition
        if topic == OFFSETS_TOPIC:
            partition.on_commit = self.partition_committed
        partition.become_leader(self.node_id, leader_epoch)
        if is_new and topic == OFFSETS_TOPIC:
            self.groups.on_elected(index, leader_epoch)

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs; topics that set the same share them."""
        stored = self.stored_configs(ConfigResourceType.TOPIC, topic)
        key = tuple(stored.items())
        known = self._log_configs.get(key)
        if known is None:
            if len(self._log_configs) >= _MAX_LOG_CONFIGS:
                self._log_configs.clear()
            known = log_config(load_topic_config(stored, self.config), self.config)
            self._log_configs[key] = known
        return known

    def _reconfigure(self, name: str) -> None:
        topic = self.image.topics.by_name.get(name)
        if topic is None:
            return
        self.logs.reconfigure(name, topic.partitions)
        min_insync_replicas = self.log_config(name).min_insync_replicas
        for index in topic.partitions:
            partition = self.replicas.find(name, index)
            if partition is not None:
                partition.min_insync_replicas = min_insync_replicas

    def _reconfigure_all(self) -> None:
        self.settings.apply(self.image)
        self.config = self.settings.current
        self._log_configs.clear()
        self.fetch_max_bytes = self.config.fetch_max_bytes
        self.logs.cordoned = cordoned_directories(self.config)
        self.quotas.configure(self.config)
        for topic in self.image.topics.by_name.values():
            self._reconfigure(topic.name)


def log_config(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    """Return the settings of a log from those of its topic and its broker."""
    values = {
        name: getattr(topic, name)
        for name in LogConfig.__dataclass_fields__
        if name.replace("_", ".") in topic.keys
    }
    values["segment_bytes"] = topic.effective_segment_bytes
    values["producer_id_expiration_ms"] = broker.producer_id_expiration_ms
    return LogConfig(**values)
