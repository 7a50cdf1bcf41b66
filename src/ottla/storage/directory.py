"""What the log asks of a disk: files and directories as an argument.

The real disk is `server.files`, the simulated one `testing.disk`. Every path is relative to the
directory's root and written with `/`. Failures are `OSError` with its errno, as the system gives
them; the log turns them into Kafka's storage error.

Kafka: java.nio.channels.FileChannel and the file half of org.apache.kafka.common.utils.Utils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from ottla.types import Buffer


class File(Protocol):
    """One file; bytes written are visible to readers at once and durable after `sync`."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end and return their bytes; OSError may leave a part."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite or extend the file at position."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to size bytes at position, as many as the file has; may wait for the disk."""

    def is_cached(self, position: int, size: int) -> bool:
        """Say, by probing, whether the range can be read without waiting for the disk."""

    def size(self) -> int:
        """Return the file's length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file, or grow it with zeros, to size bytes; appends go on from there."""

    def sync(self) -> None:
        """Make content and length durable; the only call, with `read`, that workers make."""

    def send_to(self, sock: socket.socket, position: int, size: int) -> int:
        """Send bytes of the file to a socket, as sendfile does; return how many it took."""

    def pin(self) -> None:
        """Keep the descriptor open for a worker: `close` waits for the matching `unpin`."""

    def unpin(self) -> None:
        """Give back what `pin` took."""

    def close(self) -> None:
        """Give the descriptor back; a later call opens the file again."""

    def moved(self, path: str) -> None:
        """Take note that the file was renamed."""


class Lock(Protocol):
    """A held exclusive lock."""

    def release(self) -> None:
        """Let another process have it."""


class OpenDirectory(Protocol):
    """A directory held open: when it is renamed the calls go along, whatever has its name then.

    For workers; `close` is the owner's. FileNotFoundError once the directory is removed.
    """

    def write_file(self, name: str, data: Buffer) -> None:
        """Make a file, or replace what it holds; nothing is durable yet."""

    def sync_file(self, name: str) -> None:
        """Make content and length durable."""

    def rename(self, old: str, new: str) -> None:
        """Move a file over what has the new name, atomically."""

    def sync(self) -> None:
        """Make the names inside durable."""

    def close(self) -> None:
        """Give the descriptor back."""


class Directory(Protocol):
    """A tree of files; names made, renamed or removed are durable after `sync` of their parent."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Return the file; FileNotFoundError when it is missing and create is false."""

    def open_directory(self, path: str) -> OpenDirectory:
        """Hold a directory open; FileNotFoundError when it is missing."""

    def make_file(self, path: str, size: int) -> None:
        """Make a file of zeros that take no room, over what has its name."""

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        """Write into a file, made when missing, that is open only meanwhile."""

    def exists(self, path: str) -> bool:
        """Say whether a file or directory of this name is there."""

    def is_directory(self, path: str) -> bool:
        """Say whether the name is a directory."""

    def list(self, path: str = "") -> list[str]:
        """Return the names inside, sorted."""

    def make(self, path: str) -> None:
        """Create a directory; no error when it is there."""

    def remove(self, path: str) -> None:
        """Remove a file; FileNotFoundError when it is missing."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it; no error when it is missing."""

    def rename(self, old: str, new: str) -> None:
        """Move a file (over an existing one) or a directory, atomically."""

    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""

    def sync(self, path: str = "") -> None:
        """Make the names inside a directory durable."""

    def size(self, path: str) -> int:
        """Return a file's length in bytes without opening it."""

    def modified_ms(self, path: str) -> int:
        """Return when a file's content was changed last, in wall-clock milliseconds."""

    def free_space(self) -> int:
        """Return the bytes left for us on the disk that holds the root."""

    def total_space(self) -> int:
        """Return the size of the disk in bytes."""

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock of this file, made when missing; BlockingIOError when held."""

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a small file."""

    def write_file_atomically(
        self, path: str, data: Buffer, *, mode: int = 0o644, sync: bool = True
    ) -> None:
        """Replace a small file so that a reader finds the old or the new one, never half.

        With sync the new content and its name are durable on return; without it a power cut
        may still leave the old file or a broken one.
        """


def join(parent: str, name: str) -> str:
    """Put a name into a parent, where "" is the root."""
    return f"{parent}/{name}" if parent else name
