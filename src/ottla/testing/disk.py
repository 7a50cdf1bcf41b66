"""A disk in memory that forgets: what was not synced may be lost, torn or out of order.

It implements the log's Directory protocol. A `crash` keeps what was synced and, decided by the
seed, any part of the rest: single writes may be missing or cut at any byte, lengths may be old,
names may be missing or still be the old ones, in the order per directory in which they were made.
Every call that changes something is numbered; faults are asked for by number or by a predicate.

Kafka: none; after FoundationDB's and TigerBeetle's simulated storage.
"""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from ottla.types import Buffer


UNLIMITED = 1 << 40


class SimulatedCrash(BaseException):
    """The power went; not an OSError, so that nothing on the way handles it."""


class Call(NamedTuple):
    """One call that changes the disk: its number, kind ("append", "sync", …) and path."""

    number: int
    kind: str
    path: str


class Fault(NamedTuple):
    """What happens at a call that `matches`: an errno, or a crash when it is 0."""

    matches: Callable[[Call], bool]
    error_number: int
    partial: bool
    times: int


class _Change(NamedTuple):
    """A write at a position, or with data None a cut to that position."""

    position: int
    data: bytes | None


class _Content:
    """An inode: what readers see, what is durable, and the changes in between."""

    __slots__ = ("changes", "data", "durable", "modified_ms")

    def __init__(self, data: bytes = b"", modified_ms: int = 0) -> None:
        self.modified_ms = modified_ms
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.changes: list[_Change] = []

    def write(self, position: int, data: bytes) -> None:
        _apply(self.data, _Change(position, data))
        self.changes.append(_Change(position, data))

    def truncate(self, size: int) -> None:
        _apply(self.data, _Change(size, None))
        self.changes.append(_Change(size, None))

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.changes.clear()

    def after_crash(self, rng: Random) -> _Content:
        """Lose a suffix of the changes, or any of them, and tear one."""
        data = bytearray(self.durable)
        changes = self.changes
        if changes and rng.random() < 0.5:
            changes = changes[: rng.randrange(len(changes) + 1)]
            for number, change in enumerate(changes):
                last = number == len(changes) - 1
                _apply(data, _torn(change, rng) if last else change)
        else:
            for change in changes:
                roll = rng.random()
                if roll < 0.6:
                    _apply(data, change)
                elif roll < 0.7:
                    _apply(data, _torn(change, rng))
        return _Content(bytes(data), self.modified_ms)


def _apply(data: bytearray, change: _Change) -> None:
    position = change.position
    if change.data is None:
        if position <= len(data):
            del data[position:]
        else:
            data.extend(bytes(position - len(data)))
        return
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(change.data)] = change.data


def _torn(change: _Change, rng: Random) -> _Change:
    if change.data is None:
        return change
    return _Change(change.position, change.data[: rng.randrange(len(change.data) + 1)])


class _Folder:
    """A directory: names now, names that are durable, and the renames in between."""

    __slots__ = ("changes", "durable", "is_removed", "names")

    def __init__(self) -> None:
        self.is_removed = False
        self.names: dict[str, _Content | _Folder] = {}
        self.durable: dict[str, _Content | _Folder] = {}
        self.changes: list[tuple[str, _Content | _Folder | None]] = []

    def put(self, name: str, entry: _Content | _Folder | None) -> None:
        """Set or, with None, remove a name."""
        self.change([(name, entry)])

    def change(self, changes: list[tuple[str, _Content | _Folder | None]]) -> None:
        for name, entry in changes:
            if entry is None:
                self.names.pop(name, None)
            else:
                self.names[name] = entry
        self.changes.extend(changes)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()

    def after_crash(self, rng: Random) -> _Folder:
        """Keep the changes of names up to some point: a journal keeps their order."""
        names = dict(self.durable)
        kept = rng.randrange(len(self.changes) + 1)
        while 0 < kept < len(self.changes) and self._splits_rename(kept):
            kept += 1
        for name, entry in self.changes[:kept]:
            if entry is None:
                names.pop(name, None)
            else:
                names[name] = entry
        folder = _Folder()
        for name in sorted(names):
            folder.names[name] = names[name].after_crash(rng)
        folder.durable = dict(folder.names)
        return folder

    def _splits_rename(self, at: int) -> bool:
        """Whether a crash here would show a renamed entry under neither or both names."""
        return self.changes[at][1] is None and self.changes[at - 1][1] is not None


