"""A dict, a set and a value that can be read at, and reverted to, an earlier epoch.

Iteration is in insertion order, so that decisions made by iterating are the same in every run.

Kafka: org.apache.kafka.timeline.{TimelineHashMap, TimelineHashSet, TimelineObject}.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, MutableSet
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView

    from ottla.timeline.snapshot_registry import SnapshotRegistry


K = TypeVar("K")
V = TypeVar("V")
ABSENT: Any = object()


class TimelineDict(MutableMapping[K, V]):
    """Behaves as a dict in insertion order; values must be replaced, never changed in place.

    A value that must change in place has to be built of timeline structures itself.
    """

    __slots__ = ("_current", "_registry")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._current: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        return self._current[key]

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value at key, or default."""
        return self._current.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._current

    def __setitem__(self, key: K, value: V) -> None:
        self._remember(key)
        self._current[key] = value

    def set_all(self, items: Iterable[tuple[K, V]]) -> None:
        """Set many entries: the registry is asked once."""
        changes, current = self._registry.changes_of(self), self._current
        for key, value in items:
            if changes is not None and key not in changes:
                changes[key] = current.get(key, ABSENT)
            current[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self._current:
            raise KeyError(key)
        self._remember(key)
        del self._current[key]

    def __len__(self) -> int:
        return len(self._current)

    def __iter__(self) -> Iterator[K]:
        return iter(self._current)

    # the views of the dict: those of Mapping cost a call of __getitem__ for each entry

    def keys(self) -> KeysView[K]:
        """Return a view of the keys."""
        return self._current.keys()

    def values(self) -> ValuesView[V]:
        """Return a view of the values."""
        return self._current.values()

    def items(self) -> ItemsView[K, V]:
        """Return a view of keys and values."""
        return self._current.items()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TimelineDict):
            return self._current == other._current
        return self._current == other if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return f"TimelineDict({self._current!r})"

    def clear(self) -> None:
        """Remove all entries."""
        for key in self._current:
            self._remember(key)
        self._current.clear()

    def at(self, epoch: int) -> Mapping[K, V]:
        """Return the content at epoch; it costs the number of changes since then.

        The result is only valid until the next change. Raises KeyError for an epoch
        without a snapshot.
        """
        old: dict[K, Any] = {}
        for changes in self._registry.changes_since(self, epoch):
            for key, value in changes.items():
                old.setdefault(key, value)
        return _DictAt(self._current, old) if old else self._current

    def get_at(self, key: K, epoch: int) -> V | None:
        """Return the value at key in epoch, None without one; cheaper than `at` for one key."""
        for changes in self._registry.changes_since(self, epoch):
            if key in changes:
                value = changes[key]
                return None if value is ABSENT else value
        return self._current.get(key)

    def undo(self, changes: dict[K, V]) -> None:
        """Restore the values in changes; called by the registry."""
        for key, value in changes.items():
            if value is ABSENT:
                self._current.pop(key, None)
            else:
                self._current[key] = value

    def _remember(self, key: K) -> None:
        changes = self._registry.changes_of(self)
        if changes is not None and key not in changes:
            changes[key] = self._current.get(key, ABSENT)


class _DictAt(Mapping[K, V]):
    """The current dict overlaid with the values that were changed since."""

    __slots__ = ("_current", "_old")

    def __init__(self, current: dict[K, V], old: dict[K, Any]) -> None:
        self._current = current
        self._old = old

    def __getitem__(self, key: K) -> V:
        if key not in self._old:
            return self._current[key]
        value: V = self._old[key]
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        for key in self._current:
            if key not in self._old:
                yield key
        for key, value in self._old.items():
            if value is not ABSENT:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)


T = TypeVar("T")


class TimelineObject(Generic[T]):
    """A cell; the value in it must be replaced, never changed in place."""

    __slots__ = ("_registry", "_value")

    def __init__(self, registry: SnapshotRegistry, value: T) -> None:
        self._registry = registry
        self._value = value

    @property
    def value(self) -> T:
        """The newest value."""
        return self._value

    @value.setter
    def value(self, value: T) -> None:
        changes = self._registry.changes_of(self)
        if changes is not None:
            changes.setdefault(0, self._value)
        self._value = value

    def at(self, epoch: int) -> T:
        """Return the value at epoch; KeyError for an epoch without a snapshot."""
        for changes in self._registry.changes_since(self, epoch):
            return changes[0]  # type: ignore[no-any-return]  # undo logs are untyped
        return self._value

    def undo(self, changes: dict[int, T]) -> None:
        """Restore the value in changes; called by the registry."""
        self._value = changes[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value!r})"


class TimelineSet(MutableSet[T]):
    """Behaves as a set with insertion order."""

    __slots__ = ("_members",)

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._members: TimelineDict[T, None] = TimelineDict(registry)

    def __contains__(self, value: object) -> bool:
        return value in self._members

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"TimelineSet({list(self._members)!r})"

    def add(self, value: T) -> None:
        """Add value; no effect when it is present."""
        if value not in self._members:
            self._members[value] = None

    def discard(self, value: T) -> None:
        """Remove value; no effect when it is absent."""
        if value in self._members:
            del self._members[value]

    def clear(self) -> None:
        """Remove all values."""
        self._members.clear()

    def at(self, epoch: int) -> KeysView[T]:
        """Return the content at epoch; KeyError for an epoch without a snapshot."""
        return self._members.at(epoch).keys()
