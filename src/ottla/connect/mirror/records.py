"""The records of the mirror's own topics, in Kafka's bytes.

Kafka: org.apache.kafka.connect.mirror.{OffsetSync, Checkpoint, Heartbeat}.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ottla.connect.errors import DataException
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_INT64_PAIR: Final = Struct(">qq")
_VERSION: Final = b"\0\0"
"""The version of checkpoints and heartbeats, the only one that there is."""


def _text(value: str) -> bytes:
    data = value.encode()
    return _INT16.pack(len(data)) + data


class _Reader:
    """Reads fields one after the other."""

    def __init__(self, data: bytes | None) -> None:
        if data is None:
            raise DataException("a record of a mirror's own topic has no key or no value")
        self._data, self._position = data, 0

    def number(self, of: Struct) -> int:
        try:
            (value,) = of.unpack_from(self._data, self._position)
        except struct.error as error:
            raise DataException("a record of a mirror's own topic is too short") from error
        self._position += of.size
        return int(value)

    def text(self) -> str:
        size = self.number(_INT16)
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise DataException("a text in a mirror's own topic has an invalid length")
        data, self._position = self._data[self._position : end], end
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DataException("a text in a mirror's own topic is not UTF-8") from error

    def version(self) -> None:
        version = self.number(_INT16)
        if version != 0:
            raise DataException(f"version {version} of a mirror's own record is unknown")


class OffsetSync(NamedTuple):
    """Equal positions of a partition in the source and in the target."""

    partition: TopicPartition
    """In the source."""
    upstream: int
    downstream: int

    def key(self) -> bytes:
        """Return the key."""
        return _text(self.partition.topic) + _INT32.pack(self.partition.partition)

    def value(self) -> bytes:
        """Return the value."""
        return _INT64_PAIR.pack(self.upstream, self.downstream)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Read a record; DataException for one that is not valid."""
        keys, values = _Reader(key), _Reader(value)
        partition = TopicPartition(keys.text(), keys.number(_INT32))
        return cls(partition, values.number(_INT64), values.number(_INT64))


class MirrorCheckpoint(NamedTuple):
    """The offset of a group in the source and the one that it has in the target."""

    group: str
    partition: TopicPartition
    """In the target."""
    upstream: int
    downstream: int
    metadata: str

    def key(self) -> bytes:
        """Return the key."""
        topic, partition = self.partition
        return _text(self.group) + _text(topic) + _INT32.pack(partition)

    def value(self) -> bytes:
        """Return the value."""
        return _VERSION + _INT64_PAIR.pack(self.upstream, self.downstream) + _text(self.metadata)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Read a record; DataException for one that is not valid."""
        keys, values = _Reader(key), _Reader(value)
        group = keys.text()
        partition = TopicPartition(keys.text(), keys.number(_INT32))
        values.version()
        upstream, downstream = values.number(_INT64), values.number(_INT64)
        return cls(group, partition, upstream, downstream, values.text())


class MirrorHeartbeat(NamedTuple):
    """A sign of life of a mirror."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        """Return the key."""
        return _text(self.source) + _text(self.target)

    def value(self) -> bytes:
        """Return the value."""
        return _VERSION + _INT64.pack(self.timestamp_ms)

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Self:
        """Read a record; DataException for one that is not valid."""
        keys, values = _Reader(key), _Reader(value)
        values.version()
        return cls(keys.text(), keys.text(), values.number(_INT64))


def parse_partitions(text: str) -> Iterator[TopicPartition]:
    """Read `topic-0,other-1`, as the settings of tasks list partitions."""
    for entry in text.split(","):
        topic, _, partition = entry.strip().rpartition("-")
        yield TopicPartition(topic, int(partition))
