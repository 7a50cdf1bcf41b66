"""Data structures that can be read at, and reverted to, earlier log offsets."""

from ottla.timeline.snapshot_registry import LATEST, SnapshotRegistry
from ottla.timeline.timeline_dict import TimelineDict
from ottla.timeline.timeline_object import TimelineObject

__all__ = [
    "LATEST",
    "SnapshotRegistry",
    "TimelineDict",
    "TimelineObject",
]
