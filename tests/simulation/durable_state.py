"""What no power cut can take from a simulated disk: end of the metadata log, vote.

Read straight from the disk's inodes, so that the code under test has no say in it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.raft.quorum_state import ElectionState, decode_quorum_state
from ottla.raft.snapshot import parse_snapshot_name
from ottla.storage.layout import METADATA_LOG, QUORUM_STATE
from ottla.testing.inodes import DirectoryNode, FileNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.testing.disk import SimulatedDisk

_BATCH_HEAD = Struct(">qii7xi")
"""Base offset, length, leader epoch, last offset delta."""
_LENGTH_END = 12


class DurableBatch(NamedTuple):
    """Where a batch begins and ends, and its epoch."""

    base_offset: int
    next_offset: int
    leader_epoch: int


def _durable_files(disk: SimulatedDisk) -> dict[str, FileNode]:
    """Return the files of the metadata log whose names are durable."""
    found = disk._root.durable.get(METADATA_LOG)
    if not isinstance(found, DirectoryNode):
        return {}
    return {name: file for name, file in found.durable.items() if isinstance(file, FileNode)}


def _prefix_bytes(file: FileNode) -> int:
    """Return how many of a file's first bytes no power cut changes."""
    if not file.changes:
        return len(file.data)
    changed = (one.position for one in file.changes if one.data is None or one.data != one.replaced)
    return min([len(file.data), *changed])  # after a failing flush, what it had is written again


def has_unsynced_records(disk: SimulatedDisk) -> bool:
    """Whether the log has bytes or segments that a power cut can take."""
    directory = disk._root.names.get(METADATA_LOG)
    assert isinstance(directory, DirectoryNode)
    for name, file in directory.names.items():
        if name.endswith(".log") and isinstance(file, FileNode) and file.data:
            if directory.durable.get(name) is not file:
                return True
            if file.changes and _prefix_bytes(file) < len(file.data):
                return True
    return False


def has_unsynced_cut(disk: SimulatedDisk) -> bool:
    """Whether a power cut can bring back records that were cut off the log."""
    directory = disk._root.names.get(METADATA_LOG)
    assert isinstance(directory, DirectoryNode)
    return any(
        change.data is None
        for name, file in directory.names.items()
        if isinstance(file, FileNode) and name.endswith(".log")
        for change in file.changes
    )


def holds_durably(disk: SimulatedDisk, end_offset: int, epoch: int) -> bool:
    """Whether the disk holds the record before an offset, of this epoch, whatever happens."""
    if end_offset == 0:
        return True
    for batch in _batches(disk):
        if batch.base_offset < end_offset <= batch.next_offset:
            return batch.leader_epoch == epoch
    return any(
        snapshot_id is not None and snapshot_id.offset >= end_offset
        for snapshot_id in map(parse_snapshot_name, _durable_files(disk))
    )


def _batches(disk: SimulatedDisk) -> Iterator[DurableBatch]:
    """Yield the durable batches, newest first."""
    files = _durable_files(disk)
    for name in sorted((name for name in files if name.endswith(".log")), reverse=True):
        yield from reversed(_batches_of(files[name]))


def _batches_of(file: FileNode) -> list[DurableBatch]:
    """Return the durable batches of a segment."""
    batches = []
    data, position, end = file.data, 0, _prefix_bytes(file)
    while position + _BATCH_HEAD.size <= end:
        base, length, epoch, delta = _BATCH_HEAD.unpack_from(data, position)
        size = _LENGTH_END + length
        if size <= _BATCH_HEAD.size or position + size > end:
            break
        batches.append(DurableBatch(base, base + delta + 1, epoch))
        position += size
    return batches


def durable_election(disk: SimulatedDisk) -> ElectionState:
    """Return the election state that a node finds whatever happens to it."""
    file = _durable_files(disk).get(QUORUM_STATE)
    if file is None or file.changes:
        return ElectionState()
    return decode_quorum_state(bytes(file.data))
