"""Offset syncs: when a mirror writes one, and how offsets are translated by those that were read.

A translated offset never passes the group's place in the target, and moves forward only, as long as
the source's does. 64 syncs are kept of each partition. Slot 0 has the newest; for slots i < j:
upstream[i] <= upstream[j] + 2^j - 2^i (B: older slots are not too old), and
upstream[i] >= upstream[i + 1] + 2^max(i - 2, 0) unless they have the same sync (C: they differ
enough to be of use).

Kafka: org.apache.kafka.connect.mirror.OffsetSyncStore, MirrorSourceTask.PartitionState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.connect.mirror.records import OffsetSync
    from ottla.types import TopicPartition

SLOTS: Final = 64
"""Powers of two up to the largest offset."""
TOO_OLD: Final = -1
"""The translation of an offset before all syncs."""


def _is_recent(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    """Invariant B."""
    return newer is older or newer.upstream <= older.upstream + (1 << j) - (1 << i)


def _is_separate(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    """Invariant C."""
    return newer is older or newer.upstream >= older.upstream + (1 << max(i - 2, 0))


class OffsetSyncStore:
    """The syncs that serve to translate offsets."""

    def __init__(self, *, only_last: bool = False) -> None:
        """Keep only the last sync of each partition until `read_to_end`.

        Necessary where earlier checkpoints are unknown: an older sync, which compaction may have
        brought back in reach, could translate an offset to one before the earlier translation.
        """
        self._only_last = only_last
        self._has_ended = False
        self._slots: dict[TopicPartition, list[OffsetSync]] = {}

    def read_to_end(self) -> None:
        """Hear that all syncs were added that there were at the start; translation begins."""
        self._has_ended = True

    def add(self, sync: OffsetSync) -> None:
        """Add the next sync of the topic."""
        slots = self._slots.get(sync.partition)
        only_last = self._only_last and not self._has_ended
        # A source that went back, as after its topic was created again, makes all others invalid.
        if slots is None or only_last or sync.upstream < slots[0].upstream:
            self._slots[sync.partition] = [sync] * SLOTS
        else:
            _insert(slots, sync)

    def translate(self, partition: TopicPartition, upstream: int) -> int | None:
        """Return the offset in the target, TOO_OLD before all syncs, None without any."""
        slots = self._slots.get(partition)
        if slots is None or not self._has_ended:
            return None
        for sync in slots:
            if sync.upstream <= upstream:
                return sync.downstream + (sync.upstream < upstream)
        return TOO_OLD


def _insert(slots: list[OffsetSync], sync: OffsetSync) -> None:
    original, index = slots.copy(), 0
    slots[0] = replacement = sync
    for current in range(1, SLOTS):
        newer = slots[current - 1]
        # A sync that lost its slot takes a later one, the first in which it is recent and separate.
        while True:
            old = original[index]
            is_separate = _is_separate(newer, old, current - 1)
            fits = (
                is_separate
                and _is_recent(newer, old, current - 1, current)
                and (current + 1 == SLOTS or _is_separate(old, slots[current + 1], current))
            )
            if fits:
                replacement = old
            is_useless = not is_separate or old is original[index + 1]
            if fits or is_useless:
                index += 1
            if not is_useless or index == current:
                break
        if _is_recent(newer, slots[current], current - 1, current):
            return  # and so are all later ones
        slots[current] = replacement


class SyncDecision:
    """Decides for one partition whether a record's offsets are written at once."""

    __slots__ = ("_downstream", "_lag_max", "_last_sync", "_upstream")

    def __init__(self, lag_max: int) -> None:
        """Take offset.lag.max."""
        self._lag_max = lag_max
        self._upstream = self._last_sync = -1
        self._downstream = -1

    def is_due(self, upstream: int, downstream: int) -> bool:
        """Take the offsets of the next record: at once, or at the next commit."""
        is_due = (
            self._last_sync == -1
            # an offset translates to one past the sync, so that much is exact
            or downstream - (self._last_sync + 1) >= self._lag_max
            or upstream - self._upstream != 1
            or downstream < self._downstream
        )
        if is_due:
            self._last_sync = downstream
        self._upstream, self._downstream = upstream, downstream
        return is_due
