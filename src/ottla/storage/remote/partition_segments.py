"""The remote segments of one partition, from the records of the metadata topic; sans-IO.

For each leader epoch there is the offset at which each complete segment begins to have records of
it, and the segments that have an entry but are not read: copies under way or abandoned, deletions,
and those whose offsets a later copy of another leader has, too.

A leader that was elected uncleanly may have other records at the same offsets than remote segments:
`is_in_lineage` tells which of them belong to its log.

Kafka: org.apache.kafka.server.log.remote.metadata.storage.{RemoteLogMetadataCache,
RemoteLogLeaderEpochState}, RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from ottla.storage.remote.segment import RemoteSegment, SegmentState, is_legal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.storage.log.leader_epochs import LeaderEpochs
    from ottla.storage.remote.segment import SegmentUpdate
    from ottla.types import Uuid


class _EpochSegments:
    """The segments with records of one leader epoch."""

    __slots__ = ("ends", "highest_offset", "ids", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        """Where the epoch begins in each complete segment, increasing."""
        self.ends: list[int] = []
        """And where it ends there."""
        self.ids: list[Uuid] = []
        """The segments of `starts`."""
        self.unreferenced: dict[Uuid, None] = {}
        """The other ones; in the order of their records."""
        self.highest_offset: int | None = None
        """The highest offset that any copy had; a deletion does not lower it."""

    def copied(self, segment_id: Uuid, start: int, end: int) -> None:
        """Add a complete segment, whose records of the epoch are those from start to end.

        Leaders of the same epoch's records may copy them in other segments: the newest copy
        replaces those that begin in it or after it, unless something longer was copied. A copy that
        ends before the one with the same begin is not read: later ones may begin after that.
        """
        highest = -1 if self.highest_offset is None else self.highest_offset
        while self.starts and self.starts[-1] >= start and highest <= end:
            self.starts.pop()
            self.ends.pop()
            self.unreferenced[self.ids.pop()] = None
        number = bisect_left(self.starts, start)
        if number < len(self.starts) and self.starts[number] == start:
            if self.ends[number] > end:
                return
            self.unreferenced[self.ids[number]] = None
            self.ids[number], self.ends[number] = segment_id, end
        else:
            self.starts.insert(number, start)
            self.ends.insert(number, end)
            self.ids.insert(number, segment_id)
        self.unreferenced.pop(segment_id, None)
        self.highest_offset = max(highest, end)

    def deletion_started(self, segment_id: Uuid, start: int) -> None:
        """Serve a segment no longer."""
        number = bisect_left(self.starts, start)
        if number < len(self.ids) and self.ids[number] == segment_id:
            del self.starts[number], self.ends[number], self.ids[number]
        self.unreferenced[segment_id] = None


class PartitionSegments:
    """The table of one partition; `apply` is its only mutator."""

    __slots__ = ("_by_epoch", "_by_id")

    def __init__(self) -> None:
        self._by_id: dict[Uuid, RemoteSegment] = {}
        self._by_epoch: dict[int, _EpochSegments] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def apply(self, record: RemoteSegment | SegmentUpdate) -> bool:
        """Take over a record; False, and nothing is changed, where its state cannot follow.

        The topic may have such a record: of a segment whose first one was deleted with its topic.
        """
        known = self._by_id.get(record.segment_id)
        if not is_legal(None if known is None else known.state, record.state):
            return False
        if isinstance(record, RemoteSegment):
            if known is None:
                self._add(record)
            return True
        if known is None:
            return False
        segment = self._by_id[record.segment_id] = known.updated(record)
        if record.state is SegmentState.COPY_SEGMENT_FINISHED:
            for epoch, start, end in _ranges(segment):
                self._by_epoch[epoch].copied(segment.segment_id, start, end)
        elif record.state is SegmentState.DELETE_SEGMENT_STARTED:
            for epoch, start in segment.leader_epochs:
                self._by_epoch[epoch].deletion_started(segment.segment_id, start)
        elif record.state is SegmentState.DELETE_SEGMENT_FINISHED:
            self._forget(segment)
        return True

    def _add(self, segment: RemoteSegment) -> None:
        self._by_id[segment.segment_id] = segment
        for epoch, _ in segment.leader_epochs:
            state = self._by_epoch.setdefault(epoch, _EpochSegments())
            state.unreferenced[segment.segment_id] = None

    def _forget(self, segment: RemoteSegment) -> None:
        del self._by_id[segment.segment_id]
        for epoch, _ in segment.leader_epochs:
            state = self._by_epoch[epoch]
            state.unreferenced.pop(segment.segment_id, None)
            if not (state.starts or state.unreferenced):
                del self._by_epoch[epoch]

    def segment_at(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the complete segment that has the record at offset, written in this epoch."""
        state = self._by_epoch.get(epoch)
        number = bisect_right(state.starts, offset) - 1 if state is not None else -1
        if state is None or number < 0:
            return None
        return self._by_id[state.ids[number]] if offset <= state.ends[number] else None

    def is_replaced(self, segment: RemoteSegment) -> bool:
        """Whether other complete segments have all records of a complete one, and are read."""
        for epoch, start, end in _ranges(segment):
            state = self._by_epoch[epoch]
            if segment.segment_id not in state.unreferenced:
                return False
            offset = start
            while offset <= end:
                number = bisect_right(state.starts, offset) - 1
                if number < 0 or state.ends[number] < offset:
                    return False
                offset = state.ends[number] + 1
        return True

    def highest_offset(self, epoch: int) -> int | None:
        """Return the highest offset of the epoch that was ever copied; None without any."""
        state = self._by_epoch.get(epoch)
        return None if state is None else state.highest_offset

    def last_copied_offset(self, epoch: int) -> int | None:
        """Return the last offset of the epoch in a complete segment; None without any."""
        state = self._by_epoch.get(epoch)
        return state.ends[-1] if state is not None and state.ends else None

    def lineage_from(
        self, start_offset: int, epochs: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Return a log's epochs with those before them, back to start_offset where segments do.

        A log whose leader-epoch-checkpoint was lost knows those of its local records only. Of
        segments with other records at the same offsets those of newer leaders count.
        """
        lineage = list(epochs)
        complete = [
            segment
            for segment in self._by_id.values()
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        ]
        complete.sort(key=lambda one: (one.leader_epochs[-1][0], one.end_offset), reverse=True)
        for segment in complete:
            if not lineage or lineage[0][1] <= start_offset:
                break
            epoch, offset = lineage[0]
            earlier = [entry for entry in segment.leader_epochs if entry[1] < offset]
            if earlier and offset <= segment.end_offset + 1 and earlier[-1][0] <= epoch:
                lineage[: earlier[-1][0] == epoch] = earlier
        return lineage

    def segments(self, epoch: int | None = None) -> list[RemoteSegment]:
        """Return all segments with an entry, or those with records of an epoch, by start offset."""
        if epoch is None:
            found = list(self._by_id.values())
        else:
            state = self._by_epoch.get(epoch)
            if state is None:
                return []
            found = [self._by_id[uuid] for uuid in (*state.ids, *state.unreferenced)]
        return sorted(found, key=lambda segment: segment.start_offset)


def _ranges(segment: RemoteSegment) -> Iterator[tuple[int, int, int]]:
    """Yield each leader epoch of a segment with its first and last offset there."""
    following = [start - 1 for _, start in segment.leader_epochs[1:]]
    ends = (*following, segment.end_offset)
    for (epoch, start), end in zip(segment.leader_epochs, ends, strict=True):
        yield epoch, start, end


def with_records(epochs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the epochs that have records: the next one does not begin where they do."""
    return [
        entry
        for number, entry in enumerate(epochs)
        if number + 1 == len(epochs) or epochs[number + 1][1] != entry[1]
    ]


def end_in_lineage(segment: RemoteSegment, epoch: int, epochs: LeaderEpochs) -> int:
    """Return where a segment's records cease to be those of a log, which has its ones of epoch.

    Another leader copied those after that, and lost them in an unclean election.
    """
    for number, start, end in _ranges(segment):
        if number < epoch or end < start:
            continue
        if number > epoch and epochs.epoch_for_offset(start) != number:
            return start
        end_offset = epochs.end_offset_for(number, end + 1).offset
        if end_offset <= end:
            return end_offset
    return segment.end_offset + 1


def is_in_lineage(
    segment: RemoteSegment, log_end_offset: int, lineage: Sequence[tuple[int, int]]
) -> bool:
    """Whether the segment's records are those of the log with these epochs and this end.

    The lineage, of `with_records`, may begin later than the segment: the log's start has moved.
    """
    epochs = with_records(segment.leader_epochs)
    if not lineage or segment.end_offset >= log_end_offset:
        return False
    starts = dict(lineage)
    following = {epoch: entry for (epoch, _), entry in pairwise(lineage)}
    known = [entry for entry in epochs if entry[0] >= lineage[0][0]]
    if not known or known[-1][0] > lineage[-1][0] or any(one not in starts for one, _ in known):
        return False
    first_epoch, first_start = known[0]
    if first_epoch != lineage[0][0] and first_start < starts[first_epoch]:
        return False
    if any(following.get(one[0]) != other for one, other in pairwise(known)):
        return False
    end = following.get(known[-1][0])
    return end is None or segment.end_offset < end[1]
