"""All metadata of a cluster at one offset of its log, changed in place.

Kafka: org.apache.kafka.image.{MetadataImage, MetadataDelta}.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from ottla.errors import UnsupportedVersion
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import partition_record_version, register_broker_record_version
from ottla.metadata.framing import MessageAndVersion
from ottla.metadata.image.cluster import ClusterImage
from ottla.metadata.image.configs import ConfigsImage
from ottla.metadata.image.features import FeaturesImage
from ottla.metadata.image.quotas import QuotasImage
from ottla.metadata.image.security import AclsImage, DelegationTokensImage, ScramImage
from ottla.metadata.image.topics import TopicsImage
from ottla.protocol.records import metadata as kinds
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla.protocol.schema import Struct


class ProducerIdsImage:
    """The next producer id that is not allocated; -1 before the first block.

    Kafka: org.apache.kafka.image.{ProducerIdsImage, ProducerIdsDelta}.
    """

    __slots__ = ("next_producer_id",)

    def __init__(self) -> None:
        self.next_producer_id = -1

    def replay_producer_ids(self, record: kinds.ProducerIdsRecord, delta: MetadataDelta) -> None:
        """Record the allocation of a block."""
        delta.producer_ids_changed = True
        self.next_producer_id = record.next_producer_id

    def records(self) -> Iterator[MessageAndVersion]:
        """Yield the record that makes this state."""
        if self.next_producer_id >= 0:
            record = kinds.ProducerIdsRecord(
                broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id
            )
            yield MessageAndVersion(record, 0)


class MetadataImage:
    """One attribute a concern; only `apply` changes it."""

    __slots__ = (
        "_handlers",
        "acls",
        "cluster",
        "configs",
        "delegation_tokens",
        "features",
        "offset_and_epoch",
        "producer_ids",
        "quotas",
        "scram",
        "topics",
    )

    def __init__(self) -> None:
        self.offset_and_epoch = OffsetAndEpoch(-1, -1)
        """Of the last record applied."""
        self.features = FeaturesImage()
        self.cluster = ClusterImage()
        self.topics = TopicsImage()
        self.configs = ConfigsImage()
        self.quotas = QuotasImage()
        self.producer_ids = ProducerIdsImage()
        self.acls = AclsImage()
        self.scram = ScramImage()
        self.delegation_tokens = DelegationTokensImage()
        self._handlers = self._table()

    def _table(self) -> dict[int, Callable[[Any, MetadataDelta], None]]:
        """Map every known kind of record to its handler."""
        handlers: dict[type[Struct], Callable[[Any, MetadataDelta], None]] = {
            kinds.RegisterBrokerRecord: self.cluster.replay_register_broker,
            kinds.UnregisterBrokerRecord: self.cluster.replay_unregister_broker,
            kinds.TopicRecord: self.topics.replay_topic,
            kinds.PartitionRecord: self.topics.replay_partition,
            kinds.ConfigRecord: self.configs.replay_config,
            kinds.PartitionChangeRecord: self.topics.replay_partition_change,
            kinds.FenceBrokerRecord: self.cluster.replay_fence,
            kinds.UnfenceBrokerRecord: self.cluster.replay_unfence,
            kinds.RemoveTopicRecord: self._replay_remove_topic,
            kinds.DelegationTokenRecord: self.delegation_tokens.replay_token,
            kinds.UserScramCredentialRecord: self.scram.replay_credential,
            kinds.FeatureLevelRecord: self.features.replay_feature_level,
            kinds.ClientQuotaRecord: self.quotas.replay_client_quota,
            kinds.ProducerIdsRecord: self.producer_ids.replay_producer_ids,
            kinds.BrokerRegistrationChangeRecord: self.cluster.replay_change,
            kinds.AccessControlEntryRecord: self.acls.replay_entry,
            kinds.RemoveAccessControlEntryRecord: self.acls.replay_remove,
            kinds.NoOpRecord: _nothing,
            kinds.ZkMigrationStateRecord: _nothing,
            kinds.RemoveUserScramCredentialRecord: self.scram.replay_remove,
            kinds.RemoveDelegationTokenRecord: self.delegation_tokens.replay_remove,
            kinds.RegisterControllerRecord: self.cluster.replay_register_controller,
            kinds.ClearElrRecord: self.topics.replay_clear_elr,
        }
        return {kind.message_key: handler for kind, handler in handlers.items()}

    def apply(
        self,
        records: Iterable[MessageAndVersion],
        offset_and_epoch: OffsetAndEpoch,
        delta: MetadataDelta | None = None,
    ) -> MetadataDelta:
        """Apply records that end at offset_and_epoch; return what changed.

        UnsupportedVersion for an unknown kind: the caller must stop. The loader resolves
        transactions; their markers are not passed to this method.
        """
        delta = MetadataDelta() if delta is None else delta
        handlers = self._handlers
        for message, _version in records:
            handler = handlers.get(message.message_key)
            if handler is None:
                raise UnsupportedVersion(f"Unknown record type {type(message).__name__}")
            handler(message, delta)
        self.offset_and_epoch = delta.offset_and_epoch = offset_and_epoch
        return delta

    def records(self) -> Iterator[MessageAndVersion]:
        """Return a snapshot's records, which build this image from an empty one.

        They describe the image at the time of the call, although a large image is encoded over
        many turns of the event loop while it changes.
        """
        levels = self.features.levels
        return chain(
            [
                *self.features.records(),
                *self.cluster.records(register_broker_record_version(levels)),
            ],
            self.topics.records(partition_record_version(levels)),
            self.configs.records(),
            self.quotas.records(),
            list(self.producer_ids.records()),
            self.acls.records(),
            self.scram.records(),
            self.delegation_tokens.records(),
        )

    def everything(self) -> MetadataDelta:
        """Return the delta from an empty image to this one, in the order of `records`."""
        delta, topics = MetadataDelta(is_snapshot=True), self.topics.by_id
        delta.offset_and_epoch = self.offset_and_epoch
        delta.topics_created = dict(topics)
        delta.partitions_changed = {
            topic_id: dict.fromkeys(topic.partitions)
            for topic_id, topic in topics.items()
            if topic.partitions
        }
        delta.brokers_changed = dict.fromkeys(self.cluster.brokers)
        delta.controllers_changed = dict.fromkeys(self.cluster.controllers)
        delta.features_changed = dict.fromkeys(self.features.names, 0)
        delta.configs_changed = {
            resource: dict.fromkeys(settings)
            for resource, settings in self.configs.by_resource.items()
            if settings
        }
        delta.quotas_changed = dict.fromkeys(
            entity for entity, limits in self.quotas.by_entity.items() if limits
        )
        delta.producer_ids_changed = self.producer_ids.next_producer_id >= 0
        delta.acls_changed = dict.fromkeys(self.acls.by_id)
        delta.scram_changed = dict.fromkeys(self.scram.by_user)
        delta.delegation_tokens_changed = dict.fromkeys(self.delegation_tokens.by_id)
        return delta

    def _replay_remove_topic(self, record: kinds.RemoveTopicRecord, delta: MetadataDelta) -> None:
        topic = self.topics.by_id.get(record.topic_id)
        self.topics.replay_remove_topic(record, delta)
        if topic is not None and topic.name not in self.topics.by_name:
            self.configs.topic_removed(topic.name)


def _nothing(_record: Struct, _delta: MetadataDelta) -> None:
    """Ignore a record: NoOp only advances the log end, and Kafka 4.0 has no ZooKeeper migration."""
