"""The replacement of closed segments by others that hold the same records or fewer.

A worker writes the new segments with the suffix `.cleaned` and syncs them. The replacement renames
them to `.swap`, makes these names durable, marks the old segments as deleted and removes the
suffix.
After a crash the log has the old segments or the new ones: `swap_files.finish_swaps`.
Kafka: LocalLog.replaceSegments.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.storage.log.swap_files import CLEANED_SUFFIX, SWAP_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.segments.segment import Segment


class SegmentReplacement:
    """Replaces segments of a log, as a job for a worker; the log is paused until `done`.

    A truncation, the deletion or a move of the log end it: the old segments stay then.
    """

    def __init__(
        self, log: PartitionLog, old: Sequence[Segment], new: Sequence[Segment], *, now_ms: int
    ) -> None:
        """Take consecutive closed segments and those that replace them, which no list has yet.

        ValueError for the active segment, and for a log that is paused.
        """
        if log.is_paused or log.segments.active in old:
            raise ValueError(f"segments of {log.name} cannot be replaced now")
        self._log = log
        self._old = old
        self._new = new
        self._now_ms = now_ms
        self._generation = log.generation
        self._directory = log.directory.open_directory(log.name)
        self.is_replaced = False
        """Whether the log has the new segments, once `done` was called."""
        log.replacement_begins(self._abandon)

    @property
    def volume(self) -> Hashable:
        """The volume whose disk it waits for."""
        return self._log.directory.volume

    def run(self) -> None:
        """Rename the new files, the last segment's first, and make their names durable.

        In this order a crash leaves `.cleaned` files of all segments before a renamed one.
        """
        for segment in sorted(self._new, key=lambda one: -one.base_offset):
            for name in segment.file_names():
                with suppress(FileNotFoundError):  # most segments have no aborted transactions
                    self._directory.rename(name, _swapped(name))
        self._directory.sync()

    def done(self, error: BaseException | None) -> None:
        """Let the log have the new segments; KAFKA_STORAGE_ERROR when the disk failed."""
        log = self._log
        self._directory.close()
        log.replacement_ended()
        try:
            if isinstance(error, OSError):
                raise error
            self._follow_names()
            if log.is_paused or log.generation != self._generation:
                self._abandon()
            else:
                log.replaced(self._old, self._new, self._now_ms)
                self.is_replaced = True
        except OSError as failure:
            log.fail(failure)
            raise log.storage_error("replacing segments of", failure) from failure

    def _follow_names(self) -> None:
        for segment in self._new:
            segment.renamed_suffix(SWAP_SUFFIX)

    def _abandon(self) -> None:
        """Remove the new files under both names: `run` may be under way.

        Those of a deleted partition are removed with its directory.
        """
        if self._log.is_deleted:
            return
        for segment in self._new:
            segment.remove_files()
        self._follow_names()
        for segment in self._new:
            segment.remove_files()


def _swapped(name: str) -> str:
    return name.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX
