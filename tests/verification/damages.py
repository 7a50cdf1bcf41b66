"""Random damages of all kinds of files: each is found by `ottla verify`, or harmless.

Harmless: a node that starts on the directory has equal records, answers, epochs and producers.
Run: python -m tests.verification.damages COUNT [SEED]
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import OttlaError
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.protocol.records.metadata import ConfigRecord, PartitionRecord, TopicRecord
from ottla.raft.log_check import check_log
from ottla.raft.quorum_state import ElectionState, QuorumStateStore
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.snapshot import encode_snapshot, snapshot_name
from ottla.records.batches import iterate_batches
from ottla.records.builder import encode_batch
from ottla.server.node.format import encode_meta_properties
from ottla.storage.directories.log_dir import LogDirectory, MetaProperties, decode_meta_properties
from ottla.storage.directories.partition_metadata import decode_partition_metadata
from ottla.storage.layout import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_MARKER,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    METADATA_LOG,
    QUORUM_STATE,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.storage.log.append_info import FetchIsolation
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_set.log_set import LogSet
from ottla.testing.disk import SimulatedDisk
from ottla.types import FileSlice, OffsetAndEpoch, TopicPartition, Uuid
from ottla.verification.findings import Severity
from ottla.verification.log_directory import check_log_directory
from ottla.verification.metadata import read_metadata
from ottla.verification.partition import PartitionCheck
from tests.storage.cleaner.cleaning import COMPACT, CleanerBed, put_keys
from tests.storage.logs import NOW_MS, SMALL, end, put, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.directory import Directory
    from ottla.storage.log.config import LogConfig
    from ottla.verification.findings import Finding

TOPICS = {name: Uuid(name.encode() * 16) for name in "act"}
NAMES = tuple(f"{name}-0" for name in TOPICS)
_MAX_BYTES = 1 << 20
_FETCH_TIMES = (0, NOW_MS, NOW_MS + 15, NOW_MS + 31, NOW_MS + 1000)


def config_of(topic: str) -> LogConfig:
    """Return the settings of a sample's topic."""
    return COMPACT if topic == "c" else SMALL


def sample() -> dict[str, bytes]:
    """Return the files of a node that stopped cleanly, by path."""
    disk = SimulatedDisk()
    _write_metadata(disk)
    logs = LogSet([LogDirectory("/d0", disk)], config_for=config_of, rng=Random(1))
    logs.load(NOW_MS, None)
    plain, compacted, transactions = (
        logs.get_or_create(TopicPartition(name, 0), topic_id=topic_id, now_ms=NOW_MS)
        for name, topic_id in TOPICS.items()
    )
    for number in range(60):
        put(plain, 1 + number % 3, epoch=number // 20, timestamp=NOW_MS + number)
        key = b"k%d" % (number % 7)
        put_keys(compacted, (key, b"v%d" % number), now_ms=NOW_MS)
    sequences = [0] * 3
    for number in range(50):
        producer = number % 3
        send(transactions, producer, sequences[producer], 2, transactional=True)
        sequences[producer] += 2
        if number % 4 == 3:
            end(transactions, producer, commit=number % 8 == 3)
    for log in (plain, compacted, transactions):
        log.update_high_watermark(log.log_end_offset)
    plain.truncation.delete_records_before(7)
    CleanerBed(logs).clean()
    logs.shutdown()
    return {path: disk.content(path) for path in disk.files()}


def _write_metadata(disk: SimulatedDisk) -> None:
    meta = MetaProperties(1, "abcdefghijklmnopqrstuw", 1, Uuid(b"d" * 16))
    disk.write_file_atomically(META_PROPERTIES, encode_meta_properties(meta, "today"))
    disk.write_file_atomically(BOOTSTRAP_CHECKPOINT, encode_snapshot([], now_ms=0))
    log = ReplicatedLog.open(disk, now_ms=0)
    messages = [TopicRecord(name=name, topic_id=topic_id) for name, topic_id in TOPICS.items()]
    values = [encode_record(MessageAndVersion(message, 0)) for message in messages]
    values += [
        encode_record(MessageAndVersion(partition, 0))
        for topic_id in TOPICS.values()
        for partition in (
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                removing_replicas=[],
                adding_replicas=[],
                leader=1,
            ),
        )
    ]
    compaction = ConfigRecord(
        resource_type=2, resource_name="c", name="cleanup.policy", value="compact"
    )
    values.append(encode_record(MessageAndVersion(compaction, 0)))
    for offset, value in enumerate(values):
        data = encode_batch([(0, None, value, ())], base_offset=offset, leader_epoch=3)
        log.append(data, epoch=3, now_ms=0)
    log.close(is_to_be_flushed=True)
    path = f"{METADATA_LOG}/{snapshot_name(OffsetAndEpoch(2, 3))}"
    disk.write_file_atomically(path, encode_snapshot(values[:2], now_ms=0, leader_epoch=3))
    QuorumStateStore(disk, METADATA_LOG).write(ElectionState(3, 1, 1), kraft_version=1)


