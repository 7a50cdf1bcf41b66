"""Injected disk faults of real nodes: full, frozen or lost disks.

Kafka: none; its tests replace directories by files.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

from ottla.server.system.files import RealDirectory, RealFile
from ottla.storage.directory import FILE_MODE

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from ottla.types import Buffer


class DiskFaults:
    """Faults of the disks of a node; `heal` ends all of them."""

    def __init__(self) -> None:
        self._error = 0
        self._is_lost = False
        self._thawed = threading.Event()
        self._thawed.set()

    def fill(self) -> None:
        """Let every write fail with ENOSPC; files can be read and removed."""
        self._error = errno.ENOSPC

    def freeze(self) -> None:
        """Let flushes wait until `heal`; writes stay in the page cache."""
        self._thawed.clear()

    def lose(self) -> None:
        """Let every access to a file fail with EIO."""
        self._error = errno.EIO
        self._is_lost = True

    def heal(self) -> None:
        """Remove the fault; a node that halted has to be started again."""
        self._error = 0
        self._is_lost = False
        self._thawed.set()

    @property
    def is_full(self) -> bool:
        """Whether no space is left."""
        return self._error == errno.ENOSPC

    def check_write(self, path: str) -> None:
        """Raise OSError when writes fail."""
        if self._error:
            text = "no space left on device" if self.is_full else "input/output error"
            raise OSError(self._error, text, path)

    def check_read(self, path: str) -> None:
        """Raise OSError when reads fail, too."""
        if self._is_lost:
            self.check_write(path)

    def check_sync(self, path: str) -> None:
        """Wait while the disk is frozen; raise OSError when it is lost."""
        self._thawed.wait()
        self.check_read(path)


class FaultyFile(RealFile):
    """A file on a disk with faults."""

    __slots__ = ("_faults",)

    def __init__(self, prefix: str, path: str, faults: DiskFaults) -> None:
        super().__init__(prefix, path)
        self._faults = faults

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end."""
        self._faults.check_write(self._path)
        return super().append(buffers)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write at position."""
        self._faults.check_write(self._path)
        super().write_at(position, data)

    def read(self, position: int, size: int) -> bytes:
        """Return up to size bytes."""
        self._faults.check_read(self._path)
        return super().read(position, size)

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        self._faults.check_read(self._path)
        super().truncate(size)

    def sync(self) -> None:
        """Flush."""
        self._faults.check_sync(self._path)
        super().sync()

    def send_to(self, sock: socket.socket, position: int, size: int) -> int:
        """Send bytes to a socket."""
        self._faults.check_read(self._path)
        return super().send_to(sock, position, size)


class FaultyDirectory(RealDirectory):
    """A directory on a disk with faults."""

    __slots__ = ("_faults",)

    def __init__(self, root: str, faults: DiskFaults) -> None:
        super().__init__(root, create=True)
        self._faults = faults

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Return the file."""
        if create and not self.exists(path):
            self._faults.check_write(path)
        self._faults.check_read(path)
        super().open(path, create=create)
        return FaultyFile(self._prefix, path, self._faults)

    def make_file(self, path: str, size: int) -> None:
        """Create a file of zeros."""
        self._faults.check_write(path)
        super().make_file(path, size)

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        """Write into a file."""
        self._faults.check_write(path)
        super().write_at(path, position, data)

    def make(self, path: str) -> None:
        """Create a directory."""
        self._faults.check_write(path)
        super().make(path)

    def list(self, path: str = "") -> list[str]:
        """Return the entries."""
        self._faults.check_read(path)
        return super().list(path)

    def drop_cached(self, path: str) -> None:
        """Flush a file and drop it from memory."""
        self._faults.check_sync(path)
        super().drop_cached(path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._faults.check_read(path)
        super().remove(path)

    def rename(self, old: str, new: str) -> None:
        """Rename."""
        self._faults.check_read(old)
        super().rename(old, new)

    def sync(self, path: str = "") -> None:
        """Flush the entries."""
        self._faults.check_sync(path)
        super().sync(path)

    def free_space(self) -> int:
        """Return the free bytes: none on a full disk."""
        return 0 if self._faults.is_full else super().free_space()

    def read_file(self, path: str) -> bytes:
        """Return a file's content."""
        self._faults.check_read(path)
        return super().read_file(path)

    def write_file_atomically(
        self, path: str, data: Buffer, *, mode: int = FILE_MODE, sync: bool = True
    ) -> None:
        """Replace a small file."""
        self._faults.check_write(path)
        if sync:
            self._faults.check_sync(path)
        super().write_file_atomically(path, data, mode=mode, sync=sync)
