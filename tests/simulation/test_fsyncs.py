"""Each fsync of the source is needed: a test notices when it does nothing.

`scripts/simulate --syncs` finds the places and the runs that notice them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.snapshot import encode_snapshot
from ottla.storage.directories.checkpoints import RECOVERY_POINT_CHECKPOINT, decode_offsets
from ottla.storage.directories.log_dir import CLEAN_MARKER, LogDirectory
from ottla.testing.disk import SimulatedDisk
from ottla.testing.simulation import sweep
from ottla.types import OffsetAndEpoch
from tests.storage.logs import NOW_MS, flush, new_log, put, send
from tests.storage.sets import A, drain, make, open_set

if TYPE_CHECKING:
    from collections.abc import Callable

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
    "RECOVERY_POINT_PATH, encode_offsets({_PARTITION: offset}))": 66,
}
"""By place: a file operation of the sweep at which a power cut shows it, tried first."""
NOTICED_BY_SEED = {"FlushJob._run: self.directory.sync()": 3}
OPENED = "LogDirectory.open: directory.sync()"
CHECKPOINT = "CheckpointJob.run_now: self._log_dir.directory.sync()"
PRODUCERS = "FlushJob._run: open_directory.sync_file(name)"
SNAPSHOT = (
    "ReplicatedLog.snapshot_writer.<locals>.write: "
    'directory.write_file_atomically(path, b"".join(parts), mode=SNAPSHOT_MODE)'
)


def test_every_sync_of_a_workload_is_in_the_tables() -> None:
    """A new fsync needs a run or a test that notices its absence."""
    found = sweep.sync_places(3)
    assert found <= {
        *NOTICED_BY_OPERATION,
        *NOTICED_BY_SEED,
        OPENED,
        CHECKPOINT,
        PRODUCERS,
        SNAPSHOT,
    }
    assert len(found) > 10


@pytest.mark.parametrize("place", NOTICED_BY_OPERATION)
def test_a_power_cut_shows_a_missing_sync(place: str) -> None:
    """A promise breaks without the sync; with it the same run passes."""
    first = NOTICED_BY_OPERATION[place]
    nearest = sorted(range(1, 2 * first), key=lambda operation: abs(operation - first))
    shown_at = next(one for one in nearest if sweep.is_noticed_at(place, one))
    sweep.crash_at(0, shown_at, power=True)


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


@pytest.mark.parametrize(
    ("place", "fails"),
    [
        (OPENED, _marker_returns),
        (CHECKPOINT, _checkpoint_is_lost),
        (PRODUCERS, _producer_is_forgotten),
        (SNAPSHOT, _snapshot_is_lost),
    ],
)
def test_a_power_cut_after_a_call_shows_a_missing_sync(
    place: str, fails: Callable[[int], bool]
) -> None:
    """What a call made durable survives with the sync, and not always without it."""
    assert not any(fails(seed) for seed in range(12))
    with sweep.without_sync(place):
        assert any(fails(seed) for seed in range(12))
