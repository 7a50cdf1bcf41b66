"""Where backups are kept: a directory, or an object store.

Kafka: none.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol

from ottla.storage.directory import join
from ottla.storage.remote.storage_manager import RemoteResourceNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.storage.directory import Directory
    from ottla.storage.remote.managers.object_store import ObjectStorage
    from ottla.types import Buffer

BLOCK_BYTES: Final = 1 << 20
_UNFINISHED: Final = ".part"


class BackupStore(Protocol):
    """Files by name; a name has its whole content or does not exist."""

    def put(self, path: str, blocks: Iterable[Buffer]) -> None:
        """Store a file durably; OSError or RemoteStorageError."""

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield the content; FileNotFoundError or RemoteStorageError when it is missing."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the sizes of all files in a directory and below, by path."""


class DirectoryStore:
    """A directory, for instance of another disk or of a network's file system."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def put(self, path: str, blocks: Iterable[Buffer]) -> None:
        """Write under another name, sync, rename, sync."""
        directory, unfinished = self._directory, path + _UNFINISHED
        parent = path.rpartition("/")[0]
        if parent and not directory.exists(parent):
            whole = ""
            for name in parent.split("/"):
                whole = join(whole, name)
                directory.make(whole)
                directory.sync(whole.rpartition("/")[0])
        with closing(directory.open(unfinished, create=True)) as file:
            file.truncate(0)
            for block in blocks:
                file.append((block,))
            file.sync()
        directory.rename(unfinished, path)
        directory.sync(parent)

    def blocks(self, path: str) -> Iterator[bytes]:
        """Read the file in pieces."""
        with closing(self._directory.open(path)) as file:
            position = 0
            while data := file.read(position, BLOCK_BYTES):
                yield data
                position += len(data)

    def sizes(self, prefix: str) -> dict[str, int]:
        """List the files, without those that an interrupted backup has left."""
        directory, found = self._directory, dict[str, int]()
        for name in directory.list(prefix) if directory.is_directory(prefix) else ():
            path = join(prefix, name)
            if directory.is_directory(path):
                found.update(self.sizes(path))
            elif not name.endswith(_UNFINISHED):
                found[path] = directory.size(path)
        return found


class ObjectBackupStore:
    """An object store, by the client of remote storage."""

    def __init__(self, storage: ObjectStorage) -> None:
        """Take a configured one, without a cluster id: the backup has a marker of its own."""
        self._storage = storage

    def put(self, path: str, blocks: Iterable[Buffer]) -> None:
        """Store an object, in parts."""
        self._storage.put_object(path, blocks)

    def blocks(self, path: str) -> Iterator[bytes]:
        """Read an object in pieces."""
        try:
            yield from self._storage.object_blocks(path)
        except RemoteResourceNotFoundError as error:
            raise FileNotFoundError(path) from error

    def sizes(self, prefix: str) -> dict[str, int]:
        """List the objects below a prefix."""
        return self._storage.object_sizes(prefix)
