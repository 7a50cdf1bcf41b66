"""The offset of `__share_group_state` below which no snapshot is needed: pruning deletes there.

The topic is not compacted; a share partition needs its last snapshot and the updates after it.

Kafka: org.apache.kafka.coordinator.share.ShareCoordinatorOffsetsManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from ottla.coordinator.share.state import ShareKey
    from ottla.timeline import SnapshotRegistry


class SnapshotOffsets:
    """The offset of each share partition's last snapshot, and of the last tombstone."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._offsets: TimelineDict[ShareKey, int] = TimelineDict(registry)
        self._deleted: TimelineDict[str, int] = TimelineDict(registry)

    def replay(self, key: ShareKey, offset: int, *, is_deleted: bool) -> None:
        """Record the offset of a snapshot, or of a tombstone."""
        if is_deleted:
            self._offsets.pop(key, None)
            self._deleted["last"] = offset
        else:
            self._offsets[key] = offset

    def redundant_before(self, epoch: int) -> int | None:
        """Return the offset below which the committed state needs no record; None for none."""
        offsets = self._offsets.at(epoch)
        lowest = min(offsets.values()) if offsets else self._deleted.at(epoch).get("last", 0)
        return lowest or None
