"""Plug-ins that keep sealed segments outside the log directories (KIP-405), and what they get.

All functions block: worker threads call them, several at a time. What a plug-in raises besides the
errors below counts as a RemoteStorageError, except when it is configured.

Kafka: org.apache.kafka.server.log.remote.storage.{RemoteStorageManager, LogSegmentData,
RemoteStorageException, RetriableRemoteStorageException, RemoteResourceNotFoundException}.
"""

from __future__ import annotations

import io
from enum import IntEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Protocol, cast

from ottla.errors import ConfigError, OttlaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.storage.directory import Directory, File
    from ottla.storage.remote.segment import RemoteSegment

BUFFER_BYTES: Final = 256 * 1024
"""Read at once from a local file: few calls, and little memory for each of many workers."""


class RemoteStorageError(OttlaError):
    """A call to remote storage failed."""


class RetriableRemoteStorageError(RemoteStorageError):
    """A call failed that may succeed later: a copy is tried again under a new id."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """Remote storage has no such segment or index; without a transaction index none aborted."""


class IndexKind(IntEnum):
    """Indexes of a segment in remote storage, in Kafka's order."""

    OFFSET = 0
    TIMESTAMP = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION = 3
    LEADER_EPOCH = 4


class LocalFile(NamedTuple):
    """The first `size` bytes of a file in a log directory."""

    directory: Directory
    path: str
    size: int

    def blocks(self, size: int = BUFFER_BYTES) -> Iterator[bytes]:
        """Yield the content in blocks of this size; RemoteStorageError when the file is shorter."""
        file = self.directory.open(self.path)
        try:
            for position in range(0, self.size, size):
                length = min(size, self.size - position)
                block = file.read(position, length)
                if len(block) != length:
                    raise RemoteStorageError(f"{self.path} has less than {self.size} bytes")
                yield block
        finally:
            file.close()

    def open(self) -> BinaryIO:
        """Return the content as a stream; the caller closes it."""
        return file_stream(self.directory.open(self.path), 0, self.size)


class SegmentFiles(NamedTuple):
    """The local files of a sealed segment that is to be copied."""

    log: LocalFile
    offset_index: LocalFile
    time_index: LocalFile
    transaction_index: LocalFile | None
    """None when no transaction that ends in the segment was aborted."""
    producer_snapshot: LocalFile
    """The state of producers after the segment's last offset."""
    leader_epochs: bytes
    """A leader-epoch checkpoint: the lineage from the log's first epoch to the segment's end."""


class RemoteStore(Protocol):
    """The calls of a store of segments."""

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Copy all files; return custom metadata to be kept with the segment's.

        A copy is begun once for each id. RetriableRemoteStorageError, RemoteStorageError.
        """

    def read_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """Return the bytes of the log from position start to end, which is included.

        RemoteResourceNotFoundError, RemoteStorageError, also of the stream.
        """

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Return one index; RemoteResourceNotFoundError, RemoteStorageError, as of a segment."""

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all files; no error when they are gone, as the call is repeated."""

    def close(self) -> None:
        """Release connections; no call follows."""


class RemoteStorageManager(RemoteStore, Protocol):
    """A plug-in, made without arguments and configured once before other calls."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the settings of `remote.log.storage.manager.impl.prefix` less it, and broker.id.

        ConfigError for a setting that is missing or invalid; RemoteStorageError or OSError for a
        store that is away. Other errors are defects of the plug-in.
        """


class ConnectedStorage:
    """A plug-in whose settings are applied by `connect`: its store may be away at the start.

    Until then all calls fail with RetriableRemoteStorageError.
    """

    def __init__(
        self, name: str, plugin: RemoteStorageManager, settings: Mapping[str, str]
    ) -> None:
        self._name = name
        self._plugin = plugin
        self._settings = settings
        self.is_connected = False

    def connect(self) -> None:
        """Apply the settings; ConfigError, else OttlaError or OSError of a store that is away."""
        try:
            self._plugin.configure(self._settings)
        except ConfigError as error:
            raise ConfigError(f"{self._name} cannot be configured: {error}") from error
        except (OttlaError, OSError):
            raise
        except Exception as error:
            raise ConfigError(f"{self._name} cannot be configured: {error!r}") from error
        self.is_connected = True

    @property
    def _ready(self) -> RemoteStorageManager:
        if not self.is_connected:
            raise RetriableRemoteStorageError("remote storage has not answered since the start")
        return self._plugin

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Copy all files; see `RemoteStore`, as for the other calls."""
        return self._ready.copy_segment(segment, files)

    def read_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """Return bytes of the log."""
        return self._ready.read_segment(segment, start, end)

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Return one index."""
        return self._ready.read_index(segment, kind)

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all files."""
        self._ready.delete_segment(segment)

    def close(self) -> None:
        """Release connections, if there are any."""
        if self.is_connected:
            self._plugin.close()


class _FileStream(io.RawIOBase):
    """A range of a file's bytes."""

    def __init__(self, file: File, start: int, end: int) -> None:
        super().__init__()
        self._file = file
        self._position = start
        self._end = end

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return size bytes, fewer only at the end, without a copy in between."""
        left = max(self._end - self._position, 0)
        data = self._file.read(self._position, left if size < 0 else min(size, left))
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as there are bytes; return their number."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file, once."""
        if not self.closed:
            self._file.close()
        super().close()


def file_stream(file: File, start: int, end: int) -> BinaryIO:
    """Return the bytes of a file from start to before end as a stream that closes the file."""
    return cast("BinaryIO", _FileStream(file, start, end))
