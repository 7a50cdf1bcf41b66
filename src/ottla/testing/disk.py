"""A simulated disk in memory: unsynced data may be lost, torn or reordered by a crash.

It implements the log's Directory protocol. A `crash` keeps what was synced and, decided by the
seed, any part of the rest: single writes may be missing or cut at any byte, lengths may be old,
names may be missing or still be the old ones, in the order per directory in which they were made.
Every call that changes the disk is numbered; faults are selected by number or by a predicate.

Kafka: none; after FoundationDB's and TigerBeetle's simulated storage.
"""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.directory import FILE_MODE
from ottla.testing.inodes import DirectoryNode, FileNode

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from ottla.types import Buffer


UNLIMITED = 1 << 40


class SimulatedCrash(BaseException):
    """A simulated crash; not an OSError, so that no handler of disk errors catches it."""


class Call(NamedTuple):
    """One call that changes the disk: its number, kind ("append", "sync", …) and path."""

    number: int
    kind: str
    path: str


class Fault(NamedTuple):
    """The effect on a call that `matches`: an errno, or a crash if it is 0."""

    matches: Callable[[Call], bool]
    error_number: int
    partial: bool
    times: int


class SimulatedFile:
    """A handle; dead after a crash."""

    __slots__ = ("_content", "_disk", "_end", "_life", "_path", "volume")

    def __init__(self, disk: SimulatedDisk, path: str, content: FileNode) -> None:
        self._disk = self.volume = disk
        self._path = path
        self._content = content
        self._end = content.length
        self._life = disk.life

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end, all of it unless a fault cuts it short."""
        data = b"".join(buffers)
        self._write("append", self._end, data)
        self._end += len(data)
        return len(data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write at position."""
        self._write("write", position, bytes(data))
        self._end = max(self._end, position + len(data))

    def _write(self, kind: str, position: int, data: bytes) -> None:
        self._check()
        self._content = self._disk.own(self._path, self._content)
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
        data = self._content.read(position, size)
        self._disk.count_read(self._path, len(data))
        return data

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the bytes are there and, by `cold_probability`, in memory."""
        disk = self._disk
        if disk.cold_probability and disk.rng.random() < disk.cold_probability:
            return False
        return position + size <= self._content.length

    def size(self) -> int:
        """Return the length."""
        self._check()
        return self._content.length

    def truncate(self, size: int) -> None:
        """Cut or grow."""
        self._check()
        self._content = self._disk.own(self._path, self._content)
        self._disk.change("truncate", self._path, max(len(self._content.data) - size, 0))
        self._content.truncate(size)
        self._content.modified_ms = self._disk.now_ms
        self._end = size

    def sync(self) -> None:
        """Make durable; a failing sync loses what it should have kept, as on Linux."""
        self._check()
        fault = self._disk.count("sync", self._path, 0)
        if fault is not None:
            self._content.lose_changes()
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
        """Store the new name."""
        self._path = path


class SimulatedOpenDirectory:
    """A directory held open; dead after a crash."""

    __slots__ = ("_directory", "_disk", "_life", "_path")

    def __init__(self, disk: SimulatedDisk, path: str, directory: DirectoryNode) -> None:
        self._disk = disk
        self._path = path
        self._directory = directory
        self._life = disk.life

    def _file(self, name: str) -> SimulatedFile:
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "the handle is from before the crash", self._path)
        entry = self._directory.names.get(name)
        if self._directory.is_removed or not isinstance(entry, FileNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return SimulatedFile(self._disk, f"{self._path}/{name}", entry)

    def write_file(self, name: str, data: Buffer) -> None:
        """Make a file, or replace what it holds: each step a call that may fail."""
        if name not in self._directory.names and not self._directory.is_removed:
            self._disk.change("create", f"{self._path}/{name}")
            self._directory.put(name, FileNode())
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
        self._directory.change([(new, self._directory.names[old]), (old, None)])

    def sync(self) -> None:
        """Make the names inside durable."""
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "the handle is from before the crash", self._path)
        self._disk.change("sync_directory", self._path)
        self._directory.sync()

    def close(self) -> None:
        """Do nothing: handles are never reused."""


class SimulatedLock:
    """A held lock."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._life = disk.life

    def release(self) -> None:
        """Release the lock; no-op for a lock from before a crash."""
        if self._life == self._disk.life:
            self._disk.locks.discard(self._path)