class SimulatedFile:
    """A handle; dead after a crash."""

    __slots__ = ("_content", "_disk", "_end", "_life", "_path")

    def __init__(self, disk: SimulatedDisk, path: str, content: _Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._end = len(content.data)
        self._life = disk.life

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end, all of it unless a fault cuts it short."""
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._write("append", self._end, data)
        self._end += len(data)
        return len(data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write at position."""
        self._write("write", position, bytes(data))
        self._end = max(self._end, position + len(data))

    def _write(self, kind: str, position: int, data: bytes) -> None:
        self._check()
        fault = self._disk.count(kind, self._path, len(data))
        if fault is not None:
            if fault.partial and data:
                part = data[: self._disk.rng.randrange(len(data))]
                self._content.write(position, part)
                if kind == "append":
                    self._end += len(part)
            self._disk.strike(fault)
        self._content.write(position, data)
        self._content.modified_ms = self._disk.now_ms

    def _check(self) -> None:
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "the handle is from before the crash", self._path)

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes that are there."""
        self._check()
        self._disk.count_read(self._path)
        return bytes(self._content.data[position : position + size])

    def is_cached(self, position: int, size: int) -> bool:
        """Say yes where there are bytes."""
        return position + size <= len(self._content.data)

    def size(self) -> int:
        """Return the length."""
        self._check()
        return len(self._content.data)

    def truncate(self, size: int) -> None:
        """Cut or grow."""
        self._check()
        self._disk.change("truncate", self._path)
        self._content.truncate(size)
        self._content.modified_ms = self._disk.now_ms
        self._end = size

    def sync(self) -> None:
        """Make durable; a failing sync loses what it should have kept, as on Linux."""
        self._check()
        fault = self._disk.count("sync", self._path, 0)
        if fault is not None:
            self._content.changes.clear()
            self._disk.strike(fault)
        self._content.sync()

    def send_to(self, sock: socket.socket, position: int, size: int) -> int:
        """Send bytes; return how many the socket took."""
        return sock.send(self.read(position, size))

    def pin(self) -> None:
        """Do nothing: handles are never reused."""

    def unpin(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: a closed file opens itself again."""

    def moved(self, path: str) -> None:
        """Take note of the new name."""
        self._path = path


class SimulatedOpenDirectory:
    """A directory held open; dead after a crash."""

    __slots__ = ("_disk", "_folder", "_life", "_path")

    def __init__(self, disk: SimulatedDisk, path: str, folder: _Folder) -> None:
        self._disk = disk
        self._path = path
        self._folder = folder
        self._life = disk.life

    def _file(self, name: str) -> SimulatedFile:
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "the handle is from before the crash", self._path)
        entry = self._folder.names.get(name)
        if self._folder.is_removed or not isinstance(entry, _Content):
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return SimulatedFile(self._disk, f"{self._path}/{name}", entry)

    def write_file(self, name: str, data: Buffer) -> None:
        """Make a file, or replace what it holds: each step a call that may fail."""
        if name not in self._folder.names and not self._folder.is_removed:
            self._disk.change("create", f"{self._path}/{name}")
            self._folder.put(name, _Content())
        file = self._file(name)
        file.truncate(0)
        file.write_at(0, data)

    def sync_file(self, name: str) -> None:
        """Make content and length durable."""
        self._file(name).sync()

    def rename(self, old: str, new: str) -> None:
        """Move, over an existing file."""
        self._file(old)
        self._disk.change("rename", f"{self._path}/{new}")
        self._folder.change([(new, self._folder.names[old]), (old, None)])

    def sync(self) -> None:
        """Make the names inside durable."""
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "the handle is from before the crash", self._path)
        self._disk.change("sync_directory", self._path)
        self._folder.sync()

    def close(self) -> None:
        """Do nothing: handles are never reused."""


