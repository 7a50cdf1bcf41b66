"""Check of one partition's directory: every batch, and every file that says something of them.

The batches are read once, by the code that recovery uses. What a start would rebuild by itself is
told from damage that it would serve or refuse.

Kafka: none; org.apache.kafka.storage.internals.log.LogLoader repairs at a start.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import xxhash

from ottla.errors import CorruptMessage
from ottla.records.batches import batch_at
from ottla.storage.directories.partition_metadata import decode_partition_metadata
from ottla.storage.directory import join
from ottla.storage.layout import (
    FILE_OF_LOG,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    base_offset_of,
)
from ottla.storage.log.abort_check import AbortCheck
from ottla.storage.log.inspection import base_offsets, inspect_log
from ottla.storage.log.leader_epochs import LeaderEpochs, decode_leader_epochs
from ottla.storage.producers.snapshot import decode_snapshot
from ottla.verification.findings import damage, notice, repairable
from ottla.verification.indexes import EpochCheck, IndexCheck, OffsetGaps

if TYPE_CHECKING:
    from ottla.records.record import Record
    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory
    from ottla.storage.log.abort_check import WrongIndex
    from ottla.storage.log.inspection import BatchVisitor, LogInspection
    from ottla.verification.findings import Finding

_NEVER: Final = 1 << 62
_BY_START: Final = "nothing to do, the next start rebuilds it"


class StoredPartition(NamedTuple):
    """What the files outside of a partition's directory say of it; -1 where they say nothing."""

    name: str
    """Of the directory."""
    is_clean: bool = True
    """Whether the last run ended cleanly: a start then reads no batches."""
    recovery_point: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    cleaned_offset: int = -1
    is_compacted: bool = False
    """Whether the topic's settings say so, or the cleaner has a checkpoint."""
    topic_id: str = ""
    """By the cluster's metadata; empty where that is unknown."""


class PartitionReport(NamedTuple):
    """The result of one partition's check."""

    name: str
    start_offset: int
    end_offset: int
    bytes_read: int
    findings: list[Finding]


class LogExamination(NamedTuple):
    """The log of a partition as far as its batches and indexes go."""

    inspection: LogInspection
    wrong_indexes: list[WrongIndex]
    """Transaction indexes that contradict the records."""
    index_findings: list[Finding]
    """Wrong offset and time indexes."""


class _Records:
    """Decodes the records of every batch, which also decompresses them.

    Below the cleaner's checkpoint each key may occur once.
    """

    def __init__(self, cleaned_offset: int) -> None:
        self.problem = ""
        self.repeated_offset = -1
        """Of the first record below the checkpoint whose key an earlier record has."""
        self._cleaned_offset = cleaned_offset
        self._keys: set[int] = set()
        """Hashes of 64 bits, as keys may be long: 60 MB for a million."""

    def begin_segment(self, _base_offset: int, _size: int) -> None:
        """Segments make no difference."""

    def batch(self, header: BatchHeader, data: memoryview) -> None:
        """Decode one batch; only the first error is kept."""
        if self.problem:
            return
        try:
            records = batch_at(data, 0).records()
        except CorruptMessage as error:
            self.problem = f"the batch at offset {header.base_offset} has wrong records: {error}"
            return
        outside = [
            record.offset
            for record in records
            if not header.base_offset <= record.offset <= header.last_offset
        ]
        if outside and header.magic == 2:
            self.problem = f"the batch at offset {header.base_offset} has a record {outside[0]}"
        if header.last_offset < self._cleaned_offset and not header.is_control:
            self._check_keys(records)

    def _check_keys(self, records: list[Record]) -> None:
        for record in records:
            key = xxhash.xxh64_intdigest(record.key or b"")
            if key in self._keys and self.repeated_offset < 0:
                self.repeated_offset = record.offset
            self._keys.add(key)


def examine_log(
    directory: Directory,
    name: str,
    *,
    recovered_from: int = _NEVER,
    visitors: tuple[BatchVisitor, ...] = (),
) -> LogExamination:
    """Read all batches of a log and compare its indexes with them.

    Offset and time indexes of segments from base offset recovered_from on are left out.
    """
    aborts, indexes = AbortCheck(directory, name), IndexCheck(directory, name, recovered_from)
    found = inspect_log(directory, name, may_have_gaps=True, visitors=(indexes, aborts, *visitors))
    is_damaged = found.damage is not None
    indexes.finish(is_damaged=is_damaged)
    wrong = aborts.wrong_indexes(is_damaged=is_damaged)
    return LogExamination(found, wrong, indexes.findings)


