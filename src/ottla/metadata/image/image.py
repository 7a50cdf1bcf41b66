"""All metadata of a cluster at one offset of its log, changed in place.

Kafka: org.apache.kafka.image.{MetadataImage, MetadataDelta};
org.apache.kafka.image.{TopicsImage, TopicImage, TopicsDelta}; the deltas of a snapshot,
`finishSnapshot` of org.apache.kafka.image.MetadataDelta.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import CorruptMessage, UnsupportedVersion
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import partition_record_version, register_broker_record_version
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.metadata.image.cluster import ClusterImage, FeaturesImage
from ottla.metadata.image.configs import ConfigsImage, QuotasImage
from ottla.metadata.image.security import AclsImage, DelegationTokensImage, ScramImage
from ottla.metadata.partition import PartitionRegistration, TopicImage, registration_of
from ottla.protocol.records import metadata as kinds
from ottla.protocol.records.metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from ottla.protocol.schema import Struct
    from ottla.types import Uuid


class _TopicsImage:
    """Topics by id and by name."""

    __slots__ = ("by_id", "by_name")

    def __init__(self) -> None:
        self.by_id: dict[Uuid, TopicImage] = {}
        self.by_name: dict[str, TopicImage] = {}

    def partition(self, name: str, partition_id: int) -> PartitionRegistration | None:
        """Return a partition's registration, None when there is no such partition."""
        topic = self.by_name.get(name)
        return None if topic is None else topic.partitions.get(partition_id)

    def topic_id(self, name: str) -> Uuid | None:
        """Return the id of the topic that currently has this name."""
        topic = self.by_name.get(name)
        return None if topic is None else topic.topic_id

    def replay_topic(self, record: TopicRecord, delta: MetadataDelta) -> None:
        """Add a topic; a new topic replaces one of the same name, as in Kafka's image."""
        topic = TopicImage(record.name, record.topic_id)
        self.by_id[topic.topic_id] = topic
        self.by_name[topic.name] = topic
        delta.topics_created[topic.topic_id] = topic

    def replay_partition(self, record: PartitionRecord, delta: MetadataDelta) -> None:
        """Add a partition or replace it whole."""
        topic = self._topic(record.topic_id)
        old = topic.partitions.get(record.partition_id)
        self._note(delta, record.topic_id, record.partition_id, old)
        topic.put(record.partition_id, registration_of(record))

    def replay_partition_change(self, record: PartitionChangeRecord, delta: MetadataDelta) -> None:
        """Change a partition."""
        topic = self._topic(record.topic_id)
        old = topic.partitions.get(record.partition_id)
        if old is None:
            raise CorruptMessage(
                f"Unable to find partition {record.topic_id}:{record.partition_id}"
            )
        self._note(delta, record.topic_id, record.partition_id, old)
        topic.put(record.partition_id, old.merge(record))

    def replay_clear_elr(self, record: ClearElrRecord, delta: MetadataDelta) -> None:
        """Empty the eligible leaders of one topic, or of all when the name is empty."""
        if not record.topic_name:
            topics = list(self.by_id.values())
        else:
            found = self.by_name.get(record.topic_name)
            if found is None:
                raise CorruptMessage(
                    f"Unable to find a topic named {record.topic_name} in order to clear its ELRs."
                )
            topics = [found]
        for topic in topics:
            for partition_id, old in topic.partitions.items():
                new = old.without_elr()
                if new is not old:
                    self._note(delta, topic.topic_id, partition_id, old)
                    topic.put(partition_id, new)

    def replay_remove_topic(self, record: RemoveTopicRecord, delta: MetadataDelta) -> None:
        """Remove a topic; one that was created in the same delta is removed from it."""
        topic = self.by_id.pop(record.topic_id, None)
        if topic is None:
            raise CorruptMessage(f"Can't find topic with ID {record.topic_id} to remove.")
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
        delta.partitions_changed.pop(record.topic_id, None)
        if delta.topics_created.pop(record.topic_id, None) is None:
            delta.topics_deleted[record.topic_id] = topic

    def records(self, partition_version: int) -> Iterator[MessageAndVersion]:
        """Return the records of the current state; later changes do not affect them."""
        topics = [(topic, dict(topic.partitions)) for topic in self.by_id.values()]
        return _records(topics, partition_version)

    def _topic(self, topic_id: Uuid) -> TopicImage:
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise CorruptMessage(f"Unable to find topic with ID {topic_id}.")
        return topic

    @staticmethod
    def _note(
        delta: MetadataDelta, topic_id: Uuid, partition_id: int, old: PartitionRegistration | None
    ) -> None:
        delta.partitions_changed.setdefault(topic_id, {}).setdefault(partition_id, old)


def _records(
    topics: list[tuple[TopicImage, dict[int, PartitionRegistration]]], partition_version: int
) -> Iterator[MessageAndVersion]:
    for topic, partitions in topics:
        yield MessageAndVersion(TopicRecord(name=topic.name, topic_id=topic.topic_id), 0)
        for partition_id in sorted(partitions):
            record = partitions[partition_id].to_record(
                topic.topic_id, partition_id, version=partition_version
            )
            yield MessageAndVersion(record, partition_version)


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
        self.topics = _TopicsImage()
        self.configs = ConfigsImage()
        self.quotas = QuotasImage()
        self.producer_ids = ProducerIdsImage()
        self.acls = AclsImage()
        self.scram = ScramImage()
        self.delegation_tokens = DelegationTokensImage()
        self._handlers = self._table()

    def _table(self) -> dict[int, Callable[[Any, MetadataDelta], None]]:
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