class SimulatedLock:
    """A held lock."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """Let it go."""
        self._disk.locks.discard(self._path)


class SimulatedDisk:
    """The whole disk, itself the root Directory. Same seed, same calls: same outcome."""

    def __init__(self, seed: int = 0, *, capacity_bytes: int = UNLIMITED) -> None:
        self.rng = Random(seed)  # noqa: S311 - repeatable on purpose
        self.capacity_bytes = capacity_bytes
        self.now_ms = 0
        """What files get as the time of their last change; moved by hand."""
        self.calls = 0
        """Changing calls so far."""
        self.reads = 0
        self.life = 0
        self.locks: set[str] = set()
        self.trace: list[Call] | None = None
        self._faults: list[Fault] = []
        self._root = _Folder()

    # Faults

    def fail(
        self,
        matches: Callable[[Call], bool],
        error_number: int = errno.EIO,
        *,
        partial: bool = True,
        times: int = 1,
    ) -> None:
        """Let the next `times` calls that match fail; appends leave a part with partial."""
        self._faults.append(Fault(matches, error_number, partial, times))

    def fail_at(self, number: int, error_number: int = errno.EIO, *, partial: bool = True) -> None:
        """Let the changing call of this number fail."""
        self.fail(lambda call: call.number == number, error_number, partial=partial)

    def crash_at(self, number: int) -> None:
        """Raise SimulatedCrash at the changing call of this number, half-way through a write."""
        self.fail(lambda call: call.number == number, 0)

    def heal(self) -> None:
        """Forget all faults that did not strike yet."""
        self._faults.clear()

    def count(self, kind: str, path: str, size: int) -> Fault | None:
        """Take a number for a call and return the fault that strikes it."""
        self.calls += 1
        call = Call(self.calls, kind, path)
        if self.trace is not None:
            self.trace.append(call)
        for place, fault in enumerate(self._faults):
            if fault.matches(call):
                if fault.times <= 1:
                    del self._faults[place]
                else:
                    self._faults[place] = fault._replace(times=fault.times - 1)
                return fault
        if (
            size
            and self.capacity_bytes < UNLIMITED
            and self.used_bytes() + size > self.capacity_bytes
        ):
            return Fault(lambda _: True, errno.ENOSPC, partial=True, times=1)
        return None

    def count_read(self, path: str) -> None:
        """Count a read; faults match it as kind "read" without a number."""
        self.reads += 1
        for place, fault in enumerate(self._faults):
            if fault.matches(Call(-1, "read", path)):
                del self._faults[place]
                self.strike(fault)

    def change(self, kind: str, path: str) -> None:
        """Take a number for a call that writes no bytes, or fail it."""
        fault = self.count(kind, path, 0)
        if fault is not None:
            self.strike(fault)

    def strike(self, fault: Fault) -> None:
        """Raise what the fault says."""
        if fault.error_number == 0:
            raise SimulatedCrash
        raise OSError(fault.error_number, f"simulated {errno.errorcode[fault.error_number]}")

    def crash(self) -> None:
        """Cut the power: all handles and locks die, unsynced bytes and names are at risk."""
        self._root = self._root.after_crash(self.rng)
        self.life += 1
        self.locks.clear()
        self._faults.clear()

    def kill(self) -> None:
        """End the process only: handles and locks die, every byte written stays."""
        self.life += 1
        self.locks.clear()
        self._faults.clear()

    def used_bytes(self) -> int:
        """Return the sum of all files' bytes that are not holes."""
        return _used(self._root)

    # Directory

    def _folder(self, path: str) -> _Folder:
        folder = self._root
        for name in path.split("/") if path else ():
            entry = folder.names.get(name)
            if not isinstance(entry, _Folder):
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            folder = entry
        return folder

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    def _file(self, path: str) -> _Content:
        folder, name = self._parent(path)
        entry = folder.names.get(name)
        if not isinstance(entry, _Content):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return entry

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """Return a handle, making the file when asked to."""
        folder, name = self._parent(path)
        if create and name not in folder.names:
            self.change("create", path)
            folder.put(name, _Content())
        return SimulatedFile(self, path, self._file(path))

    def open_directory(self, path: str) -> SimulatedOpenDirectory:
        """Return a handle of a directory."""
        return SimulatedOpenDirectory(self, path, self._folder(path))

    def make_file(self, path: str, size: int) -> None:
        """Make a file of zeros."""
        file = self.open(path, create=True)
        file.truncate(0)
        if size:
            file.truncate(size)

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        """Write into a file, made when missing."""
        self.open(path, create=True).write_at(position, data)

    def exists(self, path: str) -> bool:
        """Say whether the name is there."""
        try:
            folder, name = self._parent(path)
        except FileNotFoundError:
            return False
        return name in folder.names

    def is_directory(self, path: str) -> bool:
        """Say whether the name is a directory."""
        folder, name = self._parent(path)
        return isinstance(folder.names.get(name), _Folder)

    def list(self, path: str = "") -> list[str]:
        """Return the names inside, sorted."""
        return sorted(self._folder(path).names)

    def make(self, path: str) -> None:
        """Create a directory."""
        folder, name = self._parent(path)
        if name not in folder.names:
            self.change("make", path)
            folder.put(name, _Folder())

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._file(path)
        self.change("remove", path)
        folder, name = self._parent(path)
        folder.put(name, None)

    def remove_tree(self, path: str) -> None:
        """Remove a directory."""
        folder, name = self._parent(path)
        entry = folder.names.get(name)
        if entry is not None:
            self.change("remove", path)
            folder.put(name, None)
            if isinstance(entry, _Folder):
                entry.is_removed = True

    def rename(self, old: str, new: str) -> None:
        """Move, over an existing file."""
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        entry = source.names.get(old_name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self.change("rename", new)
        if source is target:
            source.change([(new_name, entry), (old_name, None)])
        else:
            target.put(new_name, entry)
            source.put(old_name, None)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""
        content = self._file(old)
        self.change("link", new)
        folder, name = self._parent(new)
        folder.put(name, content)

    def sync(self, path: str = "") -> None:
        """Make the names inside durable."""
        folder = self._folder(path)
        self.change("sync_directory", path)
        folder.sync()

    def size(self, path: str) -> int:
        """Return a file's length."""
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        """Return when a file was written to last, by `now_ms`."""
        return self._file(path).modified_ms

    def free_space(self) -> int:
        """Return what the capacity leaves."""
        return self.capacity_bytes - self.used_bytes()

    def total_space(self) -> int:
        """Return the capacity."""
        return self.capacity_bytes

    def lock(self, path: str) -> SimulatedLock:
        """Take the lock."""
        self.open(path, create=True)
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.locks.add(path)
        return SimulatedLock(self, path)

    def read_file(self, path: str) -> bytes:
        """Return a file's content."""
        content = self._file(path)
        self.count_read(path)
        return bytes(content.data)

    def write_file_atomically(
        self, path: str, data: Buffer, *, mode: int = 0o644, sync: bool = True
    ) -> None:
        """Write beside, sync, rename over, sync the parent: each a call that may fail."""
        assert mode & 0o400, "somebody must be able to read it"
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.write_at(0, data)
        if sync:
            file.sync()
        self.rename(temporary, path)
        if sync:
            self.sync(path.rpartition("/")[0])


def _used(folder: _Folder) -> int:
    total = 0
    for entry in folder.names.values():
        total += _used(entry) if isinstance(entry, _Folder) else len(entry.data.rstrip(b"\0"))
    return total
