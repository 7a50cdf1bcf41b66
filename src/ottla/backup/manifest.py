"""The manifest of a backup: its files with lengths and SHA-256, written last.

A manifest that can be read and whose own checksum is right makes a backup valid. Nothing in it is
trusted as a path: a name that is not a file of a node is refused.

Kafka: none.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage, LocalDiskError
from ottla.storage.directories.partition_dir_names import partition_of
from ottla.storage.layout import METADATA_LOG, Folder, file_names
from ottla.types import TopicPartition, is_topic_name

if TYPE_CHECKING:
    from ottla.backup.store import BackupStore

FORMAT: Final = 1
MARKER: Final = "ottla-backup.json"
MANIFESTS: Final = "backups"
OBJECTS: Final = "objects"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_ID: Final = re.compile(r"0[0-9]{14}")
"""Milliseconds before the year 5138: every one is a date."""
_MAX_BYTES: Final = 1 << 30
"""Of a manifest: a million files have about 250 MB."""
_MAX_MARKER_BYTES: Final = 1 << 16
_FILES: Final = {
    "": file_names(Folder.LOG_DIRECTORY, ""),
    METADATA_LOG: re.compile(
        f"{file_names(Folder.METADATA_LOG, '').pattern}|{file_names(Folder.PARTITION, '').pattern}"
    ),
}
_PARTITION_FILE: Final = file_names(Folder.PARTITION, "")


class StoredFile(NamedTuple):
    """One file of a backup, or the beginning of one."""

    path: str
    size: int
    sha256: str
    source: tuple[int, int, int] = (0, 0, 0)
    """Size, modification time and bytes taken of the node's file, by which the next backup knows
    that it is unchanged."""

    @property
    def object_path(self) -> str:
        """Where the store has the content."""
        return f"{OBJECTS}/{self.sha256[:2]}/{self.sha256}"

    @property
    def partition(self) -> TopicPartition | None:
        """The partition that it belongs to; None for files of the node."""
        parent = self.path.rpartition("/")[0]
        return None if parent in {"", METADATA_LOG} else partition_of(parent)


class Manifest(NamedTuple):
    """One backup."""

    backup_id: str
    """The moment in ms, of fifteen digits."""
    cluster_id: str
    node_id: int
    offsets: dict[TopicPartition, int]
    """The high watermarks at that moment: where each partition ends."""
    files: list[StoredFile]

    @property
    def path(self) -> str:
        """Where the store has it."""
        return f"{MANIFESTS}/{self.backup_id}.json"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file's content, with a checksum of all but the checksum."""
    content = {
        "format": FORMAT,
        "backup_id": manifest.backup_id,
        "cluster_id": manifest.cluster_id,
        "node_id": manifest.node_id,
        "offsets": [[*partition, offset] for partition, offset in manifest.offsets.items()],
        "files": manifest.files,
    }
    text = json.dumps(content, separators=(",", ":"))
    return json.dumps({"sha256": _hash(text), "content": text}).encode()


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest; CorruptMessage when it is damaged, of a later format, or names bad paths."""
    try:
        envelope = json.loads(data)
        text = envelope["content"]
        if _hash(text) != envelope["sha256"]:
            raise CorruptMessage("the manifest's checksum is wrong")
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise CorruptMessage(
                f"the backup has format {content['format']}, this version reads {FORMAT}"
            )
        files = [
            StoredFile(str(path), int(size), str(digest), (int(one), int(two), int(three)))
            for path, size, digest, (one, two, three) in content["files"]
        ]
        offsets = {
            TopicPartition(str(topic), int(number)): int(offset)
            for topic, number, offset in content["offsets"]
        }
        manifest = Manifest(
            str(content["backup_id"]),
            str(content["cluster_id"]),
            int(content["node_id"]),
            offsets,
            files,
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise CorruptMessage(f"the manifest cannot be read: {error}") from error
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    if not _ID.fullmatch(manifest.backup_id):
        raise CorruptMessage(f"{manifest.backup_id[:40]!r} is no id of a backup")
    seen = set()
    for file in manifest.files:
        parent, _, name = file.path.rpartition("/")
        partition = partition_of(parent)
        is_partition = partition is not None and is_topic_name(partition.topic)
        pattern = _FILES.get(parent, _PARTITION_FILE if is_partition else None)
        if pattern is None or not pattern.fullmatch(name) or "/" in parent or file.path in seen:
            raise CorruptMessage(f"the manifest names {file.path[:200]!r}, no file of a node")
        if not _HASH.fullmatch(file.sha256) or file.size < 0:
            raise CorruptMessage(f"the manifest has no valid checksum of {file.path}")
        seen.add(file.path)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_backups(store: BackupStore) -> list[str]:
    """Return the ids of the backups in a store, oldest first."""
    names = [path.rpartition("/")[2].removesuffix(".json") for path in store.sizes(MANIFESTS)]
    return sorted(name for name in names if _ID.fullmatch(name))


def read_manifest(store: BackupStore, backup_id: str = "") -> Manifest:
    """Read a backup's manifest, of the newest one without an id; LocalDiskError without any."""
    known = read_backups(store)
    if not known or (backup_id and backup_id not in known):
        what = f"no backup {backup_id}" if backup_id else "no complete backup"
        raise LocalDiskError(f"there is {what} here; known: {', '.join(known) or 'none'}")
    return read_listed_manifest(store, backup_id or known[-1])


def read_listed_manifest(store: BackupStore, backup_id: str) -> Manifest:
    """Return the manifest of a backup that `read_backups` has listed."""
    manifest = decode_manifest(_read(store, f"{MANIFESTS}/{backup_id}.json", _MAX_BYTES))
    if manifest.backup_id != backup_id:
        raise CorruptMessage(f"the manifest of backup {backup_id} is that of {manifest.backup_id}")
    return manifest


def _read(store: BackupStore, path: str, max_bytes: int) -> bytes:
    blocks, size = [], 0
    for block in store.blocks(path):
        blocks.append(block)
        size += len(block)
        if size > max_bytes:
            raise CorruptMessage(f"{path} has more than {max_bytes} bytes")
    return b"".join(blocks)


def claim(store: BackupStore, cluster_id: str, node_id: int) -> None:
    """Mark the place as a node's, or check the mark; LocalDiskError when it is another's."""
    try:
        content = json.loads(_read(store, MARKER, _MAX_MARKER_BYTES))
        found = (content["cluster_id"], content["node_id"], content["format"])
    except FileNotFoundError:
        text = {"format": FORMAT, "cluster_id": cluster_id, "node_id": node_id}
        store.put(MARKER, (json.dumps(text).encode(),))
        return
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LocalDiskError(f"{MARKER} cannot be read: {error}; take another place") from error
    if found[2] != FORMAT:
        raise LocalDiskError(f"the backups here have format {found[2]}, this version has {FORMAT}")
    if found[:2] != (cluster_id, node_id):
        raise LocalDiskError(
            f"the backups here are of node {found[1]} of cluster {found[0]}, not of node {node_id} "
            f"of {cluster_id}: give each node a place of its own"
        )
