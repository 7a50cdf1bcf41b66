"""The broker's view of the committed metadata: topics, brokers, and settings in force.

Kafka: KRaftMetadataCache, ConfigRepository, DynamicBrokerConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.describe import BrokerSources
from ottla.config.topic import load_topic_config
from ottla.metadata.resources import ConfigResourceType
from ottla.storage.log.config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.config.topic import TopicConfig
    from ottla.metadata.image.image import MetadataImage
    from ottla.server.node.dynamic_settings import DynamicSettings
    from ottla.storage.directories.loader import FoundLog
    from ottla.types import Node, Uuid

_MAX_LOG_CONFIGS = 1024


class BrokerMetadata:
    """Answers from the committed image and from the settings in force."""

    def __init__(self, settings: DynamicSettings, image: MetadataImage) -> None:
        """Take the settings and the image, which is changed in place."""
        self.image = image
        self.settings = settings
        self.node_id: int = settings.static.node_id
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        """By the settings of topics."""

    @property
    def config(self) -> BrokerConfig:
        """The settings in force, dynamic ones included."""
        return self.settings.current

    def apply_broker_settings(self) -> None:
        """Apply what is stored for this broker and for all brokers."""
        self.settings.apply(self.image)
        self._log_configs.clear()

    def nodes(self, listener_name: str) -> list[Node]:
        """Return the brokers as they are advertised on a listener."""
        found = (one.node(listener_name) for one in self.image.cluster.unfenced_brokers())
        return [node for node in found if node is not None]

    def any_controller_id(self) -> int:
        """Return the broker that clients send controller requests to: any forwards them."""
        return self.node_id

    def refusal(self, resource_name: str, settings: Mapping[str, str]) -> str | None:
        """Say why this broker could not run with these settings of a broker or of all brokers."""
        return self.settings.refusal(self.image, resource_name, settings)

    def trial(self, resource_name: str, settings: Mapping[str, str]) -> Callable[[], str | None]:
        """Return the job that tries what such settings name: files, classes."""
        return self.settings.trial(self.image, resource_name, settings)

    def config_sources(self) -> BrokerSources:
        """Return all places this broker's settings come from."""
        return BrokerSources(
            self.config,
            self.image.configs.of(ConfigResourceType.BROKER, str(self.node_id)),
            self.image.configs.of(ConfigResourceType.BROKER, ""),
        )

    def topic_config(self, name: str) -> TopicConfig:
        """Return a topic's effective settings."""
        return load_topic_config(self.image.configs.of(ConfigResourceType.TOPIC, name), self.config)

    def partition_count(self, name: str) -> int | None:
        """Return how many partitions a topic has; None while there is no such topic."""
        topic = self.image.topics.by_name.get(name)
        return None if topic is None else len(topic.partitions)

    def topic_id(self, name: str) -> Uuid | None:
        """Return the id of a topic; None when there is no such topic."""
        return self.image.topics.topic_id(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return the name of a topic; None when there is no such topic."""
        topic = self.image.topics.by_id.get(topic_id)
        return topic.name if topic is not None else None

    @property
    def metadata_offset(self) -> int:
        """The offset of the metadata image."""
        return self.image.offset_and_epoch.offset

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self.image.topics.by_name

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic exists and has that partition."""
        topic = self.image.topics.by_name.get(name)
        return topic is not None and partition in topic.partitions

    def partition_racks(self, name: str) -> list[list[str]]:
        """Return the racks of each partition's replicas, as far as their brokers have one."""
        topic = self.image.topics.by_name.get(name)
        if topic is None:
            return []
        brokers = self.image.cluster.brokers
        racks = {key: one.rack for key, one in brokers.items() if one.rack is not None}
        if not racks:
            return [[] for _ in topic.partitions]
        return [
            list(dict.fromkeys(racks[one] for one in partition.replicas if one in racks))
            for _, partition in sorted(topic.partitions.items())
        ]

    def directory_of(self, found: FoundLog) -> Uuid | None:
        """Return the id of the directory in which a log of this broker should be."""
        topic = None if found.topic_id is None else self.image.topics.by_id.get(found.topic_id)
        partition = topic and topic.partitions.get(found.topic_partition.partition)
        return partition.directory_of(self.node_id) if partition else None

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs; topics that set the same share them."""
        stored = dict(self.image.configs.of(ConfigResourceType.TOPIC, topic))  # may be a worker's
        key = tuple(stored.items())
        known = self._log_configs.get(key)
        if known is None:
            if len(self._log_configs) >= _MAX_LOG_CONFIGS:
                self._log_configs.clear()
            known = log_config(load_topic_config(stored, self.config), self.config)
            self._log_configs[key] = known
        return known


def log_config(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    """Return the settings of a log from those of its topic and its broker."""
    values = {
        name: getattr(topic, name)
        for name in LogConfig.__dataclass_fields__
        if name.replace("_", ".") in topic.keys
    }
    values["segment_bytes"] = topic.effective_segment_bytes
    if topic.compact and topic.max_compaction_lag_ms > 0:  # as LogConfig.maxSegmentMs
        values["segment_ms"] = min(topic.segment_ms, topic.max_compaction_lag_ms)
    values["producer_id_expiration_ms"] = broker.producer_id_expiration_ms
    values["transaction_partition_verification_enable"] = (
        broker.transaction_partition_verification_enable
    )
    return LogConfig(**values)
