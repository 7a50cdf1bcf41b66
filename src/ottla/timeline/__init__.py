"""Data structures that can be read at, and reverted to, earlier log offsets."""

from ottla.timeline.snapshot_registry import LATEST_EPOCH, SnapshotRegistry
from ottla.timeline.structures import TimelineDict, TimelineObject, TimelineSet

__all__ = [
    "LATEST_EPOCH",
    "SnapshotRegistry",
    "TimelineDict",
    "TimelineObject",
    "TimelineSet",
]
