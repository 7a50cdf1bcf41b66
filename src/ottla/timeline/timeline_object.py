"""A value that can be read at, and reverted to, an earlier epoch.

Kafka: org.apache.kafka.timeline.TimelineObject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ottla.timeline.snapshot_registry import SnapshotRegistry

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