def disk_with(files: dict[str, bytes]) -> SimulatedDisk:
    """Return a disk with these files."""
    disk = SimulatedDisk()
    for path, data in files.items():
        parent = path.rpartition("/")[0]
        if parent:
            disk.make(parent)
        with_data = disk.open(path, create=True)
        with_data.write_at(0, data)
    return disk


def find(disk: Directory, names: Sequence[str] = NAMES) -> list[Finding]:
    """Return what a check of the disk and of these partitions finds."""
    check = check_log_directory(disk, "/d0")
    findings = list(check.findings)
    for facts in check.partitions:
        if facts.name not in names:
            continue
        findings += PartitionCheck(disk, facts, records=False).run().findings
    return findings


class Served(NamedTuple):
    """What a node that starts has of one log; of the metadata log its records."""

    ends: tuple[int, int]
    records: tuple[Any, ...]
    answers: tuple[Any, ...]
    epochs: tuple[Any, ...]
    producers: tuple[Any, ...]


def serve(disk: Directory, names: Sequence[str] = NAMES) -> dict[str, Served | str]:
    """Start on a disk; by log what it serves, or the error with which it refuses to."""
    found: dict[str, Served | str] = {}
    try:
        decode_meta_properties(disk.read_file(META_PROPERTIES))
        QuorumStateStore(disk, METADATA_LOG).read()
        check_log(disk, "/d0")
        if not disk.exists(f"{METADATA_LOG}/{QUORUM_STATE}"):
            return dict.fromkeys((METADATA_LOG, *NAMES), "no quorum state")
        ReplicatedLog.open(disk, now_ms=0).close(is_to_be_flushed=True)
        image = read_metadata(disk).image
        state = tuple((kind.message, kind.version) for kind in image.records())
        found[METADATA_LOG] = Served((0, 0), tuple(map(repr, state)), (), (), ())
    except (OttlaError, OSError) as error:
        return dict.fromkeys((METADATA_LOG, *NAMES), str(error))
    for name in names:
        try:
            if not disk.is_directory(name):
                raise OSError("no directory")
            topic_id = image.topics.topic_id(name[0])
            metadata = disk.read_file(f"{name}/partition.metadata")
            if decode_partition_metadata(metadata) != topic_id:
                raise OSError("stray")
            log = start_log(disk, name, topic_id)
            found[name] = _served(log)
        except (OttlaError, OSError) as error:
            found[name] = str(error)
    return found


def start_log(disk: Directory, name: str, topic_id: Uuid | None = None) -> PartitionLog:
    """Open one log as a node that starts."""
    log_dir, partition = LogDirectory("/d0", disk), TopicPartition(name[0], 0)
    return PartitionLog.open(
        disk,
        name,
        config=config_of(name[0]),
        now_ms=NOW_MS,
        topic_id=topic_id or TOPICS[name[0]],
        clean=disk.exists(CLEAN_MARKER),
        recovery_point=log_dir.read_offsets(RECOVERY_POINT_CHECKPOINT).get(partition, 0),
        log_start_offset=log_dir.read_offsets(LOG_START_CHECKPOINT).get(partition, 0),
    )


def _served(log: PartitionLog) -> Served:
    log.update_high_watermark(log.log_end_offset)
    records = []
    for isolation in (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED):
        offset = log.log_start_offset
        while True:
            data, aborted = log.reads.find(offset, _MAX_BYTES, isolation, True)
            content = data.read() if isinstance(data, FileSlice) else bytes(data)
            if not content:
                break
            for batch in iterate_batches(memoryview(content)):
                batch.check_crc()  # as every client does
                offset = batch.next_offset
                is_aborted = any(
                    one.producer_id == batch.producer_id
                    and one.first_offset <= batch.base_offset <= one.last_offset
                    for one in aborted or ()
                )
                if not batch.is_control and not is_aborted:
                    records += [
                        (isolation.name, one.offset, one.timestamp, one.key, one.value)
                        for one in batch.records()
                    ]
    answers = tuple(log.reads.offset_for_timestamp(time) for time in (*_FETCH_TIMES, -3))
    entries = sorted(log.producer_state.producers.items())
    return Served(
        (log.log_start_offset, log.log_end_offset),
        tuple(records),
        answers,
        tuple(log.leader_epochs.entries),
        tuple((key, entry.as_tuple()[:5], entry.last_sequence) for key, entry in entries),
    )


