"""Versioned key-value stores: the value of a key as of a time.

Kafka: org.apache.kafka.streams.state.VersionedKeyValueStore (KIP-889).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.streams.records import ValueAndTimestamp, VersionedRecord
from ottla.streams.serdes import LONG
from ottla.streams.stores.backend import EntryLists
from ottla.streams.stores.key_value import key_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.streams.stores.backend import Backend
    from ottla.streams.stores.specs import StoreSpec

_OBSERVED: Final = b"t"
_KEY: Final = b"k"
_TOMBSTONE: Final = 0
_VALUE: Final = 1


class VersionedStore:
    """All versions of each key's value within the history; deletions are versions, too."""

    def __init__(self, backend: Backend, spec: StoreSpec) -> None:
        assert spec.key is not None
        assert spec.value is not None
        self._key, self._value = spec.key, spec.value
        self._history_ms = spec.retention_ms
        self._backend = backend
        self._lists = EntryLists(backend)
        self._observed: int = LONG.unpack(backend.get(_OBSERVED) or LONG.pack(-1))[0]
        self._saved = self._observed

    def put(self, key: Any, value: Any, timestamp: int) -> int | None:
        """Add a version; return the time until which it is valid, -1 for the latest one.

        None says that the version is older than the history and was not stored.
        """
        if timestamp < self._observed - self._history_ms:
            return None
        self._observed = max(self._observed, timestamp)
        place = self._place(key)
        data = self._value.serialize(value)
        versions = [one for one in self._lists.get(place) if one[0] != timestamp]
        versions.append((timestamp, _TOMBSTONE if data is None else _VALUE, data or b""))
        versions.sort(key=lambda one: one[0])
        later = [one[0] for one in versions if one[0] > timestamp]
        self._lists.put(place, self._pruned(versions))
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
        if as_of is not None and as_of < self._observed - self._history_ms:
            versions = versions[-1:]
        valid = [one for one in versions if as_of is None or one[0] <= as_of]
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
        for place in self._lists.keys():  # noqa: SIM118 - a method
            if place[:1] == _KEY:
                key = self._key.deserialize(place[1:])
                found = self.get(key, as_of)
                if found is not None:
                    yield key, found

    def flush(self) -> None:
        """Write what has changed."""
        self._lists.forget()
        if self._observed != self._saved:
            self._backend.put(_OBSERVED, LONG.pack(self._observed))
            self._saved = self._observed

    def _place(self, key: Any) -> bytes:
        return _KEY + key_bytes(self._key, key)

    def _pruned(self, versions: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
        """Drop versions that ended before the history, and deletions that nothing precedes."""
        oldest = self._observed - self._history_ms
        ended = sum(1 for one in versions if one[0] <= oldest) - 1
        return versions[max(ended, 0) :]
