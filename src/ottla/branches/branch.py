"""Forks a stopped node's log directory: segments by hard links, the rest as small copies.

A file with two names is never changed in place (`server/system/files.py`), so neither side sees
what the other one does later. The last segment is linked as well, and the source gets a new, empty
one: its next appends go there. A segment above the high watermark is copied, and one with the fork
point inside up to the point. The logs of the fork are then opened by the code of a start, which
cuts indexes, epochs and producers, and transactions that are open at the point are aborted: no
producer continues them. Those that the coordinator had decided are left to the fork's coordinator,
which finishes them.

All is made in a directory of another name; its renaming at the end makes the fork valid.

Kafka: none.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.branches.fork_point import ForkPoint
from ottla.coordinator.transaction.state import TransactionState, decode
from ottla.errors import CorruptMessage, LocalDiskError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.protocol.records.metadata import RemoveTopicRecord
from ottla.raft.quorum_state import ElectionState, decode_quorum_state, encode_quorum_state
from ottla.raft.snapshot import SNAPSHOT_MODE, encode_snapshot, snapshot_name
from ottla.raft.voter_set import VoterSet
from ottla.records.batches import iterate_batches
from ottla.records.control import encode_end_txn_marker
from ottla.records.validator import AppendOrigin
from ottla.storage.batches import walk_file
from ottla.storage.directories.checkpoints import encode_offsets, read_offsets
from ottla.storage.directories.log_dir import MetaProperties, decode_meta_properties
from ottla.storage.directories.partition_dir_names import is_log, partition_of
from ottla.storage.directory import join
from ottla.storage.layout import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_MARKER,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    METADATA_LOG,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    QUORUM_STATE,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    segment_file_name,
)
from ottla.storage.log.config import LogConfig
from ottla.storage.log.inspection import base_offsets, inspect_log
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_recovery import read_valid_batches
from ottla.types import OffsetAndEpoch, TopicPartition, Uuid
from ottla.verification.metadata import read_metadata
from ottla.verification.partition import first_recovered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.directory import Directory
    from ottla.verification.metadata import StoredMetadata

UNFINISHED_PREFIX: Final = ".ottla-unfinished-"
"""Of the directory in which a fork or a restored directory is made."""
_COPY_BYTES: Final = 1 << 20
_TRANSACTIONS: Final = "__transaction_state"
_DECIDED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_CONFIG: Final = LogConfig(
    cleanup_policy=("compact",),  # gaps are taken as compaction's: the fork has those of the source
    preallocate_indexes=False,
    producer_id_expiration_ms=1 << 62,
)


class BranchRequest(NamedTuple):
    """A fork to be made; paths are relative to the directory that is passed along."""

    source: str
    target: str
    point: ForkPoint = ForkPoint()
    topics: frozenset[str] = frozenset()
    """Only these and the internal ones; empty for all."""
    cluster_id: str = ""
    """Of the fork; empty to keep the source's, for a fork that takes its place."""
    directory_id: Uuid | None = None
    """Of the fork; None to keep the source's."""


class BranchResult(NamedTuple):
    """What a fork consists of."""

    partition_count: int
    linked_bytes: int
    copied_bytes: int
    aborted_count: int
    """Transactions that were open at the fork point."""


