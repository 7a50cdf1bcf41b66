"""What no power cut can take from a simulated disk: end of the metadata log, vote.

Read straight from the disk's inodes, so that the code under test has no say in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.raft.log_check import METADATA_LOG
from ottla.raft.quorum_state import QUORUM_STATE, ElectionState, decode_quorum_state
from ottla.raft.snapshot import parse_snapshot_name
from ottla.testing.inodes import DirectoryNode, FileNode

if TYPE_CHECKING:
    from ottla.testing.disk import SimulatedDisk

_BATCH_HEAD_BYTES = 27


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
    changed = (one.position for one in file.changes if one.data is None or one.data != one.replaced)
    return min([len(file.data), *changed])  # after a failing flush, what it had is written again


def has_unsynced_records(disk: SimulatedDisk) -> bool:
    """Whether the log has bytes or segments that a power cut can take."""
    directory = disk._root.names.get(METADATA_LOG)
    assert isinstance(directory, DirectoryNode)
    return any(
        isinstance(file, FileNode)
        and name.endswith(".log")
        and bool(file.data)
        and (_prefix_bytes(file) < len(file.data) or directory.durable.get(name) is not file)
        for name, file in directory.names.items()
    )


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


def _batches(disk: SimulatedDisk) -> list[DurableBatch]:
    """Return the durable batches, newest first."""
    batches = []
    files = _durable_files(disk)
    for name in sorted(name for name in files if name.endswith(".log")):
        data, position = files[name].data, 0
        end = _prefix_bytes(files[name])
        while position + _BATCH_HEAD_BYTES <= end:
            size = 12 + int.from_bytes(data[position + 8 : position + 12])
            if size <= _BATCH_HEAD_BYTES or position + size > end:
                break
            base = int.from_bytes(data[position : position + 8])
            delta = int.from_bytes(data[position + 23 : position + 27])
            epoch = int.from_bytes(data[position + 12 : position + 16])
            batches.append(DurableBatch(base, base + delta + 1, epoch))
            position += size
    return batches[::-1]


def durable_election(disk: SimulatedDisk) -> ElectionState:
    """Return the election state that a node finds whatever happens to it."""
    file = _durable_files(disk).get(QUORUM_STATE)
    if file is None or file.changes:
        return ElectionState()
    return decode_quorum_state(bytes(file.data))
