"""Which neighbouring segments become one.

Kafka: Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.indexes.offset_index import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SEGMENTS = 100
"""In a group: each is renamed on the loop. The next cleaning joins the groups."""


class SegmentSize(NamedTuple):
    """A segment's place and sizes; end_offset is that of the next one, or of the cleaning."""

    base_offset: int
    end_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SegmentSize], *, segment_bytes: int, index_bytes: int
) -> list[int]:
    """Return the sizes of the groups, each of which fits into one segment as it is."""
    groups: list[int] = []
    first = 0
    while first < len(segments):
        end = first + 1
        log_size, index_size, time_index_size = segments[first][2:]
        while end < len(segments) and end - first < MAX_SEGMENTS:
            one = segments[end]
            log_size += one.log_bytes
            index_size += one.index_bytes
            time_index_size += one.time_index_bytes
            too_large = log_size > segment_bytes or max(index_size, time_index_size) > index_bytes
            reach = one.end_offset - 1 - segments[first].base_offset
            if too_large or (one.log_bytes and reach > MAX_RELATIVE_OFFSET):
                break
            end += 1
        groups.append(end - first)
        first = end
    return groups
