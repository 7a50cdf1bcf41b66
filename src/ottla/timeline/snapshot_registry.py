"""The snapshots that a group of timeline structures shares, one for each log offset ("epoch").

Kafka: org.apache.kafka.timeline.SnapshotRegistry.

The structures hold the newest state in ordinary containers. A snapshot holds, for each structure
that changed after it, the previous values of the changed entries: an undo log. Reading at
an epoch looks through the undo logs from that epoch upwards; reverting plays them back, newest
first; deleting old snapshots drops them. So the newest state costs no more than a dict, a snapshot
costs nothing until something changes, and memory is bounded by the changes since the oldest one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

LATEST_EPOCH: Final = 2**63 - 1
"""The epoch that means "newest state", as Kafka's LATEST_EPOCH."""


class Revertable(Protocol):
    """A structure that can revert its changes."""

    def undo(self, changes: Any) -> None:
        """Restore the entries of this undo log."""


class SnapshotRegistry:
    """Snapshots in rising order of epoch."""

    __slots__ = ("_epochs", "_undo_logs")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._undo_logs: list[dict[Revertable, Any]] = []

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that can be read at or reverted to, rising."""
        return tuple(self._epochs)

    @property
    def latest_epoch(self) -> int:
        """The epoch of the newest snapshot; -1 when there is none."""
        return self._epochs[-1] if self._epochs else -1

    @property
    def oldest_epoch(self) -> int:
        """The epoch of the oldest snapshot; IndexError when there is none."""
        return self._epochs[0]

    def has(self, epoch: int) -> bool:
        """Whether there is a snapshot of exactly this epoch."""
        index = bisect_left(self._epochs, epoch)
        return index < len(self._epochs) and self._epochs[index] == epoch

    def snapshot(self, epoch: int) -> None:
        """Take a snapshot of the current state for epoch; no effect when it exists already.

        Raises ValueError for an epoch older than the newest snapshot.
        """
        if epoch == self.latest_epoch:
            return
        if epoch < self.latest_epoch:
            raise ValueError(f"epoch {epoch} is older than the newest, {self.latest_epoch}")
        self._epochs.append(epoch)
        self._undo_logs.append({})

    def revert_to(self, epoch: int) -> None:
        """Revert to the state of epoch and delete all later snapshots.

        Raises KeyError when there is no such snapshot.
        """
        index = self._index(epoch)
        for log in reversed(self._undo_logs[index:]):
            for structure, changes in log.items():
                structure.undo(changes)
        del self._epochs[index + 1 :]
        del self._undo_logs[index:]
        self._undo_logs.append({})

    def delete_up_to(self, epoch: int) -> None:
        """Delete the snapshots below epoch; one at epoch itself stays."""
        index = bisect_left(self._epochs, epoch)
        del self._epochs[:index]
        del self._undo_logs[:index]

    def delete_before_last_at(self, epoch: int) -> None:
        """Delete the snapshots before the last one that is not above epoch."""
        index = bisect_right(self._epochs, epoch) - 1
        if index > 0:
            del self._epochs[:index]
            del self._undo_logs[:index]

    def reset(self) -> None:
        """Delete all snapshots; the newest state stays as it is."""
        self._epochs.clear()
        self._undo_logs.clear()

    def changes_of(self, structure: Revertable) -> Any:
        """Return the undo log of the newest snapshot for structure: None without a snapshot.

        The caller records in it what an entry held before its first change.
        """
        if not self._undo_logs:
            return None
        log = self._undo_logs[-1]
        changes = log.get(structure)
        if changes is None:
            changes = log[structure] = {}
        return changes

    def changes_since(self, structure: Revertable, epoch: int) -> Iterator[Any]:
        """Yield the undo logs of structure from epoch upwards, oldest first.

        Raises KeyError when there is no such snapshot.
        """
        if epoch == LATEST_EPOCH:
            return
        for log in self._undo_logs[self._index(epoch) :]:
            changes = log.get(structure)
            if changes:
                yield changes

    def _index(self, epoch: int) -> int:
        if not self.has(epoch):
            raise KeyError(f"no snapshot of epoch {epoch}; there are {self._epochs}")
        return bisect_left(self._epochs, epoch)
