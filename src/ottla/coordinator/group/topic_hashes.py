"""The hashes of topics' metadata, by which groups find that their topics have changed.

Kafka: org.apache.kafka.coordinator.group.Utils.{computeGroupHash, computeTopicHash}.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import pack
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ottla.coordinator.group.context import TopicNames

_INT32 = Layout("<i")


class TopicHashes:
    """The hash of each topic until it changes; soft state, the same for all kinds of groups."""

    def __init__(self, topics: TopicNames) -> None:
        self._topics = topics
        self._by_name: dict[str, int] = {}
        self.version = topics.metadata_offset
        """The version of the metadata of which the shard knows."""

    def topics_changed(self, names: Iterable[str]) -> None:
        """Forget the hashes of topics that are new or have changed."""
        self.version = self._topics.metadata_offset
        for name in names:
            self._by_name.pop(name, None)

    def of(self, names: Collection[str]) -> int:
        """Return the hash of the topics' ids, names, partitions and racks; 0 without any topic.

        Java's order of topic names is Python's: they are ASCII.
        """
        hashes = []
        for name in sorted(names):
            value = self._by_name.get(name)
            if value is None:
                value = self._compute(name)
                if value is None:
                    continue
                self._by_name[name] = value
            hashes.append(value)
        if not hashes:
            return 0
        return _signed(xxhash.xxh3_64_intdigest(pack(f"<{len(hashes)}q", *hashes)))

    def _compute(self, name: str) -> int | None:
        topic_id = self._topics.topic_id(name)
        if topic_id is None:
            return None
        partitions = self._topics.partition_racks(name)
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
