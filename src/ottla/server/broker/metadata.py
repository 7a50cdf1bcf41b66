"""The metadata as a broker uses them, and the log lines of their changes.

Kafka: KRaftMetadataCache, ConfigRepository, DynamicBrokerConfig; the lines of
ReplicationControlManager, ClusterControlManager, ConfigurationControlManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.config.definition import Type
from ottla.config.describe import BrokerSources
from ottla.config.dynamic import definition_of
from ottla.config.group import ClientMetricsConfig, GroupConfig
from ottla.config.topic import TopicConfig, load_topic_config
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource
from ottla.storage.log.config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.config.definition import ConfigTable
    from ottla.metadata.broker import BrokerRegistration
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.partition import PartitionRegistration
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
        found = (broker.node(listener_name) for broker in self.image.cluster.unfenced_brokers())
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
            list(
                dict.fromkeys(racks[replica] for replica in partition.replicas if replica in racks)
            )
            for _, partition in sorted(topic.partitions.items())
        ]

    def directory_of(self, found: FoundLog) -> Uuid | None:
        """Return the id of the directory in which a log of this broker should be."""
        topic = None if found.topic_id is None else self.image.topics.by_id.get(found.topic_id)
        partition = topic and topic.partitions.get(found.topic_partition.partition)
        return partition.directory_of(self.node_id) if partition else None

    def is_stray(self, found: FoundLog) -> bool:
        """Whether a log is of no partition; called in workers."""
        topic = None if found.topic_id is None else self.image.topics.by_id.get(found.topic_id)
        name, index = found.topic_partition  # a copy of a log has the other's topic id
        return topic is None or topic.name != name or index not in topic.partitions

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


log = logging.getLogger("ottla.metadata")
_SHOWN_NAMES = 10
_UNREGISTERED = (
    "broker %d was unregistered while it runs: it no longer leads or replicates partitions; stop "
    "it, or restart it to register it again"
)
_TABLES: Mapping[int, type[ConfigTable]] = {
    ConfigResourceType.TOPIC: TopicConfig,
    ConfigResourceType.CLIENT_METRICS: ClientMetricsConfig,
    ConfigResourceType.GROUP: GroupConfig,
}


class MetadataLog:
    """Writes a line for each committed change, and one for a snapshot, which has everything."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Write the lines of one delta."""
        if not log.isEnabledFor(logging.INFO):
            return
        if delta.is_snapshot:
            text = "metadata loaded up to offset %d: %d topics, %d brokers"
            counts = len(image.topics.by_id), len(image.cluster.brokers)
            event = {"event": "metadata.loaded"}
            log.info(text, image.offset_and_epoch.offset, *counts, extra=event)
            return
        self._topics(delta, image)
        self._leaders(delta, image)
        for broker_id, before in delta.brokers_changed.items():
            after = image.cluster.brokers.get(broker_id)
            _broker(broker_id, before, after)
            if after is None and broker_id == self._node_id:
                log.warning(_UNREGISTERED, broker_id, extra={"event": "broker.unregistered"})
        for resource, changed in delta.configs_changed.items():
            _settings(resource, changed, image.configs.of(*resource))
        for name in delta.features_changed:
            level = image.features.levels.get(name, 0)
            log.info("feature %s is now at level %d", name, level, extra={"event": "feature"})
        for entity in delta.quotas_changed:
            limits = image.quotas.by_entity.get(entity, {})
            extra = {"event": "quota.changed"}
            log.info("quota of %s is now %s", _entity(entity), _pairs(limits), extra=extra)

    def _topics(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for topic_id, topic in delta.topics_created.items():
            if topic_id not in delta.topics_deleted:
                counts = len(topic.partitions), _replication(topic.partitions.values())
                text = "topic %s created with %d partitions, replication factor %d, id %s"
                log.info(text, topic.name, *counts, topic_id, extra={"event": "topic.created"})
        for topic_id, topic in delta.topics_deleted.items():
            log.info("topic %s deleted, id %s", topic.name, topic_id, extra={"event": "topic.gone"})
        for topic_id, partitions in delta.partitions_changed.items():
            topic = image.topics.by_id[topic_id]
            new = sum(before is None for before in partitions.values())
            if new and topic_id not in delta.topics_created:
                text = "topic %s has %d partitions now, %d more"
                extra = {"event": "topic.partitions"}
                log.info(text, topic.name, len(topic.partitions), new, extra=extra)

    def _leaders(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Write a line of the partitions this node begins to lead, and one of those it resigned."""
        leads: list[str] = []
        resigned: list[str] = []
        for topic_id, partitions in delta.partitions_changed.items():
            topic = image.topics.by_id[topic_id]
            for index, before in partitions.items():
                was_leader = before is not None and before.leader == self._node_id
                is_leader = topic.partitions[index].leader == self._node_id
                if is_leader != was_leader:
                    (leads if is_leader else resigned).append(f"{topic.name}-{index}")
        for text, names in (("leads", leads), ("no longer leads", resigned)):
            if names:
                extra = {"event": "partition.leader"}
                log.info("%s partitions %s", text, _some(names), extra=extra)


def _replication(partitions: Iterable[PartitionRegistration]) -> int:
    return max((len(partition.replicas) for partition in partitions), default=0)


def _broker(
    broker_id: int, before: BrokerRegistration | None, after: BrokerRegistration | None
) -> None:
    extra = {"event": "broker.state"}
    if after is None:
        log.info("broker %d unregistered", broker_id, extra=extra)
        return
    if before is None or before.broker_epoch != after.broker_epoch:
        ends = (f"{name}://{one.host}:{one.port}" for name, one in after.listeners.items())
        text = "broker %d registered with epoch %d at %s"
        log.info(text, broker_id, after.broker_epoch, ", ".join(ends), extra=extra)
    if before is not None and before.fenced != after.fenced:
        text = "broker %d fenced" if after.fenced else "broker %d unfenced: it serves clients"
        log.info(text, broker_id, extra=extra)
    if after.in_controlled_shutdown and not (before and before.in_controlled_shutdown):
        log.info("broker %d is in controlled shutdown", broker_id, extra=extra)


def _settings(
    resource: ConfiguredResource, changed: Collection[str], stored: Mapping[str, str]
) -> None:
    """Write new values; those of secrets and of unknown settings stay hidden."""
    kind = ConfigResourceType(resource.type).name.lower().replace("_", " ")
    where = f"{kind} {resource.name}" if resource.name else "all brokers"
    known = _TABLES[resource.type].keys if resource.type in _TABLES else {}
    new = {}
    for name in changed:
        is_brokers = resource.type == ConfigResourceType.BROKER
        definition = definition_of(name) if is_brokers else known.get(name)
        is_shown = definition is not None and definition.type is not Type.PASSWORD
        new[name] = (stored[name] if is_shown else "[hidden]") if name in stored else "[default]"
    log.info("settings of %s changed: %s", where, _pairs(new), extra={"event": "config.changed"})


def _entity(entity: Iterable[tuple[str, str | None]]) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def _pairs(values: Mapping[str, object]) -> str:
    return _some([f"{name}={value}" for name, value in values.items()]) or "none"


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    shown = ", ".join(names[:_SHOWN_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown
