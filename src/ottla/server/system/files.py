"""The real disk: the only module that makes operating-system file calls.

A file with several names (hard links: branches, backups) is never changed in place: the change
goes to a copy, which takes the name.

Hot path: `RealFile.append`, `RealFile.is_cached` and `RealFile.read` (benchmarks/log.py).
Descriptors are opened on first use, so that a node of ten thousand idle partitions holds none.
Kafka: org.apache.kafka.common.record.FileRecords, org.apache.kafka.common.utils.Utils, FileLock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.storage.directory import FILE_MODE
from ottla.storage.layout import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from ottla.types import Buffer

PROBE_INTERVAL_BYTES = 64 * 1024
RECENT_BYTES = 32 * 1024 * 1024
"""Bytes before the end of a file that count as cached when this process has written them."""
COPY_BYTES = 1 << 20
DIRECTORY_MODE = 0o750
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


def make_directory(path: str) -> None:
    """Create a directory that other users of the machine cannot read, and its parents."""
    os.makedirs(path, DIRECTORY_MODE, exist_ok=True)


class RealFile:
    """A file that is opened on first use; changed only by its owner, the node's loop."""

    __slots__ = (
        "_closing",
        "_descriptor",
        "_end",
        "_is_owned",
        "_old_end",
        "_path",
        "_pins",
        "_prefix",
    )

    def __init__(self, prefix: str, path: str) -> None:
        self._prefix = prefix
        self._path = path
        self._descriptor = -1
        self._end = -1
        self._old_end = 0
        self._pins = 0
        self._closing = False
        self._is_owned = False
        """Whether the open file is known to have no other name."""

    @property
    def volume(self) -> str:
        """The root's path, as of its directory."""
        return self._prefix

    def _open(self) -> int:
        descriptor = os.open(self._prefix + self._path, os.O_RDWR | os.O_CLOEXEC)
        state = os.fstat(descriptor)
        self._end = self._old_end = state.st_size
        self._is_owned = state.st_nlink == 1
        self._descriptor = descriptor
        return descriptor

    def _own(self) -> None:
        """Copy the open file when it has other names: a branch or a backup may share it.

        The descriptor then is the copy's, also for workers that have pinned it.
        """
        descriptor, path = self._descriptor, self._prefix + self._path
        if os.fstat(descriptor).st_nlink > 1:
            copied = _copy_shared(descriptor, path)
            os.dup2(copied, descriptor, inheritable=False)
            os.close(copied)
            # last: when it fails, the next append must not go to the file of the other names
            _sync_parent(path)
        self._is_owned = True

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end with one system call where the system allows."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open()
        if not self._is_owned:
            self._own()
        if len(buffers) == 1:  # the common case, and cheaper without a vector
            expected = len(buffers[0])
            written = os.pwrite(descriptor, buffers[0], self._end)
        else:
            expected = sum(map(len, buffers))
            written = os.pwritev(descriptor, buffers, self._end)
        self._end += written
        if written != expected:
            self._append_rest(descriptor, buffers, written)
        return expected

    def _append_rest(self, descriptor: int, buffers: Sequence[Buffer], skip: int) -> None:
        """Append the bytes after the first `skip` ones, the rest of a short write."""
        for buffer in buffers:
            view = memoryview(buffer)
            if skip >= len(view):
                skip -= len(view)
                continue
            for written in _writes(descriptor, self._end, view[skip:], self._path):
                self._end += written
            skip = 0

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite or extend the file at position."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open()
        self._own()
        _write_whole(descriptor, position, data, self._path)
        self._end = max(self._end, position + len(data))

    def read(self, position: int, size: int) -> bytes:
        """Return up to size bytes at position; waits for the disk when they are not cached."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open()
        data = os.pread(descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        position += len(data)
        while missing and (data := os.pread(descriptor, missing, position)):
            parts.append(data)
            missing -= len(data)
            position += len(data)
        return b"".join(parts)

    def is_cached(self, position: int, size: int) -> bool:
        """Whether reads do not wait: probes one byte every 64 KiB and the last one.

        Recent appends are not probed. A system without such probes counts as not cached.
        """
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open()
        if position >= self._old_end and position >= self._end - RECENT_BYTES:
            return True
        end = min(position + size, self._end)
        if not _NOWAIT:
            return end <= position
        probe = bytearray(1)
        buffers = [probe]
        try:
            for at in range(position, end, PROBE_INTERVAL_BYTES):
                os.preadv(descriptor, buffers, at, _NOWAIT)
            if end > position:
                os.preadv(descriptor, buffers, end - 1, _NOWAIT)
        except OSError as error:
            if error.errno in _MISSES:
                return False
            raise
        return True

    def size(self) -> int:
        """Return the length in bytes, from memory when the file is open."""
        return self._end if self._descriptor >= 0 else os.stat(self._prefix + self._path).st_size

    def truncate(self, size: int) -> None:
        """Shorten or extend the file; an extension is sparse."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open()
        self._own()
        os.ftruncate(descriptor, size)
        self._end = size

    def sync(self) -> None:
        """Flush content and length; runs in a worker while the file is pinned."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open()
        os.fsync(descriptor)

    def send_to(self, sock: socket.socket, position: int, size: int) -> int:
        """Send bytes by sendfile; return the number that the socket took."""
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._open()
        return os.sendfile(sock.fileno(), descriptor, position, size)

    def pin(self) -> None:
        """Keep open until `unpin`: a worker must never use a descriptor that was reused.

        The last `unpin` closes a file that was closed before: it may have no other user.
        """
        if self._descriptor < 0:
            self._open()
            self._closing = True
        self._pins += 1

    def unpin(self) -> None:
        """Undo one `pin`; the last one closes the file after a `close` in between."""
        self._pins -= 1
        if self._closing and self._pins == 0:
            self.close()

    def close(self) -> None:
        """Close the descriptor, or leave it to the last `unpin`."""
        if self._pins:
            self._closing = True
            return
        self._closing = False
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def moved(self, path: str) -> None:
        """Set the file's new path, for when it is opened again."""
        self._path = path


