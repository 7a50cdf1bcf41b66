"""One segment in remote storage as its metadata describes it, and the states it passes.

Kafka: org.apache.kafka.server.log.remote.storage.{RemoteLogSegmentMetadata,
RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState}.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.types import Uuid


class SegmentState(IntEnum):
    """Kafka's names and numbers on disk."""

    COPY_SEGMENT_STARTED = 0
    """Its data may be there in part; an entry in this state is not read and not counted."""
    COPY_SEGMENT_FINISHED = 1
    """Its data is complete."""
    DELETE_SEGMENT_STARTED = 2
    """Its data may be gone in part; the deletion is repeated until it succeeds."""
    DELETE_SEGMENT_FINISHED = 3
    """Its data is gone, and its entry."""


MOVES: Final[dict[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({SegmentState.COPY_SEGMENT_STARTED}),
    SegmentState.COPY_SEGMENT_STARTED: frozenset(
        {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED}
    ),
    SegmentState.COPY_SEGMENT_FINISHED: frozenset({SegmentState.DELETE_SEGMENT_STARTED}),
    SegmentState.DELETE_SEGMENT_STARTED: frozenset({SegmentState.DELETE_SEGMENT_FINISHED}),
    SegmentState.DELETE_SEGMENT_FINISHED: frozenset(),
}
"""The legal moves; None is a segment without an entry. A state may also be written again."""


def is_legal(state: SegmentState | None, following: SegmentState) -> bool:
    """Whether a segment in this state may get the following one."""
    return state is following or following in MOVES[state]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """A segment of a partition in remote storage; it is known by `segment_id`."""

    topic_id: Uuid
    topic: str
    partition: int
    segment_id: Uuid
    start_offset: int
    end_offset: int
    """The offset of its last record, which belongs to it."""
    leader_epochs: tuple[tuple[int, int], ...]
    """Each epoch of its records and where it begins, the first at start_offset."""
    size_bytes: int
    max_timestamp_ms: int
    broker_id: int
    """The broker that wrote this state."""
    event_timestamp_ms: int
    """When that was."""
    state: SegmentState
    custom_metadata: bytes | None = None
    """What the storage manager wants to see again with each call."""
    is_transaction_index_empty: bool = False

    def updated(self, update: SegmentUpdate) -> RemoteSegment:
        """Return it in the state of an update, whose custom metadata replaces its own if any."""
        custom = update.custom_metadata
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            state=update.state,
            custom_metadata=self.custom_metadata if custom is None else custom,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUpdate:
    """A later state of a segment."""

    topic_id: Uuid
    topic: str
    partition: int
    segment_id: Uuid
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState
    custom_metadata: bytes | None = None