class SimulatedDisk:
    """The whole disk, itself the root Directory. Same seed, same calls: same outcome."""

    def __init__(self, seed: int = 0, *, capacity_bytes: int = UNLIMITED) -> None:
        self.volume = self
        self.rng = Random(seed)  # noqa: S311 - repeatable on purpose
        self.capacity_bytes = capacity_bytes
        self.now_ms = 0
        """The modification time of changed files, in ms; set by the owner of the disk."""
        self.calls = 0
        """Changing calls so far."""
        self.reads = 0
        self.life = 0
        self.is_down = False
        """Whether a crash fault struck without a call of `crash` or `kill`: all calls fail."""
        self.on_crash: Callable[[], None] | None = None
        """Called when a crash strikes, before it is raised."""
        self.on_call: Callable[[str, str, int], None] | None = None
        """Called with kind, path and size of every operation, reads too; the size is that of what
        was written, read or freed."""
        self.cold_probability = 0.0
        """Probability that a read has to wait for the disk."""
        self.locks: set[str] = set()
        self.trace: list[Call] | None = None
        self._faults: list[Fault] = []
        self._root = DirectoryNode()

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
        """Remove all pending faults."""
        self._faults.clear()

    def count(self, kind: str, path: str, size: int, freed: int = 0) -> Fault | None:
        """Take a number for a call and return the fault that strikes it."""
        if self.is_down:
            raise SimulatedCrash
        self.calls += 1
        if self.on_call is not None:
            self.on_call(kind, path, size or freed)
        if self.trace is not None or self._faults:
            fault = self._fault_of(Call(self.calls, kind, path))
            if fault is not None:
                return fault
        if (
            size
            and self.capacity_bytes < UNLIMITED
            and self.used_bytes() + size > self.capacity_bytes
        ):
            return Fault(lambda _: True, errno.ENOSPC, partial=True, times=1)
        return None

    def _fault_of(self, call: Call) -> Fault | None:
        """Return the fault that strikes a call, and take it off the list."""
        if self.trace is not None:
            self.trace.append(call)
        for place, fault in enumerate(self._faults):
            if fault.matches(call):
                if fault.times <= 1:
                    del self._faults[place]
                else:
                    self._faults[place] = fault._replace(times=fault.times - 1)
                return fault
        return None

    def count_read(self, path: str, size: int) -> None:
        """Count a read; faults match it as kind "read" without a number."""
        if self.is_down:
            raise SimulatedCrash
        self.reads += 1
        if self.on_call is not None:
            self.on_call("read", path, size)
        for place, fault in enumerate(self._faults):
            if fault.matches(Call(-1, "read", path)):
                del self._faults[place]
                self.strike(fault)

    def change(self, kind: str, path: str, freed: int = 0) -> None:
        """Take a number for a call that writes no bytes and may free some, or fail it."""
        fault = self.count(kind, path, 0, freed)
        if fault is not None:
            self.strike(fault)

    def strike(self, fault: Fault) -> None:
        """Raise the error of the fault."""
        if fault.error_number == 0:
            self.is_down = True
            if self.on_crash is not None:
                self.on_crash()
            raise SimulatedCrash
        raise OSError(fault.error_number, f"simulated {errno.errorcode[fault.error_number]}")

    def crash(self) -> None:
        """Simulate a power failure: handles and locks become invalid, unsynced data may be lost."""
        self._root = self._root.after_crash(self.rng)
        self.life += 1
        self.is_down = False
        self.locks.clear()
        self._faults.clear()

    def kill(self) -> None:
        """Simulate the end of the process: handles and locks become invalid, written data stays."""
        self.life += 1
        self.is_down = False
        self.locks.clear()
        self._faults.clear()

    def erase(self) -> None:
        """Replace the disk by an empty one."""
        self.kill()
        self._root = DirectoryNode()

    def files(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return sorted(_paths(self._root, ""))

    def content(self, path: str) -> bytes:
        """Return what a file holds, without a file operation."""
        return bytes(self._file(path).data)

    def named_content(self, path: str) -> bytes:
        """Return the content of the file that has this name durably; nothing without one."""
        directory = self._root
        *parents, name = path.split("/")
        for parent in parents:
            entry = directory.durable.get(parent)
            if not isinstance(entry, DirectoryNode):
                return b""
            directory = entry
        file = directory.durable.get(name)
        return bytes(file.data) if isinstance(file, FileNode) else b""

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flip one bit of a file."""
        self._file(path).flip_bit(position, bit)

    def used_bytes(self) -> int:
        """Return the sum of all files' bytes that are not holes."""
        return _used(self._root)

    # Directory

    def _directory(self, path: str) -> DirectoryNode:
        directory = self._root
        for name in path.split("/") if path else ():
            entry = directory.names.get(name)
            if not isinstance(entry, DirectoryNode):
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            directory = entry
        return directory

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _file(self, path: str) -> FileNode:
        directory, name = self._parent(path)
        entry = directory.names.get(name)
        if not isinstance(entry, FileNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return entry

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """Return a handle; with create, missing files are created."""
        directory, name = self._parent(path)
        if create and name not in directory.names:
            self.change("create", path)
            directory.put(name, FileNode())
        return SimulatedFile(self, path, self._file(path))

    def open_directory(self, path: str) -> SimulatedOpenDirectory:
        """Return a handle of a directory."""
        return SimulatedOpenDirectory(self, path, self._directory(path))

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
        """Whether the name exists."""
        try:
            directory, name = self._parent(path)
        except FileNotFoundError:
            return False
        return name in directory.names

    def is_directory(self, path: str) -> bool:
        """Whether the name is a directory."""
        directory, name = self._parent(path)
        return isinstance(directory.names.get(name), DirectoryNode)

    def list(self, path: str = "") -> list[str]:
        """Return the names inside, sorted."""
        return sorted(self._directory(path).names)

    def make(self, path: str) -> None:
        """Create a directory."""
        directory, name = self._parent(path)
        if name not in directory.names:
            self.change("make", path)
            directory.put(name, DirectoryNode())

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.change("remove", path, len(self._file(path).data))
        directory, name = self._parent(path)
        directory.put(name, None)

    def drop_cached(self, path: str) -> None:
        """Flush a file and drop it from memory: what a failed sync lost is no longer read."""
        self.change("sync", path)
        self._file(path).drop_cached()

    def remove_tree(self, path: str) -> None:
        """Remove a directory."""
        directory, name = self._parent(path)
        entry = directory.names.get(name)
        if entry is not None:
            self.change("remove", path, _length(entry))
            directory.put(name, None)
            if isinstance(entry, DirectoryNode):
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
        directory, name = self._parent(new)
        directory.put(name, content)
        content.is_linked = True

    def own(self, path: str, content: FileNode) -> FileNode:
        """Return a file's content, a durable copy under its name when it has other names."""
        if not content.is_linked or _links(self._root, content) < 2:
            return content
        self.change("copy", path)
        copy = FileNode(content.data, content.modified_ms, content.length)
        directory, name = self._parent(path)
        directory.put(name, copy)
        directory.sync()
        return copy

    def sync(self, path: str = "") -> None:
        """Make the names inside durable."""
        directory = self._directory(path)
        self.change("sync_directory", path)
        directory.sync()

    def size(self, path: str) -> int:
        """Return a file's length."""
        return self._file(path).length

    def modified_ms(self, path: str) -> int:
        """Return when a file was written to last, by `now_ms`."""
        return self._file(path).modified_ms

    def free_space(self) -> int:
        """Return what the capacity leaves."""
        if self.capacity_bytes >= UNLIMITED:
            return self.capacity_bytes
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
        self.count_read(path, content.length)
        return content.read(0, content.length)

    def write_file_atomically(
        self, path: str, data: Buffer, *, mode: int = FILE_MODE, sync: bool = True
    ) -> None:
        """Write a temporary file, sync, rename, sync the parent: each call may fail."""
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


def _used(directory: DirectoryNode) -> int:
    total = 0
    for entry in directory.names.values():
        total += _used(entry) if isinstance(entry, DirectoryNode) else len(entry.data.rstrip(b"\0"))
    return total


def _links(directory: DirectoryNode, content: FileNode) -> int:
    return sum(
        _links(entry, content) if isinstance(entry, DirectoryNode) else entry is content
        for entry in directory.names.values()
    )


def _length(entry: DirectoryNode | FileNode) -> int:
    if isinstance(entry, DirectoryNode):
        return sum(map(_length, entry.names.values()))
    return len(entry.data)


def _paths(directory: DirectoryNode, prefix: str) -> list[str]:
    found = []
    for name, entry in directory.names.items():
        path = f"{prefix}{name}"
        if isinstance(entry, DirectoryNode):
            found += _paths(entry, f"{path}/")
        else:
            found.append(path)
    return found
