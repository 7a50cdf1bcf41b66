"""The subscriptions of a group: topics, how they differ, and the hash of their metadata.

Kafka: ModernGroup.computeMetadataHash, ConsumerGroup.{computeSubscribedTopicNames,
subscriptionType}, org.apache.kafka.coordinator.group.Utils.{computeGroupHash, computeTopicHash}.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import pack
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.consumer.member import ConsumerMember

_INT32 = Layout("<i")


def topics_of(group: ConsumerGroup, member: ConsumerMember) -> tuple[str, ...]:
    """Return the topics of a member's subscription, by name and by pattern."""
    pattern = member.subscribed_regex
    resolved = group.resolved.get(pattern) if pattern else None
    if resolved is None:
        return member.subscribed_topics
    return tuple(dict.fromkeys((*member.subscribed_topics, *resolved.topics)))


def subscribed_topics(
    group: ConsumerGroup,
    added: Iterable[ConsumerMember] = (),
    removed: Iterable[ConsumerMember] = (),
) -> set[str]:
    """Return all topics of the group's subscriptions after members were added and removed."""
    names = dict(group.topic_counts.items())
    patterns = dict(group.regex_counts.items())
    for members, change in ((removed, -1), (added, 1)):
        for member in members:
            for name in member.subscribed_topics:
                names[name] = names.get(name, 0) + change
            if member.subscribed_regex:
                pattern = member.subscribed_regex
                patterns[pattern] = patterns.get(pattern, 0) + change
    found = {name for name, count in names.items() if count > 0}
    for pattern, count in patterns.items():
        resolved = group.resolved.get(pattern)
        if count > 0 and resolved is not None:
            found.update(resolved.topics)
    return found


def metadata_hash(groups: ConsumerGroups, names: Collection[str]) -> int:
    """Return the hash of the topics' ids, names, partitions and racks; 0 without any topic.

    Java's order of topic names is Python's: they are ASCII.
    """
    hashes = []
    for name in sorted(names):
        value = groups.topic_hashes.get(name)
        if value is None:
            value = _topic_hash(groups, name)
            if value is None:
                continue
            groups.topic_hashes[name] = value
        hashes.append(value)
    if not hashes:
        return 0
    return _signed(xxhash.xxh3_64_intdigest(pack(f"<{len(hashes)}q", *hashes)))


def _topic_hash(groups: ConsumerGroups, name: str) -> int | None:
    topic_id = groups.topics.topic_id(name)
    if topic_id is None:
        return None
    partitions = groups.topics.partition_racks(name)
    parts = [
        b"\0",
        topic_id[:8][::-1],  # Java's longs, in the hash stream's byte order
        topic_id[8:][::-1],
        _text(name),
        _INT32.pack(len(partitions)),
    ]
    for index, racks in enumerate(partitions):
        parts.append(_INT32.pack(index))
        for rack in sorted(racks, key=_java_order):
            parts += (_INT32.pack(len(rack.encode("utf-16-le")) // 2), _text(rack))
    return _signed(xxhash.xxh3_64_intdigest(b"".join(parts)))


def _text(value: str) -> bytes:
    """Return a string as the hash stream takes it: UTF-16 units, then their number."""
    units = value.encode("utf-16-le", "surrogatepass")
    return units + _INT32.pack(len(units) // 2)


def _java_order(value: str) -> bytes:
    return value.encode("utf-16-be", "surrogatepass")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