class DirectoryBranch:
    """Makes one fork; no node may run on the source."""

    def __init__(self, directory: Directory, request: BranchRequest, *, now_ms: int) -> None:
        self._directory = directory
        self._request = request
        self._now_ms = now_ms
        parent, _, name = request.target.rpartition("/")
        self._parent = parent
        self._made = join(parent, UNFINISHED_PREFIX + name)
        self._is_clean = False
        self._decided: frozenset[int] = frozenset()
        self._linked_bytes = self._copied_bytes = self._aborted_count = 0
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}
        self._new: dict[str, dict[TopicPartition, int]] = {}

    def run(self) -> BranchResult:
        """Make the fork; OttlaError when the source cannot be forked, OSError for the disk."""
        directory, request = self._directory, self._request
        source, made = request.source, self._made
        if directory.exists(request.target):
            raise LocalDiskError(f"{request.target} exists: a branch is made in a new directory")
        meta = decode_meta_properties(directory.read_file(join(source, META_PROPERTIES)))
        has_metadata = directory.is_directory(join(source, METADATA_LOG))
        stored = self._read_metadata() if has_metadata else None
        self._is_clean = directory.exists(join(source, CLEAN_MARKER))
        for name in OFFSET_CHECKPOINTS:
            self._checkpoints[name] = read_offsets(directory, join(source, name))
            self._new[name] = {}
        directory.remove_tree(made)  # of an attempt that was interrupted
        directory.make(made)
        logs = list(self._logs(stored))
        self._decided = self._decided_producers(logs)
        for partition in logs:
            self._fork_log(partition)
        if stored is not None:
            self._write_metadata(stored, meta.directory_id)
        self._write_files(meta)
        directory.sync(made)
        directory.rename(made, request.target)
        directory.sync(self._parent)
        return BranchResult(len(logs), self._linked_bytes, self._copied_bytes, self._aborted_count)

    # The whole directory

    def _read_metadata(self) -> StoredMetadata:
        path = join(self._request.source, METADATA_LOG)
        stored = read_metadata(self._directory, path, until_ms=self._request.point.until_ms)
        missing = self._request.topics - set(stored.image.topics.by_name)
        if missing:
            raise LocalDiskError(f"there is no topic {', '.join(sorted(missing))} to branch")
        return stored

    def _logs(self, stored: StoredMetadata | None) -> Iterator[TopicPartition]:
        """Yield the partitions to fork: those that exist at the fork point."""
        directory, source = self._directory, self._request.source
        for name in directory.list(source):
            path, partition = join(source, name), partition_of(name)
            if partition is None or name == METADATA_LOG or not directory.is_directory(path):
                continue
            if not is_log(directory, path) or not self._is_kept(partition.topic):
                continue
            if stored is None or stored.image.topics.partition(*partition) is not None:
                yield partition

    def _is_kept(self, topic: str) -> bool:
        """Whether a topic is forked; internal ones, whose names begin so, always are."""
        return not self._request.topics or topic in self._request.topics or topic[:2] == "__"

    def _write_metadata(self, stored: StoredMetadata, directory_id: Uuid | None) -> None:
        """Write all metadata as one snapshot, without the log that led to it."""
        directory, made = self._directory, join(self._made, METADATA_LOG)
        image, request = stored.image, self._request
        at = OffsetAndEpoch(stored.end_offset, stored.last_epoch)
        for topic in list(image.topics.by_id.values()) if request.topics else ():
            if not self._is_kept(topic.name):
                removal = MessageAndVersion(RemoveTopicRecord(topic_id=topic.topic_id), 0)
                image.apply([removal], at, MetadataDelta())
        values = [encode_record(record) for record in image.records()]
        voters = stored.voters
        new_id = request.directory_id
        if new_id is not None and directory_id is not None:
            # ids are sixteen random bytes, wherever a record names the directory
            old, new = bytes(directory_id), bytes(new_id)
            values = [value.replace(old, new) for value in values]
            if voters is not None:
                voters = VoterSet(
                    voter._replace(directory_id=new_id)
                    if voter.directory_id == directory_id
                    else voter
                    for voter in voters
                )
        data = encode_snapshot(
            values,
            now_ms=self._now_ms,
            leader_epoch=at.leader_epoch,
            last_contained_log_timestamp=stored.last_timestamp,
            kraft_version=stored.kraft_version,
            voters=voters,
        )
        directory.make(made)
        path = join(made, snapshot_name(at))
        directory.write_file_atomically(path, data, mode=SNAPSHOT_MODE)
        quorum_state = join(join(request.source, METADATA_LOG), QUORUM_STATE)
        static_voters: tuple[int, ...] = ()
        if directory.exists(quorum_state):
            static_voters = decode_quorum_state(directory.read_file(quorum_state)).voter_ids
        election = ElectionState(at.leader_epoch, voter_ids=static_voters)
        state = encode_quorum_state(election, kraft_version=stored.kraft_version)
        directory.write_file_atomically(join(made, QUORUM_STATE), state)
        self._copy_file(METADATA_LOG, PARTITION_METADATA)

    def _write_files(self, meta: MetaProperties) -> None:
        directory, made, request = self._directory, self._made, self._request
        for name, offsets in self._new.items():
            directory.write_file_atomically(join(made, name), encode_offsets(offsets))
        bootstrap = join(request.source, BOOTSTRAP_CHECKPOINT)
        if directory.exists(bootstrap):
            data = directory.read_file(bootstrap)
            directory.write_file_atomically(join(made, BOOTSTRAP_CHECKPOINT), data)
        directory_id = request.directory_id or meta.directory_id
        lines = [
            "#",
            f"cluster.id={request.cluster_id or meta.cluster_id}",
            *([f"directory.id={directory_id}"] if directory_id is not None else []),
            f"node.id={meta.node_id}",
            f"version={meta.version}",
            "",
        ]
        directory.write_file_atomically(join(made, META_PROPERTIES), "\n".join(lines).encode())
        marker = b'{"version":0,"brokerEpoch":-1}'
        directory.write_file_atomically(join(made, CLEAN_MARKER), marker)

    # Transactions

    def _decided_producers(self, logs: list[TopicPartition]) -> frozenset[int]:
        """Return the producers whose transactions the coordinator had decided to end.

        It writes the markers once the fork starts: an abort here could contradict them.
        """
        states: dict[str, tuple[int, TransactionState]] = {}
        for partition in logs:
            if partition.topic == _TRANSACTIONS:
                for key, value in self._records(partition):
                    try:
                        record = decode(key, value)
                    except CorruptMessage:
                        continue
                    if record is not None and record.value is not None:
                        found = record.value
                        states[record.key] = (found.producer_id, found.state)
                    elif record is not None:
                        states.pop(record.key, None)
        return frozenset(producer for producer, state in states.values() if state in _DECIDED)

    def _records(self, partition: TopicPartition) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield keys and values of a log up to the fork point."""
        directory, path = self._directory, join(self._request.source, str(partition))
        for base_offset in base_offsets(directory, path):
            name = join(path, segment_file_name(base_offset, LOG_SUFFIX))
            with closing(directory.open(name)) as file:
                for header, data in read_valid_batches(file, file.size()):
                    if header.max_timestamp > self._request.point.until_ms:
                        return
                    if header.is_control:
                        continue
                    for batch in iterate_batches(data):
                        for record in batch.records():
                            if record.key is not None:
                                value = None if record.value is None else bytes(record.value)
                                yield bytes(record.key), value

    # One log

    def _fork_log(self, partition: TopicPartition) -> None:
        directory, name = self._directory, str(partition)
        source, made = join(self._request.source, name), join(self._made, name)
        directory.make(made)
        recovery_point = self._checkpoints[RECOVERY_POINT_CHECKPOINT].get(partition, 0)
        start = self._checkpoints[LOG_START_CHECKPOINT].get(partition, 0)
        bases = base_offsets(directory, source)
        end, recovered_from = self._fork_segments(partition, bases, recovery_point)
        start = min(max(start, bases[0] if bases else 0), end)
        for other in directory.list(source):
            offset = base_offset_of(other, SNAPSHOT_SUFFIX)
            if offset is not None and offset <= end:
                directory.link(join(source, other), join(made, other))
        self._copy_file(name, LEADER_EPOCH_CHECKPOINT)
        self._copy_file(name, PARTITION_METADATA)
        log = PartitionLog.open(
            directory,
            made,
            topic_partition=partition,
            config=_CONFIG,
            now_ms=self._now_ms,
            recovery_point=recovered_from,
            log_start_offset=start,
        )
        self._abort_open(log)
        job = log.flushes.close()
        if job is not None:
            job.run()
            log.flushes.completed(job)
        end, start = log.log_end_offset, log.log_start_offset
        log.release()
        directory.sync(made)
        self._new[RECOVERY_POINT_CHECKPOINT][partition] = end
        self._new[HIGH_WATERMARK_CHECKPOINT][partition] = end
        if start > 0:
            self._new[LOG_START_CHECKPOINT][partition] = start
        cleaned = self._checkpoints[CLEANER_CHECKPOINT].get(partition)
        if cleaned is not None:
            self._new[CLEANER_CHECKPOINT][partition] = min(cleaned, end)

    def _fork_segments(
        self, partition: TopicPartition, bases: list[int], recovery_point: int
    ) -> tuple[int, int]:
        """Link or copy the segments; return the end offset, and from where a start must read."""
        directory, name = self._directory, str(partition)
        source = join(self._request.source, name)
        limit = self._request.point.limit_of(partition)
        # a start as a follower cuts what is above: a shared segment would be copied first, by the
        # loop of the node
        high_watermark = self._checkpoints[HIGH_WATERMARK_CHECKPOINT].get(partition, 0)
        unflushed = first_recovered(bases, recovery_point, is_clean=self._is_clean)
        end = bases[0] if bases else 0
        for number, base_offset in enumerate(bases):
            if base_offset >= limit:
                break
            path = join(source, segment_file_name(base_offset, LOG_SUFFIX))
            size = directory.size(path)
            is_last = number + 1 == len(bases)
            if is_last and not size:
                break  # a name of its own: both sides append to it
            if base_offset < unflushed and self._request.point.is_now:
                kept, end = size, self._next_offset(source, bases, number)
            else:
                with closing(directory.open(path)) as file:
                    headers = (
                        walk_file(file, 0, size)
                        if base_offset < unflushed
                        else (header for header, _ in read_valid_batches(file, size))
                    )
                    kept, end = self._request.point.prefix(partition, headers, base_offset)
            if base_offset >= unflushed or kept < size or end > high_watermark:
                self._copy_segment(partition, base_offset, kept)
                if kept < size or is_last:
                    return end, base_offset
            else:
                self._link_segment(partition, base_offset)
                if is_last:
                    self._roll(source, end)
        if bases:
            self._roll(join(self._made, name), end)
        return end, end

    def _next_offset(self, source: str, bases: list[int], number: int) -> int:
        base_offset = bases[number]
        if number + 1 < len(bases):
            return bases[number + 1]
        if not self._directory.exists(join(source, segment_file_name(base_offset, INDEX_SUFFIX))):
            return inspect_log(
                self._directory, source, from_offset=base_offset, may_have_gaps=True
            ).end_offset
        segment = Segment.open(
            self._directory, source, base_offset, config=_CONFIG, now_ms=self._now_ms
        )
        try:
            return segment.next_offset()
        finally:
            segment.close_files()

    def _link_segment(self, partition: TopicPartition, base_offset: int) -> None:
        directory, name = self._directory, str(partition)
        source, made = join(self._request.source, name), join(self._made, name)
        for suffix in SEGMENT_SUFFIXES:
            file = segment_file_name(base_offset, suffix)
            if suffix != SNAPSHOT_SUFFIX and directory.exists(join(source, file)):
                directory.link(join(source, file), join(made, file))
                self._linked_bytes += directory.size(join(made, file))

    def _copy_segment(self, partition: TopicPartition, base_offset: int, size: int) -> None:
        """Copy the beginning of a segment's log; a start makes the indexes."""
        directory, name = self._directory, str(partition)
        file = segment_file_name(base_offset, LOG_SUFFIX)
        source = join(join(self._request.source, name), file)
        made = join(join(self._made, name), file)
        with (
            closing(directory.open(source)) as old,
            closing(directory.open(made, create=True)) as new,
        ):
            for position in range(0, size, _COPY_BYTES):
                new.append((old.read(position, min(_COPY_BYTES, size - position)),))
            new.sync()
        self._copied_bytes += size

    def _roll(self, path: str, end_offset: int) -> None:
        """Give a log an empty last segment, unless it has one: the one before is shared."""
        if self._directory.exists(join(path, segment_file_name(end_offset, LOG_SUFFIX))):
            return
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
            self._directory.make_file(join(path, segment_file_name(end_offset, suffix)), 0)
        self._directory.sync(path)

    def _copy_file(self, name: str, file: str) -> None:
        directory = self._directory
        source = join(join(self._request.source, name), file)
        if directory.exists(source):
            made = join(join(self._made, name), file)
            directory.write_file_atomically(made, directory.read_file(source))

    def _abort_open(self, log: PartitionLog) -> None:
        producers = log.producer_state.producers
        for _, producer_id in log.producer_state.transactions.open:
            if producer_id in self._decided:
                continue
            entry = producers[producer_id]
            marker = encode_end_txn_marker(
                commit=False,
                coordinator_epoch=max(entry.coordinator_epoch, 0),
                producer_id=producer_id,
                producer_epoch=entry.producer_epoch,
                timestamp=self._now_ms,
            )
            log.writes.append_as_leader(
                memoryview(marker),
                leader_epoch=max(log.leader_epochs.latest_epoch, 0),
                now_ms=self._now_ms,
                origin=AppendOrigin.COORDINATOR,
            )
            self._aborted_count += 1
