"""Segments of a topic that are in remote storage alone, for scans of log directories (KIP-405).

Which there are is read from the logs of __remote_log_metadata in the same directories, their bytes
from the store by the storage managers of nodes. Nothing is written there.

Kafka: none; RemoteLogManager reads for a fetch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ottla.errors import ConfigError, CorruptMessage, ErrorCode, KafkaError
from ottla.storage.indexes.transaction_index import TransactionIndex
from ottla.storage.remote.managers.directory import DirectoryStorage
from ottla.storage.remote.managers.object_store import ObjectStorage
from ottla.storage.remote.partition_segments import PartitionSegments, is_in_lineage, with_records
from ottla.storage.remote.records import decode_remote_metadata
from ottla.storage.remote.segment import SegmentState
from ottla.storage.remote.storage_manager import (
    IndexKind,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from ottla.tables.read_only import SMALL_FILE_MAX_BYTES, ReadOnlyDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import RemoteStorageManager
    from ottla.types import Uuid


class _TierDirectory(ReadOnlyDirectory):
    """A directory tier, which a storage manager makes when it is configured: here it is there."""

    def make(self, path: str) -> None:
        """Leave the directory as it is."""

    def sync(self, path: str = "") -> None:
        """Leave the directory as it is."""


class _Content:
    """One file's content in the place of a directory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def exists(self, _path: str) -> bool:
        """Whether the file is there: always."""
        return True

    def read_file(self, _path: str) -> bytes:
        """Return the content."""
        return self._data


class RemoteFile:
    """The batches of a remote segment, as a file."""

    def __init__(self, storage: RemoteStorageManager, segment: RemoteSegment) -> None:
        self._storage = storage
        self._segment = segment

    def read(self, position: int, size: int) -> bytes:
        """Return up to size bytes at position; KafkaError KAFKA_STORAGE_ERROR without the store."""
        end = min(position + size, self._segment.size_bytes)
        if position >= end:
            return b""
        try:
            with self._storage.read_segment(self._segment, position, end - 1) as stream:
                return stream.read(end - position)
        except (RemoteStorageError, OSError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"remote storage: {error}") from error

    def size(self) -> int:
        """Return the length that the segment's metadata says."""
        return self._segment.size_bytes

    def close(self) -> None:
        """Hold nothing open between reads."""


class PartitionTier:
    """The remote segments of one partition that belong to its log, by start offset."""

    def __init__(
        self, storage: RemoteStorageManager, table: PartitionSegments, epochs: Sequence[Any]
    ) -> None:
        """Take the leader epochs of the local log; without any all complete segments count."""
        self._storage = storage
        lineage = with_records([(entry.epoch, entry.start_offset) for entry in epochs])
        self.segments = [
            segment
            for segment in table.segments()
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
            and not table.is_replaced(segment)
            and (not lineage or is_in_lineage(segment, 1 << 62, lineage))
        ]

    def open(self, segment: RemoteSegment) -> RemoteFile:
        """Return a segment's batches."""
        return RemoteFile(self._storage, segment)

    def transaction_index(self, segment: RemoteSegment) -> TransactionIndex:
        """Return a segment's aborted transactions; KafkaError KAFKA_STORAGE_ERROR as `read`."""
        name, data = f"{segment.segment_id}.txnindex", b""
        try:
            if not segment.is_transaction_index_empty:
                with self._storage.read_index(segment, IndexKind.TRANSACTION) as stream:
                    data = stream.read(SMALL_FILE_MAX_BYTES + 1)
        except RemoteResourceNotFoundError:
            pass  # no transaction that ends in the segment was aborted
        except (RemoteStorageError, OSError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"remote storage: {error}") from error
        if len(data) > SMALL_FILE_MAX_BYTES:
            raise CorruptMessage(
                f"remote storage: {name} has more than {SMALL_FILE_MAX_BYTES} bytes"
            )
        return TransactionIndex(cast("Any", _Content(data)), name)


class RemoteTopic:
    """The remote segments of all partitions of a topic."""

    def __init__(self, place: str | Path | Mapping[str, str], values: Iterable[bytes]) -> None:
        """Take a directory or settings of an object store, and the records of the metadata topic.

        KafkaError INVALID_CONFIG for a store that cannot be opened.
        """
        self._storage = _opened(place)
        self._tables: dict[tuple[Uuid, int], PartitionSegments] = {}
        for value in values:
            record = decode_remote_metadata(value)
            if record is not None:
                key = (record.topic_id, record.partition)
                self._tables.setdefault(key, PartitionSegments()).apply(record)

    def of_partition(
        self, topic_id: Uuid | None, partition: int, epochs: Sequence[Any]
    ) -> PartitionTier | None:
        """Return the segments of a partition; None without any."""
        table = None if topic_id is None else self._tables.get((topic_id, partition))
        found = None if table is None else PartitionTier(self._storage, table, epochs)
        return found if found is not None and found.segments else None


def _opened(place: str | Path | Mapping[str, str]) -> RemoteStorageManager:
    storage: Any
    try:
        if isinstance(place, (str, Path)) and "://" not in str(place):
            if not Path(place).is_dir():
                raise ConfigError(f"{place}: no such directory")
            storage = DirectoryStorage(lambda path: cast("Any", _TierDirectory(Path(path))))
            storage.configure({"dir": str(place)})
        else:
            storage = ObjectStorage()
            storage.configure({"url": str(place)} if isinstance(place, (str, Path)) else place)
    except (ConfigError, RemoteStorageError) as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"remote storage: {error}") from error
    return cast("RemoteStorageManager", storage)
