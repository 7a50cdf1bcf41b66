"""Definitions of stores: their kind, serdes and form.

Kafka: org.apache.kafka.streams.state.{Stores, StoreBuilder}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.streams.windows import Duration, milliseconds

if TYPE_CHECKING:
    from ottla.streams.serdes import Serde


@dataclass(frozen=True)
class StoreSpec:
    """A store of a topology: its kind (key-value, window, session, versioned, buffer) and form."""

    name: str
    kind: str
    key: Serde | None = None
    value: Serde | None = None
    retention_ms: int = 0
    window_size_ms: int = 0
    has_duplicates: bool = False
    has_timestamps: bool = True
    is_time_ordered: bool = False
    max_entries: int | None = None
    has_headers: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a negative number of entries, or windows with headers alone."""
        if self.kind == "window" and self.has_headers and not self.has_timestamps:
            raise ValueError(f"the window store {self.name} has headers, but no timestamps")
        if self.max_entries is not None and self.max_entries < 0:
            raise ValueError("max_entries cannot be negative")


class Stores:
    """Definitions of stores for `add_state_store`."""

    @staticmethod
    def key_value(name: str, key: Serde, value: Serde) -> StoreSpec:
        """Return a store of values by key."""
        return StoreSpec(name, "key-value", key, value, has_timestamps=False)

    @staticmethod
    def lru_map(name: str, key: Serde, value: Serde, *, max_entries: int) -> StoreSpec:
        """Return a store of values by key, in each task those that were used most recently.

        Gets and puts are uses. What is dropped is dropped without a word; the order of uses lasts
        over restarts.
        """
        return StoreSpec(
            name, "key-value", key, value, has_timestamps=False, max_entries=max_entries
        )

    @staticmethod
    def timestamped_key_value(
        name: str, key: Serde, value: Serde, *, has_headers: bool = False
    ) -> StoreSpec:
        """Return a store of values with timestamps, or with both and headers, by key."""
        return StoreSpec(name, "key-value", key, value, has_headers=has_headers)

    @staticmethod
    def window(
        name: str,
        key: Serde,
        value: Serde,
        *,
        retention: Duration,
        size: Duration,
        retain_duplicates: bool = False,
        has_timestamps: bool = False,
        has_headers: bool = False,
    ) -> StoreSpec:
        """Return a store of values, with timestamps and headers, by key and start of a window."""
        return StoreSpec(
            name,
            "window",
            key,
            value,
            retention_ms=milliseconds(retention),
            window_size_ms=milliseconds(size),
            has_duplicates=retain_duplicates,
            has_timestamps=has_timestamps,
            has_headers=has_headers,
        )

    @staticmethod
    def session(
        name: str, key: Serde, value: Serde, *, retention: Duration, has_headers: bool = False
    ) -> StoreSpec:
        """Return a store of values, or values with headers, by key and session."""
        return StoreSpec(
            name,
            "session",
            key,
            value,
            retention_ms=milliseconds(retention),
            has_headers=has_headers,
        )

    @staticmethod
    def versioned_key_value(name: str, key: Serde, value: Serde, *, history: Duration) -> StoreSpec:
        """Return a store that also answers as of an earlier time."""
        return StoreSpec(name, "versioned", key, value, retention_ms=milliseconds(history))
