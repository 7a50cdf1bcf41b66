"""Log lines about committed changes of the metadata: topics, brokers, settings, features, quotas.

Kafka: the lines of ReplicationControlManager, ClusterControlManager, ConfigurationControlManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.config.definition import Type
from ottla.config.dynamic import definition_of
from ottla.config.group import ClientMetricsConfig, GroupConfig
from ottla.config.topic import TopicConfig
from ottla.metadata.resources import ConfigResourceType, ConfiguredResource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ottla.config.definition import ConfigTable
    from ottla.metadata.broker import BrokerRegistration
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.partition import PartitionRegistration

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
    return max((len(one.replicas) for one in partitions), default=0)


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
