"""The records that turn one image into another: how a running node continues from a snapshot.

Kafka: the deltas of a snapshot, `finishSnapshot` of org.apache.kafka.image.MetadataDelta.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.protocol.records import metadata as kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from ottla.metadata.image import MetadataImage
    from ottla.protocol.schema import Struct
    from ottla.types import Uuid

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
        yield None if key in after else _removal(record)
    for key, record in after.items():
        yield None if _same(before.get(key), record) else record


def _collect(
    found: dict[tuple[Any, ...], MessageAndVersion],
    records: Iterable[tuple[tuple[Any, ...], MessageAndVersion]],
) -> Iterator[None]:
    for key, record in records:
        found[key] = record
        yield


def _removal(record: MessageAndVersion) -> MessageAndVersion:
    return MessageAndVersion(_REMOVALS[type(record.message)](record.message), 0)


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
    kinds.RegisterBrokerRecord: lambda one: (one.broker_id,),
    kinds.RegisterControllerRecord: lambda one: (one.controller_id,),
    kinds.TopicRecord: lambda one: (one.topic_id,),
    kinds.PartitionRecord: lambda one: (one.topic_id, one.partition_id),
    kinds.ConfigRecord: lambda one: (one.resource_type, one.resource_name, one.name),
    kinds.FeatureLevelRecord: lambda one: (one.name,),
    kinds.ClientQuotaRecord: lambda one: (
        tuple((part.entity_type, part.entity_name) for part in one.entity),
        one.key,
    ),
    kinds.ProducerIdsRecord: lambda _: (),
    kinds.AccessControlEntryRecord: lambda one: (one.id,),
    kinds.UserScramCredentialRecord: lambda one: (one.name, one.mechanism),
    kinds.DelegationTokenRecord: lambda one: (one.token_id,),
}
"""What a record is about: a later one with the same key replaces it."""

_REMOVALS: Final[dict[type[Struct], Callable[[Any], Struct]]] = {
    kinds.RegisterBrokerRecord: lambda one: kinds.UnregisterBrokerRecord(
        broker_id=one.broker_id, broker_epoch=one.broker_epoch
    ),
    kinds.ConfigRecord: lambda one: kinds.ConfigRecord(
        resource_type=one.resource_type, resource_name=one.resource_name, name=one.name, value=None
    ),
    kinds.FeatureLevelRecord: lambda one: kinds.FeatureLevelRecord(name=one.name, feature_level=0),
    kinds.ClientQuotaRecord: lambda one: kinds.ClientQuotaRecord(
        entity=one.entity, key=one.key, value=one.value, remove=True
    ),
    kinds.AccessControlEntryRecord: lambda one: kinds.RemoveAccessControlEntryRecord(id=one.id),
    kinds.UserScramCredentialRecord: lambda one: kinds.RemoveUserScramCredentialRecord(
        name=one.name, mechanism=one.mechanism
    ),
    kinds.DelegationTokenRecord: lambda one: kinds.RemoveDelegationTokenRecord(
        token_id=one.token_id
    ),
}
"""The record that removes what a record made; the others are never removed on their own."""
