"""A compacted topic as a table: the newest value of each key, and waits for positions. Sans-IO.

Kafka: org.apache.kafka.connect.util.KafkaBasedLog, without its threads.

Whoever reads the topic applies its records here; clients do so in `ottla.clients.table`. A node can
do so over its own connections, as this needs no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class CompactedTable:
    """The values by key, as of a position in each partition.

    Parameters:
        on_change: called with a key and its new value, None for a deleted one.
    """

    def __init__(self, on_change: Callable[[bytes, bytes | None], None] | None = None) -> None:
        self.values: dict[bytes, bytes] = {}
        self.positions: dict[int, int] = {}
        """The next offset to read, by partition; all before are applied."""
        self._on_change = on_change
        self._waits: list[tuple[dict[int, int], Pending[None]]] = []

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply the next record: a value without bytes is a tombstone, no key is no entry."""
        if key is None:
            return
        if value is None:
            if self.values.pop(key, None) is None:
                return  # deleted before anyone saw it
        else:
            self.values[key] = value
        if self._on_change is not None:
            self._on_change(key, value)

    def advance(self, positions: Mapping[int, int]) -> None:
        """Note what has been read, also where compaction or markers left no record to apply."""
        self.positions.update(positions)
        waits, self._waits = self._waits, []
        for ends, pending in waits:
            if self._has_reached(ends):
                pending.complete(None)
            else:
                self._waits.append((ends, pending))

    def wait_until(self, ends: Mapping[int, int]) -> Pending[None]:
        """Complete when every partition is read up to an offset, exclusive."""
        pending: Pending[None] = Pending()
        if self._has_reached(ends):
            pending.complete(None)
        else:
            self._waits.append((dict(ends), pending))
        return pending

    def _has_reached(self, ends: Mapping[int, int]) -> bool:
        return all(self.positions.get(partition, 0) >= end for partition, end in ends.items())

    def fail(self, error: Exception) -> None:
        """Fail all waits."""
        waits, self._waits = self._waits, []
        for _, pending in waits:
            pending.fail(error)

    def restart(self, values: Mapping[bytes, bytes], positions: Mapping[int, int]) -> None:
        """Take what a new reading from the start has found, after the log lost records.

        Keys that it lacks are reported as deleted. Waits go on: what they wait for may be read
        again, and callers have a time limit for what is lost.
        """
        old, self.values = self.values, dict(values)
        if self._on_change is not None:
            for key in old.keys() - self.values.keys():
                self._on_change(key, None)
            for key, value in self.values.items():
                if old.get(key) != value:
                    self._on_change(key, value)
        self.positions.clear()
        self.advance(positions)