_TOPIC_RESOURCE: Final = 2


def records_between(old: MetadataImage, new: MetadataImage) -> Iterator[MessageAndVersion | None]:
    """Yield what removes from `old` all that `new` lacks, then what adds and changes the rest.

    Yields None for each record that has no difference: the caller may pause there.
    """
    gone = set(old.topics.by_id) - set(new.topics.by_id)
    names = {old.topics.by_id[topic_id].name for topic_id in gone}
    before: dict[tuple[Any, ...], MessageAndVersion] = {}
    after: dict[tuple[Any, ...], MessageAndVersion] = {}
    yield from _collect(before, _by_key(_without_settings_of(names, old.records()), gone))
    yield from _collect(after, _by_key(new.records(), frozenset()))
    for topic_id in sorted(gone):
        yield MessageAndVersion(kinds.RemoveTopicRecord(topic_id=topic_id), 0)
    for key, record in before.items():
        yield (
            None
            if key in after
            else MessageAndVersion(_REMOVALS[type(record.message)](record.message), 0)
        )
    for key, record in after.items():
        yield None if _same(before.get(key), record) else record


def _collect(
    found: dict[tuple[Any, ...], MessageAndVersion],
    records: Iterable[tuple[tuple[Any, ...], MessageAndVersion]],
) -> Iterator[None]:
    for key, record in records:
        found[key] = record
        yield


def _without_settings_of(
    names: set[str], records: Iterable[MessageAndVersion]
) -> Iterator[MessageAndVersion]:
    """Leave out the settings of deleted topics: they are removed with the topics."""
    for record in records:
        message = record.message
        if (
            not isinstance(message, kinds.ConfigRecord)
            or message.resource_type != _TOPIC_RESOURCE
            or message.resource_name not in names
        ):
            yield record


def _by_key(
    records: Iterable[MessageAndVersion], without_topics: AbstractSet[Uuid]
) -> Iterator[tuple[tuple[Any, ...], MessageAndVersion]]:
    for record in records:
        message = record.message
        of_topic = isinstance(message, kinds.TopicRecord | kinds.PartitionRecord)
        if not (of_topic and message.topic_id in without_topics):  # type: ignore[attr-defined]  # both have it
            kind = type(message)
            yield (kind, *_KEYS[kind](message)), record


def _same(one: MessageAndVersion | None, other: MessageAndVersion) -> bool:
    return one is not None and encode_record(one) == encode_record(other)


_KEYS: Final[dict[type[Struct], Callable[[Any], tuple[Any, ...]]]] = {
    kinds.RegisterBrokerRecord: lambda record: (record.broker_id,),
    kinds.RegisterControllerRecord: lambda record: (record.controller_id,),
    kinds.TopicRecord: lambda record: (record.topic_id,),
    kinds.PartitionRecord: lambda record: (record.topic_id, record.partition_id),
    kinds.ConfigRecord: lambda record: (record.resource_type, record.resource_name, record.name),
    kinds.FeatureLevelRecord: lambda record: (record.name,),
    kinds.ClientQuotaRecord: lambda record: (
        tuple((part.entity_type, part.entity_name) for part in record.entity),
        record.key,
    ),
    kinds.ProducerIdsRecord: lambda _: (),
    kinds.AccessControlEntryRecord: lambda record: (record.id,),
    kinds.UserScramCredentialRecord: lambda record: (record.name, record.mechanism),
    kinds.DelegationTokenRecord: lambda record: (record.token_id,),
}
"""What a record is about: a later one with the same key replaces it."""

_REMOVALS: Final[dict[type[Struct], Callable[[Any], Struct]]] = {
    kinds.RegisterBrokerRecord: lambda record: kinds.UnregisterBrokerRecord(
        broker_id=record.broker_id, broker_epoch=record.broker_epoch
    ),
    kinds.ConfigRecord: lambda record: kinds.ConfigRecord(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        name=record.name,
        value=None,
    ),
    kinds.FeatureLevelRecord: lambda record: kinds.FeatureLevelRecord(
        name=record.name, feature_level=0
    ),
    kinds.ClientQuotaRecord: lambda record: kinds.ClientQuotaRecord(
        entity=record.entity, key=record.key, value=record.value, remove=True
    ),
    kinds.AccessControlEntryRecord: lambda record: kinds.RemoveAccessControlEntryRecord(
        id=record.id
    ),
    kinds.UserScramCredentialRecord: lambda record: kinds.RemoveUserScramCredentialRecord(
        name=record.name, mechanism=record.mechanism
    ),
    kinds.DelegationTokenRecord: lambda record: kinds.RemoveDelegationTokenRecord(
        token_id=record.token_id
    ),
}
"""The record that removes what a record made; the others are never removed on their own."""
