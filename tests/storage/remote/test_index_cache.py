"""The cache of remote indexes: files, restarts, bounds, damage, and readers at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import pytest

from ottla.errors import CorruptMessage
from ottla.server.system.files import RealDirectory
from ottla.storage.layout import INDEX_CACHE
from ottla.storage.remote.index_cache import RemoteIndexCache
from ottla.storage.remote.managers.directory import ROOT, DirectoryStorage
from ottla.storage.remote.storage_manager import IndexKind, RemoteStorageError
from ottla.testing.disk import SimulatedDisk
from tests.storage.remote.test_directory_manager import NAME, files_of, segment_of

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.storage.directory import Directory
    from ottla.storage.remote.segment import RemoteSegment

STEM = "1026_AgICAgICAgICAgICAgICAg"
ENTRY_BYTES = 16 + 24 + 34


class Tier(DirectoryStorage):
    """A tier of ten segments that counts the indexes read."""

    def __init__(self, disk: Directory) -> None:
        super().__init__(lambda _path: disk)
        self.configure({"dir": "/tier"})
        self.read_count = 0
        for number in range(2, 12):
            self.copy_segment(segment_of(number=number), files_of(SimulatedDisk()))

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Count the call."""
        self.read_count += 1
        return super().read_index(segment, kind)


class Cache:
    """A cache on a simulated disk, its tier and its clock."""

    def __init__(self, max_bytes: int = 1 << 20, ttl_ms: int = -1) -> None:
        self.disk, self.tier_disk, self.now_ms = SimulatedDisk(), SimulatedDisk(), 1000
        self.tier = Tier(self.tier_disk)
        self.cache = self.open(max_bytes, ttl_ms)

    def open(self, max_bytes: int = 1 << 20, ttl_ms: int = -1) -> RemoteIndexCache:
        """Return a cache over the files of now."""
        cache = RemoteIndexCache(
            self.disk,
            self.tier,
            max_bytes=max_bytes,
            ttl_ms=ttl_ms,
            now_ms=lambda: self.now_ms,
            new_lock=threading.Lock,
        )
        cache.load()
        return cache

    def use(self, number: int) -> None:
        """Read the indexes of a segment."""
        with self.cache.opened(segment_of(number=number)) as indexes:
            assert indexes.offset_index.count == 2

    def names(self) -> list[str]:
        """Return the files of the cache."""
        return self.disk.list(INDEX_CACHE)


def test_files_have_kafkas_names_and_survive() -> None:
    """The offset has no leading zeros; a second cache reads the files and not the tier."""
    cache = Cache()
    cache.use(2)
    cache.use(2)
    assert cache.names() == [f"{STEM}.index", f"{STEM}.timeindex", f"{STEM}.txnindex"]
    assert (cache.tier.read_count, cache.cache.size_bytes) == (3, ENTRY_BYTES)
    cache.disk.write_file_atomically(f"{INDEX_CACHE}/{STEM}.index.tmp", b"x")
    cache.disk.write_file_atomically(f"{INDEX_CACHE}/{STEM}.index.deleted", b"x")
    cache.disk.write_file_atomically(f"{INDEX_CACHE}/5_AwMDAwMDAwMDAwMDAwMDAw.index", b"")
    cache.cache = cache.open()
    assert len(cache.names()) == 3
    cache.use(2)
    assert (cache.tier.read_count, cache.cache.size_bytes) == (3, ENTRY_BYTES)


def test_a_segment_without_aborts_has_an_empty_transaction_index() -> None:
    """The tier has none, or the metadata says so: then it is not even asked."""
    cache = Cache()
    segment = segment_of(number=20)
    cache.tier.copy_segment(segment, files_of(SimulatedDisk(), aborts=None))
    with cache.cache.opened(segment) as indexes:
        assert indexes.transaction_index.entries() == []
    cache.cache.remove([segment.segment_id])
    assert cache.names() == []
    with cache.cache.opened(replace(segment, is_transaction_index_empty=True)):
        assert cache.tier.read_count == 5


def test_the_least_recently_used_go_first() -> None:
    """The size bounds the files; a smaller size acts at once, a time without use as well."""
    cache = Cache(max_bytes=3 * ENTRY_BYTES)
    for number in (2, 3, 4, 2, 5):
        cache.use(number)
    assert len(cache.cache) == 3
    count = cache.tier.read_count
    cache.use(2)
    assert cache.tier.read_count == count
    cache.use(3)
    assert cache.tier.read_count == count + 3
    cache.cache.resize(ENTRY_BYTES)
    assert (len(cache.cache), len(cache.names())) == (1, 3)
    cache.cache = cache.open(ttl_ms=500)
    cache.now_ms += 501
    cache.use(7)
    assert len(cache.cache) == 1


def test_what_is_read_is_not_removed() -> None:
    """An entry that is deleted or too large stays for its reader, and goes with it."""
    cache = Cache(max_bytes=1)
    with cache.cache.opened(segment_of(number=2)) as indexes:
        cache.use(3)
        cache.cache.remove([segment_of(number=2).segment_id])
        assert indexes.time_index.count == 2
    assert all(not name.startswith(STEM) for name in cache.names())


def test_a_tier_that_lies_or_is_away_leaves_no_entry() -> None:
    """A cut index is refused, and so is a missing one; the next reader asks again."""
    cache = Cache()
    path = f"{ROOT}/{NAME}.timeindex"
    content = cache.tier_disk.read_file(path)
    cache.tier_disk.write_file_atomically(path, content[:-1])
    with pytest.raises(CorruptMessage, match="has 23 bytes"), cache.cache.opened(segment_of()):
        pass
    cache.tier_disk.remove(path)
    with (
        pytest.raises(RemoteStorageError, match=r"no .*timeindex"),
        cache.cache.opened(segment_of()),
    ):
        pass
    assert len(cache.cache) == 0
    cache.tier_disk.write_file_atomically(path, content)
    cache.use(2)


def test_a_damaged_copy_is_fetched_again() -> None:
    """Its reader fails, the next one has a good copy."""
    cache = Cache()
    cache.use(2)
    cache.disk.write_file_atomically(f"{INDEX_CACHE}/{STEM}.index", bytes(16))
    with pytest.raises(CorruptMessage), cache.cache.opened(segment_of()) as indexes:
        indexes.offset_index.lookup(1030)
    cache.use(2)
    assert cache.tier.read_count == 6


def test_readers_at_once_fetch_once(tmp_path: Path) -> None:
    """Many workers on few segments: each index is fetched once, and no reader misses a file."""
    tier = Tier(RealDirectory(str(tmp_path / "tier"), create=True))
    disk = RealDirectory(str(tmp_path / "log"), create=True)
    cache = RemoteIndexCache(
        disk, tier, max_bytes=1 << 20, now_ms=lambda: 0, new_lock=threading.Lock
    )
    cache.load()

    def use(number: int) -> int:
        with cache.opened(segment_of(number=2 + number % 10)) as indexes:
            return indexes.offset_index.count

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(200))) == {2}
    assert tier.read_count == 30
    cache.resize(1)
    with ThreadPoolExecutor(8) as pool:  # each reader evicts what the others are done with
        assert set(pool.map(use, range(200))) == {2}
