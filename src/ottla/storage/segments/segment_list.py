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

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        if self._segments:
            self.active = self._segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def base_offsets(self) -> list[int]:
        """All base offsets, increasing."""
        return self._bases

    def number_for(self, offset: int) -> int:
        """Return the number of the segment that may hold offset, -1 when it precedes all."""
        return bisect_right(self._bases, offset) - 1

    def add(self, segment: Segment) -> None:
        """Add a segment after all others; it becomes the active one."""
        assert not self._bases or segment.base_offset > self._bases[-1]
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove(self, segments: Iterable[Segment]) -> None:
        """Remove segments from the list; the caller removes their files."""
        removed = {segment.base_offset for segment in segments}
        self._segments = [one for one in self._segments if one.base_offset not in removed]
        self._bases = [segment.base_offset for segment in self._segments]
        if self._segments:
            self.active = self._segments[-1]

    def end_of(self, number: int, log_end_offset: int) -> int:
        """Return the offset after the segment's last one."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset
