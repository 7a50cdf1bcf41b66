"""Key-value stores, plain and with timestamps, and the buffer that a suppression keeps.

Kafka: org.apache.kafka.streams.state.{KeyValueStore, TimestampedKeyValueStore}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.errors import StreamsException
from ottla.streams.records import ValueAndTimestamp
from ottla.streams.serdes import LONG
from ottla.streams.stores.backend import end_of_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.streams.serdes import Serde
    from ottla.streams.stores.backend import Backend


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
