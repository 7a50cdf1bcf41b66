"""A tier of simulated clusters: a store in memory that delays, fails and loses calls.

`SimulatedStorage` is its storage manager, found by its dotted path; `rsm.config.store` names the
store, so that all nodes of a cluster share one.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

from ottla.storage.remote.managers.directory import INDEX_SUFFIXES, contents, file_path
from ottla.storage.remote.storage_manager import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from ottla.storage.remote.segment import RemoteSegment
    from ottla.storage.remote.storage_manager import IndexKind, SegmentFiles
    from ottla.testing.simulation.loop import SimulatedLoop

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "tests.simulation.simulated_tier.SimulatedStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "file.delete.delay.ms": "1000",
}
TIERED = {
    "remote.storage.enable": "true",
    "segment.ms": "2000",
    "local.retention.bytes": "1",
}
_SHORT_NS = 1_000_000
_LONG_NS = 5_000_000_000
_LOST_NS = 3_600_000_000_000
"""An hour: the worker is gone for this test."""


class Store:
    """Files by name, and the faults of the calls to come."""

    def __init__(self, name: str, loop: SimulatedLoop, rng: Random) -> None:
        self.files: dict[str, bytes] = {}
        self.fault_rate = 0.0
        """Which part of the calls is slow or fails."""
        self.loss_rate = 0.0
        """Which part of the calls never ends."""
        self.call_ns = _SHORT_NS
        self.is_away = False
        self.calls: dict[str, int] = {}
        self.on_call: Callable[[], None] = lambda: None
        """Called in the worker before each call."""
        self._loop = loop
        self._rng = rng
        STORES[name] = self

    def begin(self, call: str) -> bool:
        """Take time or fail; return whether the answer is lost although the call is made."""
        assert self._loop.is_in_worker, f"the loop waits for {call}"
        self.calls[call] = self.calls.get(call, 0) + 1
        self.on_call()
        self._loop.charge(call, self.call_ns)
        if self.is_away:
            raise RemoteStorageError("the tier is away")
        if self._rng.random() < self.loss_rate:
            self._loop.charge(call, _LOST_NS)
            raise RemoteStorageError("lost")
        if self._rng.random() >= self.fault_rate:
            return False
        fault = self._rng.randrange(4)
        if fault == 0:
            self._loop.charge(call, self._rng.randrange(_LONG_NS))
        elif fault == 1:
            raise RetriableRemoteStorageError("try again")
        elif fault == 2:
            raise RemoteStorageError("it failed")
        return fault == 3

    def segments(self, topic: str) -> list[str]:
        """Return the names of the logs that it has of a topic."""
        return sorted(name for name in self.files if name.endswith(".log") and topic in name)


STORES: dict[str, Store] = {}


class SimulatedStorage:
    """The storage manager of one node."""

    store: Store

    def configure(self, settings: Mapping[str, str]) -> None:
        """Find the store."""
        self.store = STORES[settings["store"]]

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Copy all files, or some of them where it fails."""
        store, is_lost = self.store, False
        for suffix, blocks in contents(files):
            is_lost |= store.begin("copy")
            store.files[file_path(segment, suffix)] = b"".join(map(bytes, blocks))
        if is_lost:
            raise RemoteStorageError("the answer is lost")
        return None

    def read_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """Return a range of the log."""
        data = self._read(file_path(segment, ".log"))
        return io.BytesIO(data[start : len(data) if end is None else end + 1])

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Return one index."""
        return io.BytesIO(self._read(file_path(segment, INDEX_SUFFIXES[kind])))

    def _read(self, name: str) -> bytes:
        if self.store.begin("read"):
            raise RemoteStorageError("the answer is lost")
        if name not in self.store.files:
            raise RemoteResourceNotFoundError(name)
        return self.store.files[name]

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all files, or some of them where it fails."""
        is_lost = False
        for suffix in (".log", *INDEX_SUFFIXES.values()):
            is_lost |= self.store.begin("delete")
            self.store.files.pop(file_path(segment, suffix), None)
        if is_lost:
            raise RemoteStorageError("the answer is lost")

    def close(self) -> None:
        """Hold nothing."""
