"""The offsets of source connectors: `["connector",{partition}]` to `{offset}`, both JSON.

Kafka: org.apache.kafka.connect.storage.{OffsetStorageReaderImpl, OffsetStorageWriter,
ConnectorOffsetBackingStore, OffsetUtils}.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any, Protocol

from ottla.connect.errors import DataException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    class OffsetStorage(Protocol):
        """Where offsets are stored: a file or a topic."""

        @property
        def entries(self) -> dict[bytes | None, bytes | None]:
            """The stored offsets."""

        def put(self, entries: Mapping[bytes, bytes | None]) -> None:
            """Store entries, before it returns."""


log = logging.getLogger("ottla.connect")


def encode_json(value: Any) -> bytes:
    """Return the JSON of offsets; DataException for what it cannot say."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        text = "Offsets may only contain what JSON can say: numbers, texts, true, false and null"
        raise DataException(text) from error
    return text.encode(errors="backslashreplace")  # of half a character JSON's escape


def _key(connector: str, partition: Mapping[str, Any]) -> bytes:
    # Kafka's maps come from HashMaps, whose order is the same for equal keys: names are sorted here
    return encode_json([connector, dict(sorted(partition.items()))])


def partition_key(partition: Mapping[str, Any] | None) -> bytes:
    """Return the same bytes for equal partitions."""
    return encode_json(None if partition is None else dict(sorted(partition.items())))


class OffsetStore:
    """Reads and writes offsets by connector and partition; for all threads of a worker."""

    def __init__(self, storage: OffsetStorage) -> None:
        """Read the stored offsets by their meaning, since others may order names otherwise."""
        self._storage = storage
        self._lock = threading.Lock()
        self._keys: dict[bytes, bytes] = {}
        self.find_keys()

    def find_keys(self) -> None:
        """Look for the keys that others have stored."""
        with self._lock:
            for key in self._storage.entries:
                parsed = _parsed_key(key)
                if parsed is not None and key is not None:
                    self._keys[_key(*parsed)] = key

    def get(self, connector: str, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the offset of a partition, None without one."""
        return self.get_all(connector, [partition])[0]

    def get_all(
        self, connector: str, partitions: Iterable[Mapping[str, Any]]
    ) -> list[dict[str, Any] | None]:
        """Return the offsets of several partitions, in their order."""
        with self._lock:
            entries = self._storage.entries
            keys = [_key(connector, it) for it in partitions]
            stored = [entries.get(self._keys.get(key, key)) for key in keys]
        return [_parsed_offset(connector, data) for data in stored]

    def stored_key(self, connector: str, partition: Mapping[str, Any]) -> bytes:
        """Return the key under which the offset of a partition is, or would be, stored."""
        with self._lock:
            key = _key(connector, partition)
            return self._keys.get(key, key)

    def put(
        self,
        connector: str,
        offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> None:
        """Store offsets; None forgets one."""
        with self._lock:
            entries = {}
            for partition, offset in offsets:
                key = _key(connector, partition)
                stored = self._keys.setdefault(key, key)
                entries[stored] = None if offset is None else encode_json(offset)
            self._storage.put(entries)

    def all_of(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return partitions and offsets of a connector."""
        with self._lock:
            entries = list(self._storage.entries.items())
        found = []
        for key, value in entries:
            parsed = _parsed_key(key)
            if parsed is not None and parsed[0] == connector:
                offset = _parsed_offset(connector, value)
                if offset is not None:
                    found.append((parsed[1], offset))
        return found


def _parsed_offset(connector: str, data: bytes | None) -> dict[str, Any] | None:
    """Return an offset; None, as Kafka, also for what somebody else has written."""
    try:
        parsed = None if data is None else json.loads(data)
    except ValueError:
        parsed = data
    if parsed is None or isinstance(parsed, dict):
        return parsed
    log.error(
        "CRITICAL: Failed to deserialize offset data when getting offsets for task with namespace "
        "%s. No value for this data will be returned, which may break the task or cause it to skip "
        "some data. This could either be due to an error in the connector implementation or "
        "incompatible schema.",
        connector,
    )
    return None


def _parsed_key(key: bytes | None) -> tuple[str, dict[str, Any]] | None:
    """Return connector and partition; None for the keys of something else."""
    try:
        parsed = json.loads(key or b"")
    except ValueError:
        return None
    match parsed:
        case [str(name), dict(partition)]:
            return name, partition
    return None
