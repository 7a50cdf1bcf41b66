"""Key-value stores: plain, with timestamps, and with all versions within a history (KIP-889).

Kafka: org.apache.kafka.streams.state.{KeyValueStore, TimestampedKeyValueStore,
VersionedKeyValueStore}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.streams.data.records import ValueAndTimestamp, VersionedRecord
from ottla.streams.data.serdes import LONG
from ottla.streams.errors import StreamsException
from ottla.streams.stores.backend import EntryLists, end_of_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.streams.data.serdes import Serde
    from ottla.streams.stores.backend import Backend
    from ottla.streams.stores.specs import StoreSpec


def key_bytes(serde: Serde, key: Any) -> bytes:
    """Return a key's bytes; StreamsException for None, which no store takes."""
    data = serde.serialize(key)
    if data is None:
        raise StreamsException("a store takes no null key")
    return data


class KeyValueStore:
    """Values by key."""

    def __init__(self, backend: Backend, key: Serde, value: Serde) -> None:
        self._backend, self._key, self._value = backend, key, value

    def get(self, key: Any) -> Any:
        """Return the value of a key, None without one."""
        return self._read(self._backend.get(key_bytes(self._key, key)))

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None removes it."""
        self._backend.put(key_bytes(self._key, key), self._write(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none; return the one that it had."""
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return found

    def delete(self, key: Any) -> Any:
        """Remove a key; return its value."""
        found = self.get(key)
        self.put(key, None)
        return found

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Yield all entries, by the order of the keys' bytes."""
        for key, value in self._backend.items():
            yield self._key.deserialize(key), self._read(value)

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the entries between two keys, both included; None is no limit."""
        low = None if first is None else key_bytes(self._key, first)
        high = None if last is None else key_bytes(self._key, last)
        end = None if high is None else high + b"\0"
        for key, value in self._backend.items(low or b"", end):
            yield self._key.deserialize(key), self._read(value)

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        """Yield all entries, from the last key to the first."""
        yield from reversed(list(self.all()))

    def reverse_range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the entries between two keys, both included, from the last to the first."""
        yield from reversed(list(self.range(first, last)))

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set the values of several keys."""
        for key, value in entries:
            self.put(key, value)

    def prefix_scan(self, prefix: Any, serde: Serde | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield the entries whose key's bytes start with a prefix, or with what a serde writes."""
        data: bytes = prefix if serde is None else key_bytes(serde, prefix)
        for key, value in self._backend.items(data, end_of_prefix(data)):
            yield self._key.deserialize(key), self._read(value)

    def approximate_num_entries(self) -> int:
        """Return the number of entries."""
        return sum(1 for _ in self._backend.items())

    def flush(self) -> None:
        """Do nothing: the backend has all."""

    def _read(self, data: bytes | None) -> Any:
        return self._value.deserialize(data)

    def _write(self, value: Any) -> bytes | None:
        return self._value.serialize(value)


class TimestampedKeyValueStore(KeyValueStore):
    """Values with timestamps by key."""

    def put_value(self, key: Any, value: Any, timestamp: int) -> bool:
        """Set the value of a key; return whether it is the latest, which it always is here."""
        self.put(key, None if value is None else ValueAndTimestamp(value, timestamp))
        return True

    def _read(self, data: bytes | None) -> Any:
        if data is None:
            return None
        return ValueAndTimestamp(self._value.deserialize(data[8:]), LONG.unpack(data[:8])[0])

    def _write(self, value: Any) -> bytes | None:
        if value is None:
            return None
        data = self._value.serialize(value.value)
        return None if data is None else LONG.pack(value.timestamp) + data


class TimedStore:
    """Base of stores that forget what is old: lists of entries by key, and their stream time."""

    observed_key = b"t"
    """The backend's key of the highest timestamp so far."""

    def __init__(self, backend: Backend, spec: StoreSpec) -> None:
        assert spec.key is not None
        assert spec.value is not None
        self._key, self._value, self._retention_ms = spec.key, spec.value, spec.retention_ms
        self._backend, self._lists = backend, EntryLists(backend)
        data = backend.get(self.observed_key)
        self._observed: int = -1 if data is None else LONG.unpack(data)[0]
        self._saved = self._observed

    def flush(self) -> None:
        """Write what has changed."""
        self._lists.forget()
        if self._observed != self._saved:
            self._backend.put(self.observed_key, LONG.pack(self._observed))
            self._saved = self._observed

    def _place(self, key: Any) -> bytes:
        return b"k" + key_bytes(self._key, key)

    def _places(self) -> list[bytes]:
        return [key for key in self._lists.keys() if key != self.observed_key]  # noqa: SIM118 - a method


_TOMBSTONE: Final = 0
_VALUE: Final = 1


class VersionedStore(TimedStore):
    """All versions of each key's value within the history; deletions are versions, too."""

    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
        """Add a version; return the time until which it is valid, -1 for the latest one.

        None says that the version is older than the history and was not stored.
        """
        if timestamp < self._observed - self._retention_ms:
            return None
        self._observed = max(self._observed, timestamp)
        place = self._place(key)
        data = self._value.serialize(value)
        versions = [version for version in self._lists.get(place) if version[0] != timestamp]
        versions.append((timestamp, _TOMBSTONE if data is None else _VALUE, data or b""))
        versions.sort(key=lambda version: version[0])
        later = [start for start, _, _ in versions if start > timestamp]
        # versions that ended before the history go, and deletions that nothing precedes
        oldest = self._observed - self._retention_ms
        ended = sum(1 for version in versions if version[0] <= oldest) - 1
        self._lists.put(place, versions[max(ended, 0) :])
        return min(later, default=-1)

    def put_value(self, key: Any, value: Any, timestamp: int) -> bool | None:
        """Add a version; return whether it is the latest, None if it was not stored."""
        found = self.put(key, value, timestamp)
        return None if found is None else found == -1

    def get(self, key: Any, as_of: int | None = None) -> ValueAndTimestamp | None:
        """Return the version that is valid at a time; without one, the latest.

        Before the history there is only the latest one, if it is that old.
        """
        versions = self._lists.get(self._place(key))
        if as_of is not None and as_of < self._observed - self._retention_ms:
            versions = versions[-1:]
        valid = [version for version in versions if as_of is None or version[0] <= as_of]
        if not valid or valid[-1][1] == _TOMBSTONE:
            return None
        return ValueAndTimestamp(self._value.deserialize(valid[-1][2]), valid[-1][0])

    def versions(
        self, key: Any, first: int | None = None, last: int | None = None
    ) -> Iterator[VersionedRecord]:
        """Yield the versions of a key that are valid within a span, by time; None is no limit.

        ValueError for a span that ends before it begins.
        """
        if first is not None and last is not None and first > last:
            raise ValueError(f"the span from {first} to {last} ends before it begins")
        listed = self._lists.get(self._place(key))
        for number, (start, kind, data) in enumerate(listed, start=1):
            end = listed[number][0] if number < len(listed) else None
            ended = first is not None and end is not None and end <= first
            if kind == _VALUE and not ended and (last is None or start <= last):
                yield VersionedRecord(self._value.deserialize(data), start, end)

    def delete(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        """Add a version without a value; return the one that was valid at its time."""
        found = self.get(key, timestamp)
        self.put(key, None, timestamp)
        return found

    def all(self, as_of: int | None = None) -> Iterator[tuple[Any, ValueAndTimestamp]]:
        """Yield the latest version of all keys, or the one that is valid at a time."""
        for place in self._places():
            key = self._key.deserialize(place[1:])
            version = self.get(key, as_of)
            if version is not None:
                yield key, version
