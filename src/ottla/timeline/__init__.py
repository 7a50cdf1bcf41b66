"""Data structures that can be read at, and reverted to, earlier log offsets."""

from ottla.timeline.snapshot_registry import LATEST_EPOCH, SnapshotRegistry
from ottla.timeline.timeline_dict import TimelineDict
from ottla.timeline.timeline_object import TimelineObject
from ottla.timeline.timeline_set import TimelineSet

__all__ = [
    "LATEST_EPOCH",
    "SnapshotRegistry",
    "TimelineDict",
    "TimelineObject",
    "TimelineSet",
]
