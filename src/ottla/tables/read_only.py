"""A log directory that is only read, also while a node writes into it.

Of `storage.directory`'s protocols it has the calls that read. Files are opened without following a
symbolic link and only if they are regular: a pipe in the directory would block the reader.

Kafka: none.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage
from ottla.storage.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

SMALL_FILE_MAX_BYTES: Final = 256 * 1024 * 1024
"""Of checkpoints, snapshots and transaction indexes, which are read whole."""
_ENTRY_BYTES: Final = {INDEX_SUFFIX: 8, TIME_INDEX_SUFFIX: 12}


class ReadOnlyFile:
    """A regular file; a file that was removed since can be read until it is closed."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        """Open the file; OSError when it is missing or not a regular file."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self.close()
            raise OSError(errno.EINVAL, "not a regular file", path)

    def read(self, position: int, size: int) -> bytes:
        """Return up to size bytes at position."""
        data = os.pread(self._descriptor, size, position)
        while data and len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        """Return the file's length in bytes."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the descriptor, once."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class ReadOnlyDirectory:
    """A log directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, path: str) -> ReadOnlyFile:
        """Open a file; OSError when it is missing or not a regular file."""
        return ReadOnlyFile(str(self.root / path))

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""
        return (self.root / path).exists()

    def is_directory(self, path: str) -> bool:
        """Whether the name is a directory."""
        return (self.root / path).is_dir()

    def list(self, path: str = "") -> list[str]:
        """Return the directory's entries, sorted."""
        return sorted(os.listdir(self.root / path))  # noqa: PTH208 - names only, without stat

    def size(self, path: str) -> int:
        """Return a file's length; of an index the bytes of its entries.

        The indexes of the segment that a node appends to are preallocated: zeros follow the
        entries.
        """
        file = self.open(path)
        try:
            size = file.size()
            entry_bytes = _ENTRY_BYTES.get(os.path.splitext(path)[1])  # noqa: PTH122 - not a Path
            return size if entry_bytes is None else _used_bytes(file, size, entry_bytes)
        finally:
            file.close()

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a small file; CorruptMessage for a large one."""
        file = self.open(path)
        try:
            size = file.size()
            if size > SMALL_FILE_MAX_BYTES:
                raise CorruptMessage(f"{path} has {size} bytes")
            return file.read(0, size)
        finally:
            file.close()


def _used_bytes(file: ReadOnlyFile, size: int, entry_bytes: int) -> int:
    """Return where the zeros after an index's entries begin."""
    low, high = 0, size // entry_bytes
    while low < high:
        middle = (low + high) >> 1
        if any(file.read(middle * entry_bytes, entry_bytes)):
            low = middle + 1
        else:
            high = middle
    return low * entry_bytes
