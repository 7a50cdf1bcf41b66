"""The metadata log of a stopped node: its files checked, and its records read into an image.

Kafka: org.apache.kafka.shell.MetadataShell reads one file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import CorruptMessage, KafkaError, OttlaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import decode_record
from ottla.metadata.loader import MetadataLoader
from ottla.protocol.records.raft import KRaftVersionRecord, VotersRecord
from ottla.raft.log_check import check_log, find_snapshots
from ottla.raft.quorum_state import decode_quorum_state
from ottla.raft.snapshot import SnapshotReader, parse_snapshot_name, snapshot_name
from ottla.raft.voter_set import decode_control_message, voter_set_of
from ottla.records.batches import iterate_batches
from ottla.storage.directory import join
from ottla.storage.layout import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_MARKER,
    LOG_SUFFIX,
    METADATA_LOG,
    QUORUM_STATE,
    segment_file_name,
)
from ottla.storage.log.inspection import base_offsets
from ottla.types import OffsetAndEpoch
from ottla.verification.findings import damage, repairable
from ottla.verification.partition import examine_log

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.raft.voter_set import VoterSet
    from ottla.storage.directory import Directory
    from ottla.verification.findings import Finding

_ALWAYS: Final = 1 << 62


class StoredMetadata(NamedTuple):
    """All metadata of a log, up to its end or to a moment."""

    image: MetadataImage
    voters: VoterSet | None
    """Of the newest record; None with static voters."""
    kraft_version: int
    end_offset: int
    last_epoch: int
    last_timestamp: int


def read_metadata(
    directory: Directory, subdirectory: str = METADATA_LOG, *, until_ms: int = _ALWAYS
) -> StoredMetadata:
    """Read the newest snapshot that is not later than until_ms, and the log after it.

    CorruptMessage when records cannot be applied. Snapshots that cannot be read are left out.
    """
    loader = MetadataLoader()
    reader, at = _newest_snapshot(directory, subdirectory, loader, until_ms)
    kraft_version, voters = (reader.kraft_version, reader.voters) if reader else (0, None)
    timestamp = reader.last_contained_log_timestamp if reader else -1
    for base_offset in base_offsets(directory, subdirectory):
        path = join(subdirectory, segment_file_name(base_offset, LOG_SUFFIX))
        for batch in iterate_batches(memoryview(directory.read_file(path))):
            if batch.next_offset <= at.offset:
                continue
            batch.check_crc()
            if batch.max_timestamp > until_ms:
                return StoredMetadata(loader.image, voters, kraft_version, *at, timestamp)
            at = OffsetAndEpoch(batch.next_offset, batch.leader_epoch)
            timestamp = max(timestamp, batch.max_timestamp)
            if not batch.is_control:
                records = [decode_record(record.value) for record in batch.records()]
                loader.load_batch(records, at, MetadataDelta())
                continue
            for message in map(decode_control_message, batch.records()):
                if isinstance(message, KRaftVersionRecord):
                    kraft_version = message.kraft_version
                elif isinstance(message, VotersRecord):
                    voters = voter_set_of(message)
    loader.committed(at)
    return StoredMetadata(loader.image, voters, kraft_version, *at, timestamp)


def _newest_snapshot(
    directory: Directory, subdirectory: str, loader: MetadataLoader, until_ms: int
) -> tuple[SnapshotReader | None, OffsetAndEpoch]:
    for snapshot_id in reversed(_snapshots(directory, subdirectory)):
        data = directory.read_file(join(subdirectory, snapshot_name(snapshot_id)))
        reader = SnapshotReader(data, snapshot_id)
        try:
            records = [decode_record(value) for value in reader.values()]
        except CorruptMessage:
            continue
        if reader.last_contained_log_timestamp <= until_ms:
            loader.load_snapshot(records, snapshot_id, MetadataDelta())
            return reader, snapshot_id
    return None, OffsetAndEpoch(0, 0)


def _snapshots(directory: Directory, subdirectory: str) -> list[OffsetAndEpoch]:
    found = map(parse_snapshot_name, directory.list(subdirectory))
    return sorted(one for one in found if one is not None)


def check_metadata(directory: Directory, path: str) -> tuple[StoredMetadata | None, list[Finding]]:
    """Check the files of the metadata log; also return what it holds, None when that is unknown.

    path is the log directory's name for texts.
    """
    findings: list[Finding] = []
    step = f"restore {METADATA_LOG} from a backup, or see ottla log-repair --log-dir {path}"
    lost = "the next start is refused"
    try:
        check_log(directory, path)
    except KafkaError as error:
        findings.append(damage(METADATA_LOG, str(error.message), lost, step))
    # a start after a crash makes the indexes again
    log = examine_log(
        directory, METADATA_LOG, recovered_from=_ALWAYS if directory.exists(CLEAN_MARKER) else 0
    )
    findings += log.index_findings
    broken = log.inspection.damage
    if broken is not None and not findings:
        text = "records of the metadata may be lost"
        findings.append(damage(broken.path, str(broken), text, step))
    for snapshot_id in find_snapshots(directory):
        name = join(METADATA_LOG, snapshot_name(snapshot_id))
        try:
            for value in SnapshotReader(directory.read_file(name), snapshot_id).values():
                decode_record(value)
        except OttlaError as error:
            text = "an older one and the log are read"
            findings.append(
                repairable(name, str(error), text, "remove it while the node is stopped")
            )
    findings += _check_quorum_state(directory, log.inspection.last_epoch, path)
    try:
        return read_metadata(directory), findings
    except OttlaError as error:
        findings.append(damage(METADATA_LOG, f"cannot be applied: {error}", lost, step))
        return None, findings


def _check_quorum_state(directory: Directory, last_epoch: int, path: str) -> list[Finding]:
    name = join(METADATA_LOG, QUORUM_STATE)
    step = f"of an only voter: ottla log-repair --log-dir {path} --new-quorum-state"
    meaning = "the next start is refused"
    if not directory.exists(name):
        # a broker that never took part in a vote has none (Kafka writes it at the first epoch)
        return [] if last_epoch < 0 else [damage(name, "is missing", meaning, step)]
    try:
        state = decode_quorum_state(directory.read_file(name))
    except CorruptMessage as error:
        return [damage(name, str(error.message), meaning, step)]
    if state.leader_epoch < last_epoch:
        problem = f"has epoch {state.leader_epoch}, the log has {last_epoch}"
        return [damage(name, problem, "the node may vote twice in an epoch", step)]
    return []


def check_bootstrap(directory: Directory) -> list[Finding]:
    """Check the snapshot from which a new cluster starts, where there is one."""
    if not directory.exists(BOOTSTRAP_CHECKPOINT):
        return []
    try:
        SnapshotReader(directory.read_file(BOOTSTRAP_CHECKPOINT)).check()
    except CorruptMessage as error:
        text = "a cluster that has run does not need it"
        step = "restore it if the cluster is new"
        return [repairable(BOOTSTRAP_CHECKPOINT, str(error.message), text, step)]
    return []
