"""Records within a topology, and the change of a table's row.

Kafka: org.apache.kafka.streams.processor.api.{Record, RecordMetadata}, processor.TaskId,
kstream.internals.Change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Header = tuple[str, bytes | None]


@dataclass(slots=True, frozen=True)
class Record:
    """A key, a value, a timestamp in ms and headers."""

    key: Any
    value: Any
    timestamp: int
    headers: tuple[Header, ...] = ()

    def with_key(self, key: Any) -> Record:
        """Return the record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        """Return the record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        """Return the record with another timestamp."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: tuple[Header, ...]) -> Record:
        """Return the record with other headers."""
        return Record(self.key, self.value, self.timestamp, headers)


class Change(NamedTuple):
    """What a table forwards: the new and, if its readers need it, the old value of a key."""

    new: Any
    old: Any = None
    is_latest: bool = True


class ValueAndTimestamp(NamedTuple):
    """A value in a store with the time of its last update."""

    value: Any
    timestamp: int


class ValueTimestampHeaders(NamedTuple):
    """A value in a store with the time of its last update, and the headers of that record."""

    value: Any
    timestamp: int
    headers: tuple[Header, ...] = ()


class AggregationWithHeaders(NamedTuple):
    """The value of a session in a store, with headers."""

    aggregation: Any
    headers: tuple[Header, ...] = ()


class VersionedRecord(NamedTuple):
    """A version of a value: from when on, and until when (exclusive; None for the latest)."""

    value: Any
    timestamp: int
    valid_to: int | None


class RecordMetadata(NamedTuple):
    """Where the record that is processed came from."""

    topic: str
    partition: int
    offset: int


class TaskId(NamedTuple):
    """A task: the numbers of its sub-topology and of its partition; as text 0_3."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Return the task of a text such as 0_3; ValueError for another."""
        subtopology, _, partition = text.partition("_")
        return cls(int(subtopology), int(partition))


class RecordContext(NamedTuple):
    """What a function that chooses a topic knows of a record besides key and value.

    The place is that of the record that was read; in a punctuation there is none ("", -1, -1).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: tuple[Header, ...]


class RawRecord(NamedTuple):
    """A record of a topic in bytes; `partition` None is chosen by the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    offset: int = 0
    port: int = -1
    """Where it enters a task that is not read from a topic."""
