"""What operators are given: names, serdes, forms of stores, and how much a suppression buffers.

Kafka: org.apache.kafka.streams.AutoOffsetReset (KIP-1106), kstream.{Consumed, Produced, Grouped,
Joined, StreamJoined, TableJoined, Materialized, Repartitioned, Branched, Printed, Suppressed}.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.data.serdes import Serde
from ottla.streams.data.windows import Duration, milliseconds
from ottla.streams.errors import TopologyException

if TYPE_CHECKING:
    from ottla.streams.data.records import Record
    from ottla.streams.stores.specs import DslStoreSuppliers


class _Given:
    """Base of what an operator is given: its serdes are checked at once."""

    def __post_init__(self) -> None:
        """Raise TypeError for a serde that is none, such as a function that makes one."""
        for name in ("key", "value", "other_value"):
            found = getattr(self, name, None)
            if found is not None and not isinstance(found, Serde):
                raise TypeError(
                    f"{type(self).__name__}({name}=...) takes a serde, such as Serdes.string(), "
                    f"not {found!r}"
                )


@dataclass(frozen=True)
class AutoOffsetReset:
    """A start: earliest, latest, none (the group's committed offsets), or a time before now."""

    kind: str
    duration_ms: int = 0

    @classmethod
    def earliest(cls) -> AutoOffsetReset:
        """Return the start at the first record that is there."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> AutoOffsetReset:
        """Return the start at the end: only what is written later is read."""
        return cls("latest")

    @classmethod
    def none(cls) -> AutoOffsetReset:
        """Return the start at the committed offsets of the application's group; refused without."""
        return cls("none")

    @classmethod
    def by_duration(cls, duration: Duration) -> AutoOffsetReset:
        """Return the start at the first record of a time before now; ValueError if negative."""
        found = milliseconds(duration)
        if found < 0:
            raise ValueError(f"by_duration: {found} ms is negative")
        return cls("by_duration", found)


EARLIEST: Final = AutoOffsetReset.earliest()


@dataclass(frozen=True)
class Consumed(_Given):
    """How a topic is read; `timestamp_extractor(record, partition_time)` may replace timestamps.

    `offset_reset_policy` says where an application that starts for the first time begins.
    """

    key: Serde | None = None
    value: Serde | None = None
    timestamp_extractor: Callable[[Record, int], int] | None = None
    name: str | None = None
    offset_reset_policy: AutoOffsetReset | None = None


Partitioner = Callable[[str, Any, Any, int], int | Collection[int] | None]
"""Chooses partitions by topic, key, value and their number: one, several, or none to drop the
record (KIP-837); None leaves it to the key, as without a partitioner."""


@dataclass(frozen=True)
class Produced(_Given):
    """How a topic is written; `partitioner(topic, key, value, partitions)` may choose the place."""

    key: Serde | None = None
    value: Serde | None = None
    partitioner: Partitioner | None = None
    name: str | None = None


@dataclass(frozen=True)
class Grouped(_Given):
    """How a grouping writes its repartition topic, if it needs one."""

    key: Serde | None = None
    value: Serde | None = None
    name: str | None = None


@dataclass(frozen=True)
class Joined(_Given):
    """How a stream is repartitioned for its join with a table.

    With `grace_ms` records wait for late rows of the table, which must be versioned (KIP-923).
    """

    key: Serde | None = None
    value: Serde | None = None
    other_value: Serde | None = None
    name: str | None = None
    grace_ms: int | None = None


@dataclass(frozen=True)
class StreamJoined(_Given):
    """How a join of two streams stores both, and their names; who chooses the stores' form."""

    key: Serde | None = None
    value: Serde | None = None
    other_value: Serde | None = None
    name: str | None = None
    store_name: str | None = None
    dsl_store_suppliers: DslStoreSuppliers | None = None


@dataclass(frozen=True)
class TableJoined:
    """The name of a foreign-key join, and where its internal records go (KIP-775).

    `other_partitioner(topic, foreign_key, None, partitions)` is that of the right table's topic,
    where its rows do not lie by their key. `partitioner`, of the left table's keys, is needed only
    where answers shall not go to the partition that the row came from. Both choose one partition.
    """

    name: str | None = None
    partitioner: Partitioner | None = None
    other_partitioner: Partitioner | None = None


@dataclass(frozen=True)
class Repartitioned(_Given):
    """How a stream is repartitioned; `partitioner(topic, key, value, partitions)` may place it."""

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    partitions: int | None = None
    partitioner: Partitioner | None = None


@dataclass(frozen=True)
class Materialized(_Given):
    """How a table's store is named and written.

    `history_ms` makes it a versioned one, `max_entries` one of the keys used most recently;
    else `store_type` chooses its form, or the application's suppliers.
    """

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    retention_ms: int | None = None
    history_ms: int | None = None
    max_entries: int | None = None
    store_type: DslStoreSuppliers | None = None


def with_value(given: Materialized | None, value: Serde) -> Materialized:
    """Return how a table is stored, with a serde for values that it does not name."""
    found = given or Materialized()
    return replace(found, value=found.value or value)


@dataclass(frozen=True)
class Printed:
    """Where records are printed, after a label (the node's name by default), and in which form.

    `mapper(key, value)` returns the text of a record; its key and its value by default.
    """

    label: str | None = None
    mapper: Callable[[Any, Any], str] | None = None
    name: str | None = None
    file: str | None = None

    @classmethod
    def to_sys_out(
        cls,
        label: str | None = None,
        *,
        mapper: Callable[[Any, Any], str] | None = None,
        name: str | None = None,
    ) -> Printed:
        """Print to the standard output."""
        return cls(label, mapper, name)

    @classmethod
    def to_file(
        cls,
        file: str | os.PathLike[str],
        label: str | None = None,
        *,
        mapper: Callable[[Any, Any], str] | None = None,
        name: str | None = None,
    ) -> Printed:
        """Append to a file; TopologyException for an empty path."""
        path = os.fspath(file)
        if not path.strip():
            raise TopologyException("filePath can't be an empty string")
        return cls(label, mapper, name, path)


@dataclass(frozen=True)
class Branched:
    """The name of a branch, and a function that takes its stream."""

    name: str | None = None
    function: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Suppressed:
    """How long a table's updates are held back; `limit_ms` None waits for the window's close."""

    limit_ms: int | None
    max_records: int | None = None
    max_bytes: int | None = None
    emits_when_full: bool = False
    name: str | None = None

    @classmethod
    def until_window_closes(
        cls, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Suppressed:
        """Hold back until the window is closed; fail when more would be held."""
        return cls(None, max_records, max_bytes)

    @classmethod
    def until_time_limit(
        cls,
        limit: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        emit_early_when_full: bool = True,
    ) -> Suppressed:
        """Hold back for a time; when full, forward the oldest rows early or fail."""
        return cls(milliseconds(limit), max_records, max_bytes, emit_early_when_full)

    def with_name(self, name: str) -> Suppressed:
        """Return the same with a name for the processor."""
        return replace(self, name=name)
