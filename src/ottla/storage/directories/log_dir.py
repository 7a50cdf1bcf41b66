"""A log directory: lock, identity, clean shutdown marker, checkpoints and failure.

Kafka: kafka.log.LogManager (per directory), CleanShutdownFileHandler, MetaProperties.
"""

from __future__ import annotations

import errno
import json
import logging
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.properties import parse_properties
from ottla.errors import CorruptMessage, LocalDiskError
from ottla.storage.directories.checkpoints import encode_offsets, read_offsets
from ottla.storage.layout import (
    CLEAN_MARKER,
    LOCK_FILE,
    LOG_SUFFIX,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    TEMPORARY_SUFFIX,
    Folder,
    file_names,
)
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ottla.storage.directory import Directory, Lock

log = logging.getLogger("ottla.storage")
META_PROPERTIES_VERSION = 1
_TEMPORARY: Final = file_names(Folder.LOG_DIRECTORY, TEMPORARY_SUFFIX)
_PROBE_BYTES: Final = 64 * 1024
"""More than the last block of a file takes on a full disk."""


class MetaProperties(NamedTuple):
    """The content of `meta.properties`."""

    version: int
    cluster_id: str
    node_id: int
    directory_id: Uuid | None


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Parse version 1 of the file; CorruptMessage when a value is missing or invalid.

    The directory.id is optional: Kafka writes it since 3.7 (KIP-858), at the next start. Version 0
    is that of a cluster with ZooKeeper; a later one may mean what this version cannot keep.
    """
    try:
        values = parse_properties(data.decode("utf-8", "replace"))
        directory_id = values.get("directory.id")
        version = int(values["version"])
        if version == 0:
            raise ValueError(
                "version 0 is that of a cluster with ZooKeeper: migrate it to KRaft with Kafka 3.9"
            )
        if version != META_PROPERTIES_VERSION:
            raise ValueError(f"Unknown meta.properties version number {version}")
        return MetaProperties(
            version,
            values["cluster.id"],
            int(values["node.id"]),
            Uuid.parse(directory_id) if directory_id else None,
        )
    except (KeyError, ValueError) as error:
        raise CorruptMessage(f"malformed {META_PROPERTIES}: {error}") from error


class LogDirectory:
    """A locked directory. `had_clean_shutdown`: whether the last run ended cleanly."""

    def __init__(self, path: str, directory: Directory) -> None:
        self.path = path
        self.directory = directory
        self.failure: OSError | None = None
        self.offline_reason = ""
        """Why it is offline and what to do, in one line."""
        self.had_clean_shutdown = False
        self.previous_broker_epoch = -1
        self.meta: MetaProperties | None = None
        self.free_bytes = self.reserve_bytes = 0
        """Free and reserved bytes at the last check; 0 before the first one."""
        self.is_short_of_space = False
        """Whether clients' records for this directory are refused."""
        self._lock: Lock | None = None
        self._is_open = False
        self._was_opened = False
        """Whether this process has removed the clean shutdown marker."""
        self._checkpoints = 0
        self._begun: dict[str, int] = {}  # checkpoint name → newest sequence of any content
        self._in_place: dict[str, int] = {}  # checkpoint name → sequence of the file's content

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r})"

    @property
    def directory_id(self) -> Uuid | None:
        """The directory id registered with the controller."""
        return self.meta.directory_id if self.meta else None

    @property
    def is_online(self) -> bool:
        """Whether no disk error has occurred."""
        return self.failure is None

    def measured(self, free_bytes: int, reserve_bytes: int) -> bool:
        """Record free space and reserve; return whether a shortage began or ended."""
        self.free_bytes, self.reserve_bytes = free_bytes, reserve_bytes
        was_short, self.is_short_of_space = self.is_short_of_space, free_bytes < reserve_bytes
        return self.is_short_of_space != was_short

    def open(self) -> None:
        """Lock, read the identity and remove the clean shutdown marker.

        KafkaError KAFKA_STORAGE_ERROR when another process holds the lock, OSError for the disk.
        The marker is removed before logs are loaded: a crash while loading must lead to recovery
        again (KAFKA-10471). Opening twice has no effect.
        """
        if self._is_open:
            return
        self.lock()
        directory = self.directory
        for name in directory.list():
            if _TEMPORARY.fullmatch(name):
                directory.remove(name)  # an incomplete checkpoint
        if directory.exists(META_PROPERTIES):
            self.meta = decode_meta_properties(directory.read_file(META_PROPERTIES))
        self.had_clean_shutdown = directory.exists(CLEAN_MARKER)
        if self.had_clean_shutdown:
            self.previous_broker_epoch = decode_clean_marker(directory.read_file(CLEAN_MARKER))
            directory.remove(CLEAN_MARKER)
            directory.sync()
        self._is_open = self._was_opened = True

    def failed(self, error: OSError) -> None:
        """Put it offline; its lock is released, as by Kafka, so that the disk can be unmounted."""
        if self.failure is None:
            self.failure = error
        with suppress(OSError):
            self.release()

    def check_return(self, cluster_id: str, node_id: int, reserve_bytes: int) -> None:
        """Lock an offline directory whose disk works and that no other process used.

        The log's bytes beyond the recovery points are read from the disk afterwards: after a failed
        sync the page cache may hold what the disk never got. Runs in a worker. LocalDiskError when
        the directory may not return, CorruptMessage, OSError when the disk still fails.
        """
        directory = self.directory
        if not directory.exists(META_PROPERTIES):
            raise LocalDiskError(f"it has no {META_PROPERTIES}; mount its disk there")
        meta = decode_meta_properties(directory.read_file(META_PROPERTIES))
        expected = self.meta
        if expected is None:  # it failed before its id was read
            expected = meta._replace(cluster_id=cluster_id, node_id=node_id)
        if meta != expected or meta.directory_id is None:
            raise LocalDiskError(
                f"its {META_PROPERTIES} has cluster.id {meta.cluster_id}, node.id {meta.node_id} "
                f"and directory.id {meta.directory_id}, expected are {expected.cluster_id}, "
                f"{expected.node_id} and {expected.directory_id}; mount the disk that failed, or "
                "start the node again"
            )
        if self._was_opened and directory.exists(CLEAN_MARKER):
            raise LocalDiskError(
                "another process has used it since it failed; start the node again"
            )
        free_bytes = directory.free_space()
        if free_bytes < reserve_bytes:
            raise LocalDiskError(
                f"{free_bytes} bytes are free, less than its reserve of {reserve_bytes}; free some "
                "space, or lower log.dir.reserve.bytes"
            )
        self.lock()
        path = f"{RECOVERY_POINT_CHECKPOINT}.0{TEMPORARY_SUFFIX}"
        directory.write_at(path, 0, bytes(_PROBE_BYTES))
        directory.drop_cached(path)
        if directory.read_file(path) != bytes(_PROBE_BYTES):
            raise OSError(errno.EIO, "the disk does not keep what was written", path)
        directory.remove(path)
        self._forget_unflushed()

    def _forget_unflushed(self) -> None:
        """Drop from the page cache the segments that were not flushed as a whole."""
        points = {
            str(name): end for name, end in self.read_offsets(RECOVERY_POINT_CHECKPOINT).items()
        }
        for name in self.directory.list():
            if not self.directory.is_directory(name):
                continue
            segments = sorted(one for one in self.directory.list(name) if one.endswith(LOG_SUFFIX))
            for segment, following in zip(segments, [*segments[1:], None], strict=True):
                end = following and following.removesuffix(LOG_SUFFIX)
                if end is None or not end.isdigit() or int(end) > points.get(name, 0):
                    self.directory.drop_cached(f"{name}/{segment}")

    def lock(self) -> None:
        """Take the lock `.lock` unless it is held already."""
        if self._lock is not None:
            return
        try:
            self._lock = self.directory.lock(LOCK_FILE)
        except BlockingIOError as error:
            raise LocalDiskError(
                f"Failed to acquire lock on file {LOCK_FILE} in {self.path}. A Kafka instance in "
                "another process or thread is using this directory.",
            ) from error

    def read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Read a checkpoint; a missing or corrupt one is empty.

        Without it logs are recovered from their start, and deleted records may be readable again.
        """
        try:
            return read_offsets(self.directory, name)
        except CorruptMessage as error:
            text = "%s in %s is not used: %s; check the disk"
            log.warning(text, name, self.path, error, extra={"event": "checkpoint.ignored"})
            return {}

    def begin_checkpoint(self, names: Collection[str]) -> int:
        """Return the sequence number of new content for these files."""
        self._checkpoints += 1
        self._begun.update(dict.fromkeys(names, self._checkpoints))
        return self._checkpoints

    def is_outdated(self, name: str) -> bool:
        """Whether a checkpoint's newest content is not in place: being written, or failed."""
        return self._begun.get(name, 0) > self._in_place.get(name, 0)

    def has_newer(self, name: str, sequence: int) -> bool:
        """Whether a checkpoint's content in place is newer than that of a sequence number."""
        return self._in_place.get(name, 0) > sequence

    def write_offsets_to_new_file(
        self, name: str, offsets: Mapping[TopicPartition, int], sequence: int
    ) -> None:
        """Write a checkpoint's next content durably to a temporary file; runs in a worker."""
        path = f"{name}.{sequence}{TEMPORARY_SUFFIX}"
        with closing(self.directory.open(path, create=True)) as file:
            file.truncate(0)
            file.write_at(0, encode_offsets(offsets))
            file.sync()

    def put_in_place(self, name: str, sequence: int) -> bool:
        """Rename the temporary file over the checkpoint; False when a newer one is in place."""
        path = f"{name}.{sequence}{TEMPORARY_SUFFIX}"
        if sequence > self._in_place.get(name, 0):
            self.directory.rename(path, name)
            self._in_place[name] = sequence
            return True
        self.directory.remove(path)
        return False

    def mark_clean(self, broker_epoch: int) -> None:
        """Write the marker that lets the next start skip recovery; durable on return."""
        data = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self.directory.write_file_atomically(CLEAN_MARKER, data.encode())

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._is_open = False


def decode_clean_marker(data: bytes) -> int:
    """Return the broker epoch of the last clean shutdown, -1 when the marker has none."""
    try:
        value = json.loads(data)
        return int(value["brokerEpoch"]) if isinstance(value, dict) else -1
    except (ValueError, KeyError, TypeError):
        return -1
