"""Each fsync of the source is needed: a test notices when it does nothing.

`scripts/simulate --syncs` finds the places and the runs that notice them.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla.errors import ConfigError, KafkaError
from ottla.raft.log_check import finish_truncation
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.snapshot import SnapshotDownload, encode_snapshot
from ottla.records.builder import encode_batch
from ottla.server.node.identity import write_directory_id
from ottla.storage.directories.checkpoints import decode_offsets, encode_offsets
from ottla.storage.directories.log_dir import LogDirectory, decode_meta_properties
from ottla.storage.layout import CLEAN_MARKER, META_PROPERTIES, RECOVERY_POINT_CHECKPOINT
from ottla.storage.log.inspection import LogInspection, inspect_log
from ottla.storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ottla.storage.log.repair import lower_checkpoints, truncate_log
from ottla.storage.log.truncation import write_remote_state
from ottla.storage.remote.copying import next_candidate
from ottla.storage.remote.managers.directory import ROOT, DirectoryStorage
from ottla.testing.disk import SimulatedDisk
from ottla.types import OffsetAndEpoch, TopicPartition, Uuid
from tests.simulation.nodes import sweep
from tests.storage.cleaner.cleaning import COMPACT, CleanerBed, put_keys, records_of
from tests.storage.logs import NOW_MS, close, end, flush, new_log, put, send
from tests.storage.remote.test_directory_manager import files_of, segment_of, storage_of
from tests.storage.sets import A, drain, make, open_set

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = Path(ottla.__file__).parent
T0 = TopicPartition("t", 0)
NOTICED_BY_OPERATION = {
    "LogDirectory.mark_clean: "
    "self.directory.write_file_atomically(CLEAN_MARKER, data.encode())": 66,
    "LogDirectory.write_offsets_to_new_file: file.sync()": 66,
    "FlushJob._run: file.sync()": 61,
    "FlushJob._run: open_directory.sync()": 64,
    "replace_file: open_directory.sync_file(temporary)": 64,
    "_write: directory.write_file_atomically(BOOTSTRAP_CHECKPOINT, bootstrap)": 19,
    "_write: directory.write_file_atomically(META_PROPERTIES, data)": 19,
    "_write: directory.write_file_atomically(path, snapshot, mode=SNAPSHOT_MODE)": 18,
    "QuorumStateStore.write: self._directory.write_file_atomically(self._path, data)": 44,
    "write_recovery_point: directory.write_file_atomically("
    "_RECOVERY_POINT_PATH, encode_offsets({_PARTITION: offset}))": 66,
}
"""By place: a file operation of the sweep at which a power cut shows it, tried first."""
NOTICED_BY_SEED = {"SharedSync.run: self._directory.sync()": 3}
OPENED = "LogDirectory.open: directory.sync()"
CHECKPOINT = "CheckpointJob.run_now: self._log_dir.directory.sync()"
LOWERED = "DurableCheckpoint._make_durable: self._log_dir.directory.sync()"
PRODUCERS = "FlushJob._run: open_directory.sync_file(name)"
TRANSACTIONS = "TransactionIndex.replace: self.directory.write_file_atomically(self.path, data)"
REPAIR_CHECKPOINTS = (
    "lower_checkpoints: directory.write_file_atomically(name, encode_offsets(offsets))"
)
REPAIR_MARKER = "lower_checkpoints: directory.sync()"
REPAIR_LOG = "truncate_log: file.sync()"
REPAIR_NAMES = "truncate_log: directory.sync(subdirectory)"
SNAPSHOT = (
    "ReplicatedLog.snapshot_writer.<locals>.write: "
    'directory.write_file_atomically(path, b"".join(parts), mode=SNAPSHOT_MODE)'
)
FETCHED = "SnapshotDownload.finish: file.sync()"
CLEANED = "Cleaner._make_durable: file.sync()"
CLEANED_CHECKPOINT = "Cleaner._make_durable: self._directory.sync()"
FETCHED_NAME = "SnapshotDownload.finish: self._directory.sync(METADATA_LOG)"
IDENTIFIED = "write_directory_id: log_dir.directory.write_file_atomically(META_PROPERTIES, data)"
TRUNCATED = (
    "begin_truncation: "
    "directory.write_file_atomically(_TRUNCATION_PATH, encode_offsets({_PARTITION: offset}))"
)
REMOTE_STATE = "write_remote_state: held.sync()"
REBUILT_SNAPSHOT = "SegmentToCopy._rebuild_snapshot: held.sync()"
REMOTE_ROOT = "DirectoryStorage.configure: directory.sync()"
REMOTE_MARKER = (
    'DirectoryStorage._claim: directory.write_file_atomically(MARKER, f"{cluster_id}\\n".encode())'
)
REMOTE_FILE = "DirectoryStorage.copy_segment: file.sync()"
REMOTE_NAMES = "DirectoryStorage.copy_segment: directory.sync(parent)"
REMOTE_PARTITION = "DirectoryStorage.copy_segment: directory.sync(ROOT)"
REMOTE_REMOVED = (
    'DirectoryStorage._remove: self._directory.sync(f"{ROOT}/{partition_path(segment)}")'
)

NOTICED_AFTER_A_CALL = {
    CLEANED,
    CLEANED_CHECKPOINT,
    FETCHED,
    FETCHED_NAME,
    IDENTIFIED,
    OPENED,
    CHECKPOINT,
    LOWERED,
    PRODUCERS,
    SNAPSHOT,
    TRANSACTIONS,
    REPAIR_CHECKPOINTS,
    REPAIR_MARKER,
    REPAIR_LOG,
    REPAIR_NAMES,
    TRUNCATED,
    REMOTE_STATE,
    REBUILT_SNAPSHOT,
    REMOTE_ROOT,
    REMOTE_MARKER,
    REMOTE_FILE,
    REMOTE_NAMES,
    REMOTE_PARTITION,
    REMOTE_REMOVED,
}
NOTICED = {*NOTICED_BY_OPERATION, *NOTICED_BY_SEED, *NOTICED_AFTER_A_CALL}
NODE_PACKAGES = ("raft", "storage", "server/node")
SYNCS = {"sync", "sync_file", "write_file_atomically"}
NO_SYNC = {"PartitionLog.write_partition_metadata"}
"""It writes with sync=False: the next flush makes the file durable."""


def _places_that_sync() -> set[str]:
    """Return the calls of the source that sync something, each after its function's name."""
    found: set[str] = set()

    def visit(node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = owner
            if isinstance(child, ast.ClassDef):
                inner = f"{owner}{child.name}."
            elif isinstance(child, ast.FunctionDef):
                inner = f"{owner}{child.name}.<locals>."
            elif isinstance(child, ast.Call) and getattr(child.func, "attr", "") in SYNCS:
                function = owner.removesuffix(".<locals>.")
                if function not in NO_SYNC:
                    found.add(f"{function}: {ast.unparse(child)}")
            visit(child, inner)

    for package in NODE_PACKAGES:
        for path in (SOURCE / package).rglob("*.py"):
            text = path.read_text()
            if any(name in text for name in SYNCS):
                visit(ast.parse(text), "")
    return found


def test_every_sync_of_the_source_is_in_the_tables() -> None:
    """A new fsync needs a run or a test that notices its absence."""
    places = (place.partition(": ") for place in NOTICED)
    in_tables = {f"{function}: {ast.unparse(ast.parse(call))}" for function, _, call in places}
    assert _places_that_sync() == in_tables


@pytest.mark.soak
def test_every_sync_of_a_workload_is_in_the_tables() -> None:
    """Each place by its function and line, of which a function may have several."""
    found = sweep.sync_places(3)
    assert found <= NOTICED
    assert len(found) > 10


@pytest.mark.conformance
@pytest.mark.parametrize("place", NOTICED_BY_OPERATION)
def test_a_power_cut_shows_a_missing_sync(place: str) -> None:
    """A promise breaks without the sync; with it the same run passes."""
    first = NOTICED_BY_OPERATION[place]
    nearest = sorted(range(1, 2 * first), key=lambda operation: abs(operation - first))
    shown_at = next(one for one in nearest if sweep.is_noticed_at(place, one))
    sweep.crash_at(0, shown_at, power=True)


@pytest.mark.conformance
@pytest.mark.parametrize("place", NOTICED_BY_SEED)
def test_a_workload_shows_a_missing_sync(place: str) -> None:
    """A promise breaks in a seeded run."""
    first = NOTICED_BY_SEED[place]
    nearest = sorted(range(3 * first), key=lambda seed: abs(seed - first))
    assert any(sweep.is_noticed(place, seed) for seed in nearest)


def _marker_returns(seed: int) -> bool:
    disk = SimulatedDisk(seed)
    log_dir = LogDirectory("/d0", disk)
    log_dir.open()
    log_dir.mark_clean(1)
    disk.kill()
    LogDirectory("/d0", disk).open()
    disk.crash()
    return disk.exists(CLEAN_MARKER)


def _directory_id_changes(seed: int) -> bool:
    disk = SimulatedDisk(seed)
    old = b"version=1\ncluster.id=c\nnode.id=1\n"
    disk.write_file_atomically(META_PROPERTIES, old)
    log_dir = LogDirectory("/d0", disk)
    log_dir.open()
    log_dir.meta = decode_meta_properties(old)
    meta = write_directory_id(log_dir, Uuid(b"i" * 16), 0)
    disk.crash()
    content = disk.content(META_PROPERTIES) if disk.exists(META_PROPERTIES) else old
    return not content or decode_meta_properties(content) != meta


def _checkpoint_is_lost(seed: int) -> bool:
    disk = SimulatedDisk(seed)
    logs = open_set(disk)
    log = make(logs)
    put(log)
    drain(logs)
    flush(log)
    logs.checkpoints.write_now(logs.table.log_dirs[A])
    disk.crash()
    if not disk.exists(RECOVERY_POINT_CHECKPOINT):
        return True
    return decode_offsets(disk.content(RECOVERY_POINT_CHECKPOINT)).get(A) != log.recovery_point


def _lowered_point_rises(seed: int) -> bool:
    """Cut a log below the recovery point that is stored: the stored one must not come back."""
    disk = SimulatedDisk(seed)
    logs = open_set(disk)
    log = make(logs)
    put(log)
    put(log)
    drain(logs)
    flush(log)
    logs.checkpoints.write_now(logs.table.log_dirs[A])

    def run_in_worker(_volume: object, job: Callable[[], None], done: Callable[..., None]) -> None:
        job()
        done(None, None)

    (lowered,) = logs.checkpoints.lower([(log, 1)])
    lowered.start(run_in_worker)
    disk.crash()
    return decode_offsets(disk.content(RECOVERY_POINT_CHECKPOINT)).get(A, 0) > 1


def _producer_is_forgotten(seed: int) -> bool:
    disk = SimulatedDisk(seed)
    log = new_log(disk)
    send(log, 1, 0)
    for number in range(20):
        send(log, 2, number)
    flush(log)
    log.update_high_watermark(log.log_end_offset)
    log.truncation.delete_records_before(log.segments.base_offsets[1])
    log.truncation.delete_old_segments(NOW_MS)
    recovery_point, start = log.recovery_point, log.log_start_offset
    disk.crash()
    again = new_log(disk, recovery_point=recovery_point, log_start_offset=start)
    return 1 not in again.producer_state.producers


def _snapshot_is_lost(seed: int) -> bool:
    disk = SimulatedDisk(seed)
    log = ReplicatedLog.open(disk, now_ms=0)
    data = encode_snapshot([b"x"], now_ms=0, leader_epoch=1, last_contained_log_timestamp=0)
    write, _written = log.snapshot_writer(OffsetAndEpoch(0, 1), [data])
    write()
    path = next(one for one in disk.files() if one.endswith(".checkpoint"))
    disk.crash()
    return not disk.exists(path) or disk.content(path) != data


def _fetched_snapshot_is_lost(seed: int) -> bool:
    disk = SimulatedDisk(seed)
    ReplicatedLog.open(disk, now_ms=0)
    snapshot_id = OffsetAndEpoch(4, 1)
    data = encode_snapshot([b"x"], now_ms=0, leader_epoch=1, last_contained_log_timestamp=0)
    download = SnapshotDownload(disk, snapshot_id)
    download.store(0, data[:50])
    download.store(50, data[50:])
    download.finish(snapshot_id)
    path = next(one for one in disk.files() if one.endswith(".checkpoint"))
    disk.crash()
    return not disk.exists(path) or disk.content(path) != data


def _aborts_are_lost(seed: int) -> bool:
    """Recover a corrupt transaction index below the recovery point, which no flush writes."""
    disk = SimulatedDisk(seed)
    log = new_log(disk)
    for producer_id in range(1, 9):
        send(log, producer_id, 0, transactional=True)
        end(log, producer_id, commit=False)
    while len(log.segments) < 3:
        put(log)
    log.update_high_watermark(log.log_end_offset)
    close(log)
    path = next(one for one in disk.files() if one.endswith(".txnindex") and disk.size(one))
    expected = disk.content(path)
    disk.open(path).truncate(len(expected) - 1)
    disk.open(path).sync()
    new_log(disk, recovery_point=log.recovery_point).release()
    assert disk.content(path) == expected
    disk.crash()
    return not disk.exists(path) or disk.content(path) != expected


def _repaired(seed: int) -> tuple[SimulatedDisk, LogInspection]:
    """Return a disk with a damaged log of three segments that was truncated as on request."""
    disk = SimulatedDisk(seed)
    log_dir = LogDirectory("/d0", disk)
    log_dir.open()
    log = new_log(disk)
    while len(log.segments) < 3:
        put(log)
    close(log)
    points = {T0: log.log_end_offset}
    disk.write_file_atomically(RECOVERY_POINT_CHECKPOINT, encode_offsets(points))
    log_dir.mark_clean(1)
    disk.flip_bit(f"{T0}/{0:020d}.log", 100, 1)
    found = inspect_log(disk, str(T0), may_have_gaps=True)
    lower_checkpoints(log_dir, T0, found.end_offset)
    truncate_log(disk, str(T0), found)
    return disk, found


def _recovery_point_returns(seed: int) -> bool:
    disk, found = _repaired(seed)
    disk.crash()
    point = decode_offsets(disk.content(RECOVERY_POINT_CHECKPOINT)).get(T0, -1)
    return point != found.end_offset


def _marker_of_repair_returns(seed: int) -> bool:
    disk, _ = _repaired(seed)
    disk.crash()
    return disk.exists(CLEAN_MARKER)


def _damage_returns(seed: int) -> bool:
    disk, _ = _repaired(seed)
    disk.crash()
    return inspect_log(disk, str(T0), may_have_gaps=True).damage is not None


def _removed_segments_return(seed: int) -> bool:
    disk, _ = _repaired(seed)
    disk.crash()
    return sum(one.endswith(".log") for one in disk.list(str(T0))) > 1


def _truncated(seed: int) -> SimulatedDisk:
    """Return a disk without power after a truncation of the metadata log over several segments."""
    disk = SimulatedDisk(seed)
    log = ReplicatedLog.open(disk, now_ms=0, segment_bytes=300)
    for _ in range(20):
        batch = encode_batch([(0, None, bytes(10), ())], base_offset=log.end_offset, leader_epoch=1)
        log.append(batch, epoch=1, now_ms=0)
        job = log.start_flush(0)
        assert job is not None
        job.run()
        log.flush_completed(job)
    log.truncate_to(1 + seed % 10, now_ms=0)
    disk.crash()
    return disk


def _truncation_has_gaps(seed: int) -> bool:
    disk = _truncated(seed)
    finish_truncation(disk)
    disk.crash()  # what the start has finished stays so
    try:
        log = ReplicatedLog.open(disk, now_ms=0, segment_bytes=300)
    except KafkaError:
        return True
    return [one.base_offset for one in log.read(0)] != list(range(log.end_offset))


def _compacted_is_lost(seed: int) -> bool:
    """Compact a log, and flush it or its names alone; its last values must be there."""
    disk = SimulatedDisk(seed)
    bed = CleanerBed(open_set(disk, config=COMPACT))
    log = make(bed.logs)
    for number in range(60):
        put_keys(log, (b"%d" % (number % 7), b"%d" % number))
    drain(bed.logs)
    assert bed.choose() is None, "this requests the checkpoint"
    drain(bed.logs)
    cleaning = bed.choose()
    assert cleaning is not None
    bed.run(cleaning)
    end_offset = log.segments.active.base_offset
    expected = {one.key: one.value for one in records_of(log) if one.offset < end_offset}
    if seed % 2:
        drain(bed.logs)
    else:
        disk.sync("a-0")
    disk.crash()
    again = open_set(disk, config=COMPACT).get(A)
    found = [] if again is None else records_of(again)
    return {one.key: one.value for one in found if one.offset < end_offset} != expected


def _copied_remotely(seed: int) -> tuple[SimulatedDisk, DirectoryStorage]:
    disk = SimulatedDisk(seed)
    storage = storage_of(disk, **{"cluster.id": "c"})
    storage.copy_segment(segment_of(), files_of(SimulatedDisk()))
    return disk, storage


def _remote_segment_is_lost(seed: int) -> bool:
    disk, _ = _copied_remotely(seed)
    copied = {path: disk.content(path) for path in disk.files()}
    disk.crash()
    return {path: disk.content(path) for path in disk.files()} != copied


def _remote_storage_is_another_clusters(seed: int) -> bool:
    disk, _ = _copied_remotely(seed)
    disk.crash()
    try:
        storage_of(disk, **{"cluster.id": "c"})
    except ConfigError:
        return True
    return False


def _remote_segment_returns(seed: int) -> bool:
    disk, storage = _copied_remotely(seed)
    storage.delete_segment(segment_of())
    disk.crash()
    return any(path.startswith(ROOT) for path in disk.files())


@pytest.mark.conformance
def _remote_state_is_lost(seed: int) -> bool:
    disk = SimulatedDisk(seed)
    log = new_log(disk)
    send(log, 1, 0)
    flush(log)
    held = disk.open_directory(log.name)
    epochs = LeaderEpochs([EpochEntry(1, 0), EpochEntry(3, 5)])
    write_remote_state(held, 20, b"snapshot", epochs)
    held.close()
    disk.crash()
    path = log.producer_state.snapshot_path(20)
    found = disk.content(path) if disk.exists(path) else b""
    return found != b"snapshot" or disk.content("t-0/leader-epoch-checkpoint") != epochs.encode()


def _rebuilt_snapshot_is_lost(seed: int) -> bool:
    disk = SimulatedDisk(seed)
    log = new_log(disk)
    for number in range(20):
        send(log, 2, number)
    log.update_high_watermark(log.log_end_offset)
    flush(log)
    path = log.producer_state.snapshot_path(log.segments.base_offsets[1])
    expected = disk.content(path)
    disk.remove(path)
    disk.sync("t-0")
    candidate = next_candidate(log, -1)
    assert candidate is not None
    candidate.read()
    disk.crash()
    return not disk.exists(path) or disk.content(path) != expected


@pytest.mark.parametrize(
    ("place", "fails"),
    [
        (OPENED, _marker_returns),
        (IDENTIFIED, _directory_id_changes),
        (CLEANED, _compacted_is_lost),
        (CLEANED_CHECKPOINT, _compacted_is_lost),
        (CHECKPOINT, _checkpoint_is_lost),
        (LOWERED, _lowered_point_rises),
        (PRODUCERS, _producer_is_forgotten),
        (SNAPSHOT, _snapshot_is_lost),
        (FETCHED, _fetched_snapshot_is_lost),
        (FETCHED_NAME, _fetched_snapshot_is_lost),
        (TRANSACTIONS, _aborts_are_lost),
        (REPAIR_CHECKPOINTS, _recovery_point_returns),
        (REPAIR_MARKER, _marker_of_repair_returns),
        (REPAIR_LOG, _damage_returns),
        (REPAIR_NAMES, _removed_segments_return),
        (TRUNCATED, _truncation_has_gaps),
        (REMOTE_STATE, _remote_state_is_lost),
        (REBUILT_SNAPSHOT, _rebuilt_snapshot_is_lost),
        (REMOTE_ROOT, _remote_segment_is_lost),
        (REMOTE_MARKER, _remote_storage_is_another_clusters),
        (REMOTE_FILE, _remote_segment_is_lost),
        (REMOTE_NAMES, _remote_segment_is_lost),
        (REMOTE_PARTITION, _remote_segment_is_lost),
        (REMOTE_REMOVED, _remote_segment_returns),
    ],
)
def test_a_power_cut_after_a_call_shows_a_missing_sync(
    place: str, fails: Callable[[int], bool]
) -> None:
    """What a call made durable survives with the sync, and not always without it."""
    assert not any(fails(seed) for seed in range(12))
    with sweep.without_sync(place):
        assert any(fails(seed) for seed in range(12))
