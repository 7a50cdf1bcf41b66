"""File system access as a protocol: files and directories are passed in as arguments.

The real disk is `server.files`, the simulated one `testing.disk`. Every path is relative to the
directory's root and written with `/`. Failures are `OSError` with the system's errno;
the log converts them into Kafka's storage error.

Kafka: java.nio.channels.FileChannel and the file half of org.apache.kafka.common.utils.Utils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Hashable, Sequence

    from ottla.types import Buffer

FILE_MODE: Final = 0o640
"""Records and secrets are not for every user of the machine; the group may make backups."""


class File(Protocol):
    """One file; bytes written are visible to readers at once and durable after `sync`."""

    @property
    def volume(self) -> Hashable:
        """As of its `Directory`."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end and return their bytes; OSError may leave a part."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite or extend the file at position."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to size bytes at position; may wait for the disk."""

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the range can be read without waiting for the disk, by probing."""

    def size(self) -> int:
        """Return the file's length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros, to size bytes; appends continue from there."""

    def sync(self) -> None:
        """Make content and length durable. Workers call only this and `read`."""

    def send_to(self, sock: socket.socket, position: int, size: int) -> int:
        """Send bytes of the file to a socket, as sendfile does; return how many it took."""

    def pin(self) -> None:
        """Keep the descriptor open for a worker: `close` waits for the matching `unpin`."""

    def unpin(self) -> None:
        """Undo one `pin`."""

    def close(self) -> None:
        """Close the descriptor; a later call opens the file again."""

    def moved(self, path: str) -> None:
        """Update the path after the file was renamed."""


class Lock(Protocol):
    """A held exclusive lock."""

    def release(self) -> None:
        """Release the lock."""


class OpenDirectory(Protocol):
    """An open directory: calls keep referring to it after it is renamed.

    For workers; `close` is the owner's. FileNotFoundError once the directory is removed.
    """

    def write_file(self, name: str, data: Buffer) -> None:
        """Create a file or replace its content; not durable until synced."""

    def sync_file(self, name: str) -> None:
        """Make content and length durable."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically, replacing an existing one."""

    def sync(self) -> None:
        """Make the directory's entries durable."""

    def close(self) -> None:
        """Close the descriptor."""


class Directory(Protocol):
    """A tree of files; created, renamed or removed names are durable after `sync` of the parent."""

    @property
    def volume(self) -> Hashable:
        """Identifies the root: calls that hang on its disk must not delay those of others."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Return the file; FileNotFoundError when it is missing and create is false."""

    def open_directory(self, path: str) -> OpenDirectory:
        """Hold a directory open; FileNotFoundError when it is missing."""

    def make_file(self, path: str, size: int) -> None:
        """Create a sparse file of zeros, replacing an existing one."""

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        """Write into a file, created when missing, and close it again."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""

    def is_directory(self, path: str) -> bool:
        """Whether the name is a directory."""

    def list(self, path: str = "") -> list[str]:
        """Return the directory's entries, sorted."""

    def make(self, path: str) -> None:
        """Create a directory; no error when it exists."""

    def remove(self, path: str) -> None:
        """Remove a file; FileNotFoundError when it is missing."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory tree; no error when it is missing."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file (replacing an existing one) or a directory, atomically."""

    def link(self, old: str, new: str) -> None:
        """Create a hard link; a later change through one of the names does not show in the other.

        Changes of a file with several names go to a copy, which takes the name.
        """

    def sync(self, path: str = "") -> None:
        """Make a directory's entries durable."""

    def drop_cached(self, path: str) -> None:
        """Flush a file and drop it from memory: the next reads see what the disk has."""

    def size(self, path: str) -> int:
        """Return a file's length in bytes without opening it."""

    def modified_ms(self, path: str) -> int:
        """Return a file's modification time in wall-clock milliseconds."""

    def free_space(self) -> int:
        """Return the free bytes on the root's file system."""

    def total_space(self) -> int:
        """Return the size of the root's file system in bytes."""

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock on this file, created when missing; BlockingIOError when held."""

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a small file."""

    def write_file_atomically(
        self, path: str, data: Buffer, *, mode: int = FILE_MODE, sync: bool = True
    ) -> None:
        """Replace a small file so that a reader finds the old or the new content, never a mix.

        With sync the new content and its name are durable on return; without it a power failure
        may leave the old file or a damaged one.
        """


def join(parent: str, name: str) -> str:
    """Return the path of a name in a parent, where "" is the root."""
    return f"{parent}/{name}" if parent else name
