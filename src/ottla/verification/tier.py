"""Check of a directory of remote storage against the topic __remote_log_metadata.

Kafka: none; org.apache.kafka.server.log.remote.storage.LocalTieredStorage has the names.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, OttlaError
from ottla.records.batches import iterate_batches
from ottla.storage.directories.partition_dir_names import partition_of
from ottla.storage.directory import join
from ottla.storage.layout import LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_file_name
from ottla.storage.log.inspection import base_offsets
from ottla.storage.log.leader_epochs import decode_leader_epochs
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.storage.remote.managers.directory import (
    INDEX_SUFFIXES,
    LEADER_EPOCHS_SUFFIX,
    ROOT,
    file_path,
    partition_path,
)
from ottla.storage.remote.records import METADATA_TOPIC, decode_remote_metadata
from ottla.storage.remote.segment import RemoteSegment, SegmentState
from ottla.storage.remote.storage_manager import IndexKind
from ottla.storage.segments.segment_recovery import read_valid_batches
from ottla.verification.findings import damage, notice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.storage.directory import Directory
    from ottla.types import Uuid
    from ottla.verification.findings import Finding

_STEP: Final = "restore the file from a copy of the remote storage"


def read_remote_segments(directories: Sequence[Directory]) -> dict[Uuid, RemoteSegment]:
    """Return the segments by the metadata topic's partitions in a node's log directories."""
    segments: dict[Uuid, RemoteSegment] = {}
    for directory in directories:
        for name in directory.list():
            partition = partition_of(name)
            if partition is not None and partition.topic == METADATA_TOPIC:
                for value in _values(directory, name):
                    _apply(segments, value)
    return segments


def _values(directory: Directory, name: str) -> Iterator[bytes]:
    for base_offset in base_offsets(directory, name):
        path = join(name, segment_file_name(base_offset, LOG_SUFFIX))
        with closing(directory.open(path)) as file:
            for _, data in read_valid_batches(file, file.size()):
                for batch in iterate_batches(data):
                    if not batch.is_control:
                        yield from (bytes(one.value) for one in batch.records() if one.value)


def _apply(segments: dict[Uuid, RemoteSegment], value: bytes) -> None:
    try:
        record = decode_remote_metadata(value)
    except OttlaError:
        return  # the node skips it, too
    if record is None:
        return
    if isinstance(record, RemoteSegment):
        segments[record.segment_id] = record
    elif record.state is SegmentState.DELETE_SEGMENT_FINISHED:
        segments.pop(record.segment_id, None)
    elif record.segment_id in segments:
        segments[record.segment_id] = segments[record.segment_id].updated(record)


def check_tier(directories: Sequence[Directory], tier: Directory) -> list[Finding]:
    """Check every file of the complete segments, and name files that no segment has."""
    segments = read_remote_segments(directories)
    findings: list[Finding] = []
    known: set[str] = set()
    for segment in segments.values():
        names = {file_path(segment, suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES.values())}
        known |= names
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
            findings += _check_segment(tier, segment)
    # several brokers share a tier: other partitions of the metadata topic may know the rest
    mine = {partition_path(segment) for segment in segments.values()}
    for parent in tier.list(ROOT) if tier.is_directory(ROOT) else ():
        if parent in mine:
            findings += [
                notice(
                    join(join(ROOT, parent), name),
                    "is of no segment in the metadata",
                    "a copy was interrupted, or it was deleted",
                    "remove it once no copy is under way",
                )
                for name in tier.list(join(ROOT, parent))
                if join(parent, name) not in known
            ]
    return findings


def _check_segment(tier: Directory, segment: RemoteSegment) -> Iterator[Finding]:
    path = join(ROOT, file_path(segment, LOG_SUFFIX))
    meaning = f"offsets {segment.start_offset} to {segment.end_offset} cannot be read"
    problem = _log_problem(tier, path, segment)
    if problem:
        yield damage(path, problem, meaning, _STEP)
    for kind, suffix in INDEX_SUFFIXES.items():
        path = join(ROOT, file_path(segment, suffix))
        if not tier.exists(path):
            # Kafka writes no transaction index where nothing was aborted, and may not say so
            if kind is not IndexKind.TRANSACTION:
                yield damage(path, "is missing", meaning, _STEP)
            continue
        try:
            _check_index(suffix, tier.read_file(path))
        except CorruptMessage as error:
            yield damage(path, str(error.message), meaning, _STEP)


def _log_problem(tier: Directory, path: str, segment: RemoteSegment) -> str:
    if not tier.exists(path):
        return "is missing"
    with closing(tier.open(path)) as file:
        size = file.size()
        if size != segment.size_bytes:
            return f"has {size} bytes, the metadata has {segment.size_bytes}"
        end, last_offset = 0, -1
        for header, _ in read_valid_batches(file, size):
            end, last_offset = header.position + header.size, header.last_offset
        if end < size:
            return f"is damaged at byte {end}"
        if last_offset != segment.end_offset:
            return f"ends at offset {last_offset}, the metadata has {segment.end_offset}"
    return ""


_ENTRY_BYTES: Final = {
    INDEX_SUFFIXES[IndexKind.OFFSET]: 8,
    INDEX_SUFFIXES[IndexKind.TIMESTAMP]: 12,
    INDEX_SUFFIXES[IndexKind.TRANSACTION]: 34,
}


def _check_index(suffix: str, data: bytes) -> None:
    if suffix == LEADER_EPOCHS_SUFFIX:
        decode_leader_epochs(data)
    elif suffix == SNAPSHOT_SUFFIX:
        decode_snapshot(data)
    elif len(data) % _ENTRY_BYTES[suffix]:
        raise CorruptMessage(f"has {len(data)} bytes, not whole entries")