class PartitionCheck:
    """Checks one partition; `run` is called once, for instance in a process of its own."""

    def __init__(self, directory: Directory, facts: StoredPartition, *, records: bool) -> None:
        """With records every record is decoded, too: compressed ones take time."""
        self._directory = directory
        self._facts = facts
        self._name = facts.name
        self._records = _Records(facts.cleaned_offset) if records else None
        self._findings: list[Finding] = []

    def run(self) -> PartitionReport:
        """Check all files; OSError when the disk fails."""
        directory, facts, name = self._directory, self._facts, self._name
        bases, names = base_offsets(directory, name), directory.list(name)
        recovered_from = first_recovered(bases, facts.recovery_point, is_clean=facts.is_clean)
        self._check_names(names, bases)
        self._check_topic_id(names)
        epochs = self._read_epochs(names)
        unchecked = 0 if epochs is None else recovered_from
        epoch_check = EpochCheck(epochs or LeaderEpochs(), unchecked, facts.log_start_offset)
        gaps = OffsetGaps(max(facts.cleaned_offset, 0))
        visitors: tuple[BatchVisitor, ...] = (epoch_check, gaps)
        if self._records is not None:
            visitors = (*visitors, self._records)
        log = examine_log(directory, name, recovered_from=recovered_from, visitors=visitors)
        found = log.inspection
        self._check_damage(found)
        self._findings += log.index_findings
        self._findings += [
            repairable(
                wrong.path,
                "contradicts the records",
                "read_committed consumers may get records of aborted transactions",
                "ottla log-repair --rebuild-transaction-indexes",
            )
            for wrong in log.wrong_indexes
        ]
        if epoch_check.problem:
            self._add_epochs(epoch_check.problem)
        if gaps.gap is not None:
            self._add_gap(*gaps.gap)
        if self._records is not None:
            self._check_records(self._records)
        start = max(facts.log_start_offset, bases[0] if bases else 0)
        if epochs is not None and epochs.entries and not epoch_check.has_batches_without:
            first = epochs.entries[0].start_offset
            if facts.is_clean and not epoch_check.problem and first > start:
                self._add_epochs(f"begins at offset {first}, the log at {start}")
        self._check_offsets(found, epochs)
        self._check_snapshots(names, max(found.reach, facts.log_start_offset))
        size = sum(directory.size(join(name, f"{base:020d}{LOG_SUFFIX}")) for base in bases)
        return PartitionReport(name, found.start_offset, found.end_offset, size, self._findings)

    def _lost(self, problem: str, meaning: str, path: str = "") -> None:
        step = f"restore a replica or a backup, or see ottla log-repair --partition {self._name}"
        self._findings.append(damage(path or self._name, problem, meaning, step))

    def _check_records(self, records: _Records) -> None:
        if records.problem:
            self._lost(records.problem, "consumers cannot decode it")
        if records.repeated_offset >= 0:
            problem = f"offset {records.repeated_offset} repeats a key below the cleaner's offset"
            text = "the log was not compacted up to there"
            step = "stop the node and remove cleaner-offset-checkpoint: it compacts again"
            self._findings.append(repairable(self._name, problem, text, step))

    def _add_gap(self, first: int, last: int) -> None:
        problem = f"offsets {first} to {last} are missing"
        if not self._facts.is_compacted:
            self._lost(problem, "the topic is not compacted")
            return
        text = "a compaction may have removed them before its checkpoint was written"
        self._findings.append(notice(self._name, problem, text, "compare it with a replica"))

    def _check_names(self, names: list[str], bases: list[int]) -> None:
        for name in names:
            path = join(self._name, name)
            stem, dot, suffix = name.partition(".")
            base_offset = base_offset_of(name, dot + suffix)
            if not FILE_OF_LOG.fullmatch(name):
                text = "a node never opens it"
                self._findings.append(notice(path, "is no file of a log", text, "move it away"))
            elif base_offset is None or dot + suffix not in SEGMENT_SUFFIXES:
                if stem.isdecimal() or name.endswith(TEMPORARY_SUFFIX):
                    text = "a deletion or a change was interrupted by the stop"
                    step = "nothing to do, the next start finishes it"
                    self._findings.append(notice(path, "is unfinished", text, step))
            elif dot + suffix not in {LOG_SUFFIX, SNAPSHOT_SUFFIX} and base_offset not in bases:
                step = "look for the .log file of this name"
                if self._directory.size(path) == 0:  # of a roll that a crash interrupted
                    text = "the next start removes it"
                    self._findings.append(notice(path, "has no segment", text, "nothing to do"))
                else:
                    text = "records are missing unless the segment was deleted"
                    self._findings.append(damage(path, "has no segment", text, step))

    def _check_topic_id(self, names: list[str]) -> None:
        path = join(self._name, PARTITION_METADATA)
        expected = self._facts.topic_id
        meaning = "the next start sets the log aside as stray"
        if PARTITION_METADATA not in names:
            self._findings.append(
                damage(path, "is missing", meaning, self._topic_id_step(expected))
            )
            return
        try:
            topic_id = str(decode_partition_metadata(self._directory.read_file(path)))
        except CorruptMessage as error:
            step = self._topic_id_step(expected)
            self._findings.append(damage(path, str(error.message), meaning, step))
            return
        if expected and topic_id != expected:
            problem = f"has topic id {topic_id}, the cluster's metadata has {expected}"
            step = "remove the directory if the topic was deleted"
            self._findings.append(damage(path, problem, meaning, step))

    @staticmethod
    def _topic_id_step(expected: str) -> str:
        return f"write `version: 0` and `topic_id: {expected or 'ID'}` into it"

    def _read_epochs(self, names: list[str]) -> LeaderEpochs | None:
        """Return the epochs of the checkpoint, None when it cannot be used."""
        if LEADER_EPOCH_CHECKPOINT not in names:
            if base_offsets(self._directory, self._name):
                self._add_epochs("is missing")
            return None
        path = join(self._name, LEADER_EPOCH_CHECKPOINT)
        try:
            epochs = decode_leader_epochs(self._directory.read_file(path))
        except CorruptMessage as error:
            self._add_epochs(str(error.message))
            return None
        entries = epochs.entries
        for earlier, later in pairwise(entries):
            if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
                self._add_epochs(f"has epoch {later.epoch} from offset {later.start_offset} on")
                return None
        return epochs

    def _add_epochs(self, problem: str) -> None:
        path = join(self._name, LEADER_EPOCH_CHECKPOINT)
        meaning = "replicas may be truncated at a wrong offset"
        step = "stop the node and remove it: the start takes the epochs from the batches"
        self._findings.append(repairable(path, problem, meaning, step))

    def _check_damage(self, found: LogInspection) -> None:
        facts, broken = self._facts, found.damage
        if broken is None and found.end_offset < facts.recovery_point:
            problem = f"everything below offset {facts.recovery_point} was flushed, but it ends at"
            self._lost(f"{problem} {found.end_offset}", "the next start refuses the partition")
        if broken is None:
            return
        text = f"damaged at byte {broken.position} (offset {broken.offset}): {broken.reason}"
        if broken.following_batches:
            text += f"; {broken.following_batches} valid batches up to {broken.end_offset} follow"
        if facts.is_clean or found.end_offset < facts.recovery_point or broken.following_batches:
            self._lost(text, "records are lost", broken.path)
        else:
            meaning = "a torn write that was never flushed"
            step = "nothing to do, the next start removes it"
            self._findings.append(notice(broken.path, text, meaning, step))

    def _check_offsets(self, found: LogInspection, epochs: LeaderEpochs | None) -> None:
        """Check what the checkpoints of the log directory and the epochs say of the log's ends."""
        facts = self._facts
        end, start = max(found.end_offset, 0), facts.log_start_offset
        if facts.is_clean and facts.high_watermark > max(end, start):
            problem = f"the high watermark {facts.high_watermark} is above the log's end {end}"
            self._lost(problem, "acknowledged records are missing")
        if facts.is_clean and found.damage is None and end > max(facts.recovery_point, start):
            problem = f"ends at offset {end}, and did at {facts.recovery_point} when it was closed"
            self._lost(problem, "a batch has changed its offset")
        if facts.cleaned_offset > end:
            problem = f"the cleaner's checkpoint {facts.cleaned_offset} is above the log's end"
            text = "new records would not be compacted up to there"
            step = "stop the node and remove cleaner-offset-checkpoint"
            self._findings.append(repairable(self._name, problem, text, step))
        if epochs is not None and epochs.entries:
            first = epochs.entries[0].start_offset
            if facts.is_clean and start > first and end > start:
                problem = f"the log start offset {start} is above the first epoch's offset {first}"
                self._lost(problem, "records that were not deleted would be hidden")
            last = epochs.entries[-1].start_offset
            if facts.is_clean and found.damage is None and last > max(end, start):
                self._add_epochs(f"has an epoch from offset {last} on, the log ends at {end}")

    def _check_snapshots(self, names: list[str], end_offset: int) -> None:
        for name in names:
            offset = base_offset_of(name, SNAPSHOT_SUFFIX)
            if offset is None:
                continue
            path = join(self._name, name)
            try:
                entries = decode_snapshot(self._directory.read_file(path))
            except CorruptMessage as error:
                meaning = "idempotent producers are read from the batches"
                self._findings.append(repairable(path, str(error.message), meaning, _BY_START))
                continue
            latest = max((entry.last_data_offset for entry in entries), default=-1)
            if offset > max(end_offset, 0) or latest >= offset:
                problem = f"has producers up to offset {max(offset, latest)}"
                meaning = f"the log ends at {end_offset}"
                step = "stop the node and remove it: the start makes it again"
                self._findings.append(repairable(path, problem, meaning, step))


def first_recovered(bases: list[int], recovery_point: int, *, is_clean: bool) -> int:
    """Return the base offset of the first segment that a start reads whole and indexes again."""
    if is_clean or not bases:
        return _NEVER
    return max((base for base in bases if base <= recovery_point), default=bases[0])