def damaged(files: dict[str, bytes], rng: Random) -> tuple[dict[str, bytes], str, str]:
    """Return the files with one random damage, its path and a text; kinds equally often."""
    by_kind: dict[str, list[str]] = {}
    for path in sorted(path for path, data in files.items() if data):
        folder, _, name = path.rpartition("/")
        kind = name.rpartition(".")[2] if name[0].isdigit() else name
        is_metadata = folder == METADATA_LOG
        by_kind.setdefault(f"metadata {kind}" if is_metadata else kind, []).append(path)
    kind = rng.choice(sorted(by_kind))
    path = rng.choice(sorted(by_kind[kind]))
    data = bytearray(files[path])
    at, size = rng.randrange(len(data)), rng.randrange(1, 40)
    way = rng.choice(("bit", "byte", "zeros", "cut", "noise", "grow", "twice", "gone"))
    if way == "bit":
        data[at] ^= 1 << rng.randrange(8)
    elif way == "byte":
        data[at] = (data[at] + rng.randrange(1, 256)) % 256
    elif way == "zeros":
        data[at : at + size] = bytes(len(data[at : at + size]))
    elif way == "noise":
        data[at : at + size] = rng.randbytes(len(data[at : at + size]))
    elif way == "cut":
        del data[at:]
    elif way == "grow":
        data += rng.randbytes(size)
    elif way == "twice":
        data[at:at] = data[at : at + size]
    changed = {**files, path: bytes(data)}
    if way == "gone":
        del changed[path]
    return changed, path, f"{kind} {way} {path} byte {at}"


class Outcome(NamedTuple):
    """The result of one damage."""

    text: str
    is_found: bool
    is_harmless: bool
    is_served: bool
    """Whether a start serves content that was never appended."""
    is_exposed: bool
    """Whether a start serves deleted records again, aborted ones, or records at other offsets.

    Kafka does, too: it reads no batches after a clean stop. `ottla verify` finds each.
    """


def appended_records(files: dict[str, bytes]) -> dict[str, set[Any]]:
    """Return by log all records that its segments have, deleted and aborted ones, too."""
    found: dict[str, set[Any]] = {name: set() for name in NAMES}
    for path, data in files.items():
        name = path.rpartition("/")[0]
        if name in NAMES and path.endswith(".log"):
            for batch in iterate_batches(memoryview(data)):
                if not batch.is_control:
                    found[name] |= {(one.timestamp, one.key, one.value) for one in batch.records()}
    return found


def try_damage(
    files: dict[str, bytes],
    right: dict[str, Served | str],
    appended: dict[str, set[Any]],
    seed: int,
) -> Outcome:
    """Damage the files, check them and start on them."""
    changed, path, text = damaged(files, Random(seed))
    folder = path.rpartition("/")[0]
    names = (folder,) if folder in NAMES else NAMES
    findings = find(disk_with(changed), names)
    served = serve(disk_with(changed), names)
    is_wrong = is_exposed = False
    for name, view in served.items():
        expected = right[name]
        if name in NAMES and isinstance(view, Served) and isinstance(expected, Served):
            records = set(view.records)
            is_exposed |= not records <= set(expected.records)
            # a batch's offset is outside of its checksum: a start cannot see a change of it
            is_wrong |= not {record[2:] for record in records} <= appended[name]
    is_found = any(finding.severity is not Severity.NOTICE for finding in findings)
    is_harmless = all(right[name] == view for name, view in served.items())
    return Outcome(text, is_found, is_harmless, is_wrong, is_exposed)


def run(count: int, seed: int) -> int:
    """Try that many damages and print what came of them; return how many went unnoticed."""
    logging.disable(logging.WARNING)
    files = sample()
    right = serve(disk_with(files))
    assert not find(disk_with(files)), find(disk_with(files))
    assert all(isinstance(view, Served) for view in right.values()), right
    counts: Counter[str] = Counter()
    appended = appended_records(files)
    for number in range(seed, seed + count):
        outcome = try_damage(files, right, appended, number)
        state = "found" if outcome.is_found else "harmless" if outcome.is_harmless else "MISSED"
        counts[state] += 1
        counts["SERVED"] += outcome.is_served
        counts["exposed, found"] += outcome.is_exposed
        if state == "MISSED" or outcome.is_served:
            served = " SERVED" if outcome.is_served else ""
            sys.stdout.write(f"{state}{served} seed {number}: {outcome.text}\n")
    sys.stdout.write(f"{count} damages from seed {seed}: {dict(counts)}\n")
    return counts["MISSED"] + counts["SERVED"]


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0) > 0)