def _copy_shared(descriptor: int, path: str) -> int:
    """Put a copy of an open file under its name; return the copy's descriptor.

    The other names keep the old content. A crash leaves the old file or the whole copy; which is
    certain once the parent is synced.
    """
    state = os.fstat(descriptor)
    temporary = path + TEMPORARY_SUFFIX
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    copied = os.open(temporary, flags, stat.S_IMODE(state.st_mode))
    try:
        position = 0
        while position < state.st_size and (data := os.pread(descriptor, COPY_BYTES, position)):
            _write_whole(copied, position, data, path)
            position += len(data)
        os.fsync(copied)
        os.utime(copied, ns=(state.st_atime_ns, state.st_mtime_ns))
        os.replace(temporary, path)
    except BaseException:
        os.close(copied)
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return copied


def _sync_parent(path: str) -> None:
    parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _remove_shared(path: str, directory: int | None = None) -> None:
    """Remove a name whose file has others, before a new file gets it."""
    with suppress(FileNotFoundError):
        if os.stat(path, dir_fd=directory).st_nlink > 1:
            os.unlink(path, dir_fd=directory)


def _writes(descriptor: int, position: int, data: Buffer, path: str) -> Iterator[int]:
    """Write at a position until all is written; yield the size of each write."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        if written == 0:
            raise OSError(errno.ENOSPC, "the disk takes no more bytes", path)
        yield written
        position += written
        view = view[written:]


def _write_whole(descriptor: int, position: int, data: Buffer, path: str) -> None:
    written = os.pwrite(descriptor, data, position)
    if written < len(data):
        for _ in _writes(descriptor, position + written, memoryview(data)[written:], path):
            pass


_MISSES = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})


class RealLock:
    """A held lock file."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Unlock; the file stays, as Kafka leaves it."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class RealOpenDirectory:
    """A directory by its descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, FILE_MODE, dir_fd=self._descriptor)

    def write_file(self, name: str, data: Buffer) -> None:
        """Create a file or replace its content."""
        _remove_shared(name, self._descriptor)
        descriptor = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            _write_whole(descriptor, 0, data, name)
        finally:
            os.close(descriptor)

    def sync_file(self, name: str) -> None:
        """Flush content and length."""
        descriptor = self._open(name, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """Move atomically, over an existing file."""
        os.replace(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def sync(self) -> None:
        """Flush the directory itself."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor; twice does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class RealDirectory:
    """A directory tree of the operating system below one root."""

    __slots__ = ("_prefix", "root", "volume")

    def __init__(self, root: str, *, create: bool = False) -> None:
        self.root = os.path.abspath(root)
        self._prefix = self.volume = self.root + "/"
        if create:
            make_directory(self.root)

    def __repr__(self) -> str:
        return f"RealDirectory({self.root!r})"

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Return the file, opened on first use; with `create` a missing one is created."""
        full = self._prefix + path
        if create:
            os.close(os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        elif not os.path.exists(full):
            raise FileNotFoundError(errno.ENOENT, "no such file", full)
        return RealFile(self._prefix, path)

    def open_directory(self, path: str) -> RealOpenDirectory:
        """Hold a directory open."""
        return RealOpenDirectory(self._prefix + path)

    def make_file(self, path: str, size: int) -> None:
        """Create a sparse file of zeros; replaces a file of this name."""
        _remove_shared(self._prefix + path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._prefix + path, flags, FILE_MODE)
        try:
            if size:
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        """Write into a file, created when missing, without keeping it open."""
        full = self._prefix + path
        descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            if os.fstat(descriptor).st_nlink > 1:
                shared, descriptor = descriptor, _copy_shared(descriptor, full)
                os.close(shared)
                _sync_parent(full)
            _write_whole(descriptor, position, data, path)
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        """Whether the name exists."""
        return os.path.exists(self._prefix + path)

    def is_directory(self, path: str) -> bool:
        """Whether the name is a directory."""
        return os.path.isdir(self._prefix + path)

    def list(self, path: str = "") -> list[str]:
        """Return the names inside, sorted."""
        return sorted(os.listdir(self._prefix + path))

    def make(self, path: str) -> None:
        """Create a directory and its parents."""
        make_directory(self._prefix + path)

    def remove(self, path: str) -> None:
        """Remove one file."""
        os.unlink(self._prefix + path)

    def drop_cached(self, path: str) -> None:
        """Flush a file and drop it from memory: the next reads see what the disk has."""
        descriptor = os.open(self._prefix + path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content."""
        full = self._prefix + path
        with suppress(FileNotFoundError):
            if os.path.islink(full):  # what it names is not in this directory
                os.remove(full)
            else:
                shutil.rmtree(full)

    def rename(self, old: str, new: str) -> None:
        """Move atomically, over an existing file."""
        os.replace(self._prefix + old, self._prefix + new)

    def link(self, old: str, new: str) -> None:
        """Make a hard link."""
        os.link(self._prefix + old, self._prefix + new)

    def sync(self, path: str = "") -> None:
        """Flush the directory itself."""
        descriptor = os.open(self._prefix + path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def size(self, path: str) -> int:
        """Return a file's length."""
        return os.stat(self._prefix + path).st_size

    def modified_ms(self, path: str) -> int:
        """Return when a file was last written, in ms since 1970."""
        return os.stat(self._prefix + path).st_mtime_ns // 1_000_000

    def is_readable_by_others(self) -> bool:
        """Whether any user of the machine may look into the root."""
        return bool(os.stat(self.root).st_mode & stat.S_IRWXO)

    def free_space(self) -> int:
        """Return the free bytes that an unprivileged process may use."""
        state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize

    def total_space(self) -> int:
        """Return the size of the volume in bytes."""
        state = os.statvfs(self.root)
        return state.f_blocks * state.f_frsize

    def lock(self, path: str) -> RealLock:
        """Lock by fcntl as the JVM does, against other processes, and by flock within this one."""
        descriptor = os.open(self._prefix + path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from error
        return RealLock(descriptor)

    def read_file(self, path: str) -> bytes:
        """Return a file's content."""
        with open(self._prefix + path, "rb") as file:
            return file.read()

    def write_file_atomically(
        self, path: str, data: Buffer, *, mode: int = FILE_MODE, sync: bool = True
    ) -> None:
        """Write a temporary file, flush it, rename it, flush the parent."""
        full = self._prefix + path
        temporary = full + ".tmp"
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode | 0o200
        )
        try:
            _write_whole(descriptor, 0, data, path)
            if mode & 0o200 == 0:
                os.fchmod(descriptor, mode)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, full)
        if sync:
            self.sync(os.path.dirname(path))
