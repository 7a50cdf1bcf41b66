"""The segments of one log in order of their base offsets; the last one is active.

Kafka: org.apache.kafka.storage.internals.log.LogSegments.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.storage.segments.segment import Segment


class SegmentList:
    """The segments by base offset; never empty once the log is open."""

    __slots__ = ("active", "base_offsets", "ordered")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self.ordered = sorted(segments, key=lambda segment: segment.base_offset)
        """The segments; reads look at this and at `base_offsets` without a call."""
        self.base_offsets = [segment.base_offset for segment in self.ordered]
        """All base offsets, increasing."""
        if self.ordered:
            self.active = self.ordered[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.ordered)

    def __len__(self) -> int:
        return len(self.ordered)

    def __getitem__(self, number: int) -> Segment:
        return self.ordered[number]

    def number_for(self, offset: int) -> int:
        """Return the number of the segment that may hold offset, -1 when it precedes all."""
        return bisect_right(self.base_offsets, offset) - 1

    def add(self, segment: Segment) -> None:
        """Add a segment after all others; it becomes the active one."""
        assert not self.base_offsets or segment.base_offset > self.base_offsets[-1]
        self.ordered.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment

    def insert(self, segments: Iterable[Segment]) -> None:
        """Add segments whose place is free, before the active one."""
        self.ordered = sorted((*self.ordered, *segments), key=lambda segment: segment.base_offset)
        self.base_offsets = [segment.base_offset for segment in self.ordered]
        self.active = self.ordered[-1]

    def remove(self, segments: Iterable[Segment]) -> None:
        """Remove segments from the list; the caller removes their files."""
        removed = {segment.base_offset for segment in segments}
        self.ordered = [segment for segment in self.ordered if segment.base_offset not in removed]
        self.base_offsets = [segment.base_offset for segment in self.ordered]
        if self.ordered:
            self.active = self.ordered[-1]

    def end_of(self, number: int, log_end_offset: int) -> int:
        """Return the offset after the segment's last one."""
        bases = self.base_offsets
        return bases[number + 1] if number + 1 < len(bases) else log_end_offset
