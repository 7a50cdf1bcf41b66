"""Files and directories of a simulated disk: durable state and later changes.

A change keeps what it replaced, so that `sync` costs what was written since the last one and a
crash can go back to the durable state before it replays any part of the changes.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random


class _Change(NamedTuple):
    """A write at a position, or with data None a cut or growth to that length."""

    position: int
    data: bytes | None
    old_length: int
    old_end: int
    replaced: bytes
    """The bytes from `position` on that it overwrote or cut off."""


class FileNode:
    """An inode: what readers see, and the changes that are not durable.

    Zeros behind `data` up to `length` are a hole: files of preallocated zeros cost nothing.
    """

    __slots__ = ("changes", "data", "is_linked", "length", "lost", "modified_ms")

    def __init__(
        self, data: bytes | bytearray = b"", modified_ms: int = 0, length: int = 0
    ) -> None:
        self.modified_ms = modified_ms
        self.is_linked = False
        """Whether it was ever given a second name; only then its names are worth counting."""
        self.data = bytearray(data)
        self.length = max(length, len(data))
        self.changes: list[_Change] = []
        self.lost: tuple[bytearray, int] | None = None
        """After a failed fsync: what the disk has, in place of what readers see."""

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes that are there."""
        part = bytes(self.data[position : position + size])
        missing = min(position + size, self.length) - position - len(part)
        return part + bytes(missing) if missing > 0 else part

    def write(self, position: int, data: bytes) -> None:
        """Overwrite or extend."""
        replaced = bytes(self.data[position : position + len(data)])
        self.changes.append(_Change(position, data, self.length, len(self.data), replaced))
        self.length = _apply(self.data, self.length, position, data)

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros."""
        cut = bytes(self.data[size:])
        self.changes.append(_Change(size, None, self.length, len(self.data), cut))
        self.length = _apply(self.data, self.length, size, None)

    def sync(self) -> None:
        """Make all changes durable."""
        self.changes.clear()

    def lose_changes(self) -> None:
        """Forget which bytes are not durable, as a failing fsync does; a crash still loses them."""
        if self.changes:
            old, length = self.lost = self._durable()
            self.changes = [
                _Change(length, None, length, len(old), b""),
                _Change(0, bytes(old), length, len(old), bytes(old)),
            ]

    def drop_cached(self) -> None:
        """Make all changes durable but those that a failed fsync lost; readers lose them, too."""
        if self.lost is not None:
            self.data, self.length = self.lost
            self.lost = None
        self.sync()

    def _durable(self) -> tuple[bytearray, int]:
        """Return content and length without the changes."""
        data, length = bytearray(self.data), self.length
        for change in reversed(self.changes):
            data[change.position : change.position + len(change.replaced)] = change.replaced
            del data[change.old_end :]
            length = change.old_length
        return data, length

    def flip_bit(self, position: int, bit: int) -> None:
        """Flip a bit of the durable content."""
        self.data[position] ^= 1 << bit

    def after_crash(self, rng: Random) -> FileNode:
        """Lose a suffix of the changes, or any of them, and tear one."""
        if not self.changes:
            return FileNode(self.data, self.modified_ms, self.length)
        data, length = self._durable()
        changes = self.changes
        if rng.random() < 0.5:
            changes = changes[: rng.randrange(len(changes) + 1)]
            for number, change in enumerate(changes):
                is_last = number == len(changes) - 1
                kept = _torn(change, rng) if is_last else change.data
                length = _apply(data, length, change.position, kept)
        else:
            for change in changes:
                roll = rng.random()
                if roll < 0.6:
                    length = _apply(data, length, change.position, change.data)
                elif roll < 0.7:
                    length = _apply(data, length, change.position, _torn(change, rng))
        return FileNode(data, self.modified_ms, length)


def _apply(data: bytearray, length: int, position: int, new: bytes | None) -> int:
    """Carry out a change; return the file's length after it."""
    if new is None:
        del data[position:]
        return position
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(new)] = new
    return max(length, position + len(new))


def _torn(change: _Change, rng: Random) -> bytes | None:
    if change.data is None:
        return None
    return change.data[: rng.randrange(len(change.data) + 1)]


class DirectoryNode:
    """A directory: names now, names that are durable, and the renames in between."""

    __slots__ = ("changes", "durable", "is_removed", "names")

    def __init__(self) -> None:
        self.is_removed = False
        self.names: dict[str, FileNode | DirectoryNode] = {}
        self.durable: dict[str, FileNode | DirectoryNode] = {}
        self.changes: list[tuple[str, FileNode | DirectoryNode | None]] = []

    def put(self, name: str, entry: FileNode | DirectoryNode | None) -> None:
        """Set or, with None, remove a name."""
        self.change([(name, entry)])

    def change(self, changes: list[tuple[str, FileNode | DirectoryNode | None]]) -> None:
        """Change several names; a crash may fall between them."""
        _rename(self.names, changes)
        self.changes.extend(changes)

    def sync(self) -> None:
        """Make all names durable."""
        _rename(self.durable, self.changes)
        self.changes.clear()

    def after_crash(self, rng: Random) -> DirectoryNode:
        """Keep the changes of names up to some point: a journal keeps their order."""
        names = dict(self.durable)
        kept = rng.randrange(len(self.changes) + 1)
        while 0 < kept < len(self.changes) and self._splits_rename(kept):
            kept += 1
        _rename(names, self.changes[:kept])
        found = DirectoryNode()
        for name in sorted(names):
            found.names[name] = names[name].after_crash(rng)
        found.durable = dict(found.names)
        return found

    def _splits_rename(self, at: int) -> bool:
        """Whether a crash here would show a renamed entry under neither or both names."""
        return self.changes[at][1] is None and self.changes[at - 1][1] is not None


def _rename(
    names: dict[str, FileNode | DirectoryNode],
    changes: list[tuple[str, FileNode | DirectoryNode | None]],
) -> None:
    for name, entry in changes:
        if entry is None:
            names.pop(name, None)
        else:
            names[name] = entry
