"""Local copies of the indexes of remote segments, in the first log directory.

Files are named as Kafka names them: `remote-log-index-cache/<start offset>_<segment id>.index` and
the like, the offset without leading zeros. They survive restarts. An entry is whole or it is not
used: files come as `.tmp` and are renamed. Kafka renames those that it evicts to `.deleted` first,
as its readers hold them open; here no reader does, and the last one lets them go.

Workers read through the cache, several at a time. Its lock is not held while an index is fetched,
so that a slow tier delays only those who need that index.

Kafka: org.apache.kafka.storage.internals.log.RemoteIndexCache.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex
from ottla.storage.indexes.transaction_index import ENTRY, TransactionIndex
from ottla.storage.layout import (
    DELETED_SUFFIX,
    INDEX_CACHE,
    INDEX_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from ottla.storage.remote.storage_manager import (
    IndexKind,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from ottla.storage.directory import Directory
    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import RemoteStore

_KINDS: Final = (
    (INDEX_SUFFIX, IndexKind.OFFSET, OffsetIndex.entry.size),
    (TIME_INDEX_SUFFIX, IndexKind.TIMESTAMP, TimeIndex.entry.size),
    (TRANSACTION_INDEX_SUFFIX, IndexKind.TRANSACTION, ENTRY.size),
)
MAX_INDEX_BYTES: Final = 1 << 30
"""Of one index: more than a segment of 2 GiB with an entry a batch of 61 bytes can have."""
_BLOCK_BYTES: Final = 1 << 20


class CachedIndexes(NamedTuple):
    """The indexes of one segment, for one worker."""

    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex


class _Entry:
    """The files of one segment."""

    __slots__ = ("is_removed", "last_used_ms", "name", "readers", "size_bytes")

    def __init__(self, name: str, size_bytes: int, now_ms: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self.last_used_ms = now_ms
        self.readers = 0
        self.is_removed = False


class RemoteIndexCache:
    """Files of indexes by segment, least recently used first out."""

    def __init__(
        self,
        directory: Directory,
        storage: RemoteStore,
        *,
        max_bytes: int,
        ttl_ms: int = -1,
        now_ms: Callable[[], int],
        new_lock: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Take a log directory; ttl_ms of -1 keeps unused entries. new_lock() makes a lock."""
        self._now_ms = now_ms
        self._directory = directory
        self._storage = storage
        self._max_bytes = max_bytes
        self._ttl_ms = ttl_ms
        self._new_lock = new_lock
        self._lock = new_lock()
        self._entries: OrderedDict[Uuid, _Entry] = OrderedDict()
        self._fetching: dict[Uuid, AbstractContextManager[object]] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries."""
        return self._size_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def load(self) -> None:
        """Take over the entries of an earlier process, and remove what it did not finish."""
        directory = self._directory
        directory.make(INDEX_CACHE)
        names: dict[str, set[str]] = {}
        for file in directory.list(INDEX_CACHE):
            stem, dot, ending = file.partition(".")
            if file.endswith((TEMPORARY_SUFFIX, DELETED_SUFFIX)):
                self._remove_file(file)
            elif f"{dot}{ending}" in {suffix for suffix, _, _ in _KINDS}:
                names.setdefault(stem, set()).add(f"{dot}{ending}")
        for stem, suffixes in names.items():
            segment_id = _segment_id_of(stem)
            if segment_id is None:
                continue
            if len(suffixes) == len(_KINDS):
                with suppress(OSError, CorruptMessage):
                    self._add(segment_id, _Entry(stem, self._checked_size(stem), self._now_ms()))
                    continue
            for suffix in suffixes:
                self._remove_file(f"{stem}{suffix}")
        self._evict()

    @contextmanager
    def opened(self, segment: RemoteSegment) -> Iterator[CachedIndexes]:
        """Yield the indexes of a segment, fetched when they are not cached.

        RemoteStorageError; CorruptMessage when remote storage has other than an index.
        """
        entry = self._take(segment)
        try:
            path, base = f"{INDEX_CACHE}/{entry.name}", segment.start_offset
            yield CachedIndexes(
                OffsetIndex(
                    self._directory,
                    f"{path}{INDEX_SUFFIX}",
                    base_offset=base,
                    max_bytes=MAX_INDEX_BYTES,
                ),
                TimeIndex(
                    self._directory,
                    f"{path}{TIME_INDEX_SUFFIX}",
                    base_offset=base,
                    max_bytes=MAX_INDEX_BYTES,
                ),
                TransactionIndex(self._directory, f"{path}{TRANSACTION_INDEX_SUFFIX}"),
            )
        except CorruptMessage:  # of the local copy, perhaps: the next reader fetches it again
            self.remove([segment.segment_id])
            raise
        finally:
            with self._lock:
                entry.readers -= 1
                if entry.is_removed and not entry.readers:
                    self._drop(segment.segment_id)

    def _take(self, segment: RemoteSegment) -> _Entry:
        """Return the entry with one more reader."""
        segment_id = segment.segment_id
        while True:
            with self._lock:
                if entry := self._used(segment_id):
                    return entry
                fetching = self._fetching.setdefault(segment_id, self._new_lock())
            with fetching:
                with self._lock:
                    if entry := self._used(segment_id):
                        return entry
                    if self._fetching.get(segment_id) is not fetching:
                        continue  # fetched, and evicted again: others wait for another fetch
                return self._fetched(segment)

    def _fetched(self, segment: RemoteSegment) -> _Entry:
        """Fetch the indexes of a segment, which no other worker does now."""
        entry = None
        try:
            size_bytes = self._fetch(segment)
            entry = _Entry(_name_of(segment), size_bytes, self._now_ms())
            entry.readers = 1
        finally:
            with self._lock:
                del self._fetching[segment.segment_id]
                if entry is not None:
                    self._add(segment.segment_id, entry)
                    self._evict()
        return entry

    def _used(self, segment_id: Uuid) -> _Entry | None:
        entry = self._entries.get(segment_id)
        if entry is not None:
            entry.readers += 1
            entry.last_used_ms = self._now_ms()
            self._entries.move_to_end(segment_id)
        return entry

    def _fetch(self, segment: RemoteSegment) -> int:
        """Fetch all indexes and return their bytes."""
        stem = _name_of(segment)
        try:
            for suffix, kind, entry_bytes in _KINDS:
                temporary = f"{INDEX_CACHE}/{stem}{suffix}{TEMPORARY_SUFFIX}"
                self._directory.make_file(temporary, 0)
                size = 0
                for block in self._blocks(segment, kind):
                    size += len(block)
                    if size > MAX_INDEX_BYTES:
                        raise CorruptMessage(f"{kind.name} of {segment.segment_id} is too large")
                    self._directory.write_at(temporary, size - len(block), block)
                if size % entry_bytes:
                    raise CorruptMessage(
                        f"{kind.name} of {segment.segment_id} has {size} bytes, not whole entries"
                    )
                self._directory.rename(temporary, temporary.removesuffix(TEMPORARY_SUFFIX))
            return self._checked_size(stem)
        except OSError as error:
            raise RemoteStorageError(f"no index of {segment.segment_id}: {error}") from error

    def _blocks(self, segment: RemoteSegment, kind: IndexKind) -> Iterable[bytes]:
        if kind is IndexKind.TRANSACTION and segment.is_transaction_index_empty:
            return
        try:
            stream = self._storage.read_index(segment, kind)
        except RemoteResourceNotFoundError:
            if kind is not IndexKind.TRANSACTION:
                raise
            return  # no transaction that ends in the segment was aborted: the file is empty
        with closing(stream):
            while block := stream.read(_BLOCK_BYTES):
                yield block

    def _checked_size(self, stem: str) -> int:
        """Return the bytes of an entry's files; CorruptMessage when one has no whole entries."""
        total = 0
        for suffix, _, entry_bytes in _KINDS:
            size = self._directory.size(f"{INDEX_CACHE}/{stem}{suffix}")
            if size % entry_bytes:
                raise CorruptMessage(f"{stem}{suffix} has {size} bytes, not whole entries")
            total += size
        return total

    def _add(self, segment_id: Uuid, entry: _Entry) -> None:
        self._entries[segment_id] = entry
        self._size_bytes += entry.size_bytes

    def _evict(self) -> None:
        """Remove entries, oldest first, until the rest fits and none is unused for too long.

        Those that are being read stay, the newest for that reason.
        """
        oldest_ms = self._now_ms() - self._ttl_ms if self._ttl_ms > 0 else -1
        for segment_id, entry in list(self._entries.items()):
            if entry.last_used_ms > oldest_ms and self._size_bytes <= self._max_bytes:
                return
            if not entry.readers:
                self._drop(segment_id)

    def resize(self, max_bytes: int) -> None:
        """Set the size (remote.log.index.file.cache.total.size.bytes)."""
        with self._lock:
            self._max_bytes = max_bytes
            self._evict()

    def remove(self, segment_ids: Iterable[Uuid]) -> None:
        """Remove the entries of deleted segments; those being read go with their last reader."""
        with self._lock:
            for segment_id in segment_ids:
                if entry := self._entries.get(segment_id):
                    entry.is_removed = True
                    if not entry.readers:
                        self._drop(segment_id)

    def _drop(self, segment_id: Uuid) -> None:
        entry = self._entries.pop(segment_id)
        self._size_bytes -= entry.size_bytes
        for suffix, _, _ in _KINDS:
            self._remove_file(f"{entry.name}{suffix}")

    def _remove_file(self, name: str) -> None:
        with suppress(OSError):
            self._directory.remove(f"{INDEX_CACHE}/{name}")


def _name_of(segment: RemoteSegment) -> str:
    return f"{segment.start_offset}_{segment.segment_id}"


def _segment_id_of(stem: str) -> Uuid | None:
    """Return the segment of a file's name without suffix; None for files of others."""
    offset, _, text = stem.partition("_")
    try:
        return Uuid.parse(text) if offset.isascii() and offset.isdecimal() else None
    except ValueError:
        return None
