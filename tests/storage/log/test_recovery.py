"""What is found in a partition's directory, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.errors import CorruptMessage
from ottla.records.builder import encode_batch
from ottla.storage.batches import walk_file, whole_batches
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.testing.disk import Call, SimulatedDisk
from tests.storage.logs import NOW_MS, SMALL, close, content, flush, new_log, put, send


def filled(disk: SimulatedDisk, batches: int = 30) -> None:
    log = new_log(disk)
    for number in range(batches):
        send(log, 1, number, timestamp=NOW_MS + number)
    close(log)


def files(disk: SimulatedDisk) -> dict[str, bytes]:
    return {name: disk.read_file(f"t-0/{name}") for name in disk.list("t-0")}


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "checkpoint"])
@pytest.mark.parametrize("clean", [True, False])
def test_missing_files_are_made_again(suffix: str, clean: bool) -> None:  # noqa: FBT001 - a table
    """Each derived file, missing everywhere, comes back with the same bytes."""
    disk = SimulatedDisk()
    filled(disk)
    before = files(disk)
    for name in before:
        if name.endswith(suffix):
            disk.remove(f"t-0/{name}")
    log = new_log(disk, clean=clean)
    assert log.log_end_offset == 30
    assert log.producer_state.producers[1].last_sequence == 29
    close(log)
    after = files(disk)
    if suffix == ".snapshot":
        before = {name: data for name, data in before.items() if name in after}
        assert len([name for name in after if name.endswith(suffix)]) >= 2
    assert after == before


@pytest.mark.parametrize("garbage", [b"", b"\0" * 240, b"\xff" * 16, b"\x01" * 7])
def test_lying_indexes_are_rebuilt(garbage: bytes) -> None:
    """Whatever an index file says, every offset and timestamp is found."""
    disk = SimulatedDisk()
    filled(disk)
    for name in disk.list("t-0"):
        if name.endswith(".index"):
            file = disk.open(f"t-0/{name}")
            file.truncate(0)
            file.write_at(0, garbage)
    log = new_log(disk, clean=True)
    for offset in range(30):
        header = whole_batches(content(log.reads.read(offset, 1).records))[0]
        assert header.base_offset == offset
        found = log.reads.offset_for_timestamp(NOW_MS + offset)
        assert found is not None
        assert found.offset == offset
    assert put(log).first_offset == 30


def test_the_torn_tail_is_cut_at_every_byte() -> None:
    """Wherever the last segment ends, its whole batches stay and appends go on behind them."""
    disk = SimulatedDisk()
    filled(disk, 5)
    path = "t-0/00000000000000000000.log"
    data = disk.read_file(path)
    ends = [header.position + header.size for header in whole_batches(data)]
    for size in range(len(data)):
        disk = SimulatedDisk()
        disk.make("t-0")
        disk.open(path, create=True).append([data[:size]])
        log = new_log(disk)
        whole = sum(1 for end in ends if end <= size)
        assert log.log_end_offset == whole
        assert put(log).first_offset == whole


def test_a_flipped_bit_ends_the_log_there() -> None:
    """A wrong checksum behind the recovery point cuts the log; later segments go with it."""
    disk = SimulatedDisk()
    filled(disk)
    name = next(name for name in disk.list("t-0")[5:] if name.endswith(".log"))
    disk.open(f"t-0/{name}").write_at(64, b"\xee")
    log = new_log(disk)
    assert log.log_end_offset == int(name[:20])
    assert log.truncated_bytes > 0
    assert log.segments.active.base_offset == int(name[:20])


def test_flushed_segments_are_not_read_again() -> None:
    """Recovery reads from the recovery point on and nothing before it."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(60):
        send(log, 1, number)
        if number == 50:
            flush(log)
    reads: list[str] = []

    def spy(call: Call) -> bool:
        if call.kind == "read":
            reads.append(call.path)
        return False

    disk.fail(spy)
    new_log(disk, recovery_point=51)
    first = f"t-0/{log.segments[0].base_offset:020d}.log"
    assert first not in reads


def test_a_clean_start_touches_no_idle_index() -> None:
    """KAFKA-9373: opening and closing reads and writes only the newest segment's index."""
    disk = SimulatedDisk()
    filled(disk, 60)
    disk.trace = []
    reads: list[str] = []

    def spy(call: Call) -> bool:
        if call.kind == "read":
            reads.append(call.path)
        return False

    disk.fail(spy)
    log = new_log(disk, clean=True)
    newest = f"{log.segments.active.base_offset:020d}"
    close(log)
    touched = {path for path in reads if path.endswith("index")}
    assert all(newest in path for path in touched)
    assert not [call for call in disk.trace if call.path.endswith("index")]


def test_an_empty_active_segment_without_its_index() -> None:
    """KAFKA-13603: nothing is corrupt about it."""
    disk = SimulatedDisk()
    log = new_log(disk)
    put(log)
    log.roll(NOW_MS)
    close(log)
    disk.remove("t-0/00000000000000000001.index")
    log = new_log(disk, clean=True)
    assert put(log).first_offset == 1
    close(log)
    assert new_log(disk, clean=True).log_end_offset == 2


def test_orphaned_and_deleted_files_go() -> None:
    """Indexes without a log, `.deleted`, `.cleaned` and half files are removed at start."""
    disk = SimulatedDisk()
    filled(disk, 5)
    strays = [
        "00000000000000000099.index",
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    ]
    for name in strays:
        disk.open(f"t-0/{name}", create=True)
    new_log(disk, clean=True)
    assert not set(strays) & set(disk.list("t-0"))


def test_a_swap_is_finished_and_keeps_producers() -> None:
    """KAFKA-12520: the compacted segment takes its place, sequences are not forgotten."""
    disk = SimulatedDisk()
    log = new_log(disk, config=LogConfig())
    send(log, 1, 0)
    send(log, 2, 7)  # its only batch is compacted away
    for number in range(1, 11):
        send(log, 1, number)
    log.roll(NOW_MS)
    send(log, 1, 11)
    close(log)
    data = disk.read_file("t-0/00000000000000000000.log")
    first, *_, last = whole_batches(data)
    kept = data[: first.size] + data[last.position :]
    for suffix, content_ in ((".log", kept), (".index", b""), (".timeindex", b"")):
        disk.open(f"t-0/00000000000000000000{suffix}.swap", create=True).append([content_])
    log = new_log(disk, clean=True)
    assert not [name for name in disk.list("t-0") if name.endswith(".swap")]
    assert log.segments[0].size == len(kept)
    assert log.log_end_offset == 13
    assert log.producer_state.producers[1].last_sequence == 11
    assert log.producer_state.producers[2].last_sequence == 7
    assert send(log, 2, 8).first_offset == 13


def test_a_start_above_the_end_begins_again() -> None:
    """When the checkpointed start lies above all data, the log is empty and begins there."""
    disk = SimulatedDisk()
    filled(disk, 5)
    log = new_log(disk, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert put(log).first_offset == 50
    assert log.leader_epochs.entries == [(0, 50)]


def test_unflushed_index_entries_are_no_loss() -> None:
    """Entries wait in memory; a killed process recovers them from the batches."""
    disk = SimulatedDisk()
    log = new_log(disk, config=SMALL)
    for _ in range(5):
        put(log)
    assert disk.read_file(log.segments.active.offset_index.path).strip(b"\0") == b""
    disk.kill()
    again = new_log(disk)
    assert again.segments.active.offset_index.count > 0


def test_an_epoch_that_is_only_in_the_checkpoint_takes_no_older_one_with_it() -> None:
    """What was flushed early may say more than the log: from the contradiction on it goes."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for _ in range(10):
        put(log, epoch=0)
    flush(log)
    disk.write_file_atomically("t-0/leader-epoch-checkpoint", b"0\n2\n0 0\n1 5\n")
    disk.kill()
    assert new_log(disk).leader_epochs.entries == [(0, 0)]


def test_what_a_killed_process_wrote_is_synced_by_the_next_flush() -> None:
    """Also by one up to the active segment: the bytes may be on no disk yet."""
    disk = SimulatedDisk()
    put(new_log(disk))
    disk.kill()
    log = new_log(disk)
    job = log.flushes.start(is_whole=False)
    assert job is not None
    assert log.segments.active.file in job.files


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    return {
        name: disk.read_file(f"t-0/{name}") for name in disk.list("t-0") if name.endswith(".log")
    }


@pytest.mark.parametrize("clean", [False, True])
def test_damage_below_the_recovery_point_is_not_cut(clean: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """Whichever batch of the segment that recovery reads; at or above it the log is cut."""
    for number in range(8):
        disk = SimulatedDisk()
        log = new_log(disk, config=LogConfig())
        for _ in range(8):
            put(log)
        close(log)
        file = disk.open("t-0/00000000000000000000.log")
        position = list(walk_file(file, 0, file.size()))[number].position
        file.write_at(position + 64, b"\xee")
        if clean:  # a broken transaction index makes the segment be read
            disk.write_file_atomically("t-0/00000000000000000000.txnindex", b"torn")
        before = contents(disk)
        for recovery_point in range(9):
            if number < recovery_point or clean:
                with pytest.raises(CorruptMessage, match=rf"at byte {position} \(offset {number}"):
                    new_log(disk, config=LogConfig(), recovery_point=recovery_point, clean=clean)
                assert contents(disk) == before
        if not clean:
            assert new_log(disk, recovery_point=number).log_end_offset == number


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_that_ends_below_its_recovery_point_is_damaged(clean: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """Its last segments are missing, all of them are, or the last one is shorter."""
    for kept in range(3):
        disk = SimulatedDisk()
        filled(disk)
        segments = [name for name in disk.list("t-0") if name.endswith(".log")]
        for name in segments[kept:]:
            disk.remove(f"t-0/{name}")
        with pytest.raises(CorruptMessage, match="below offset 30 was flushed"):
            new_log(disk, recovery_point=30, clean=clean)
        assert [name for name in disk.list("t-0") if name.endswith(".log")] == segments[:kept]
    disk = SimulatedDisk()
    filled(disk, 1)
    disk.open("t-0/00000000000000000000.log").truncate(0)
    with pytest.raises(CorruptMessage, match="ends at offset 0"):
        new_log(disk, recovery_point=1, clean=clean)
    assert new_log(disk, recovery_point=1, log_start_offset=1).log_end_offset == 1


def test_a_missing_segment_below_the_recovery_point_drops_no_other() -> None:
    """Above it the segments after the gap are torn writes."""
    disk = SimulatedDisk()
    filled(disk)
    bases = [int(name[:20]) for name in disk.list("t-0") if name.endswith(".log")]
    disk.remove(f"t-0/{bases[-2]:020d}.log")
    before = contents(disk)
    with pytest.raises(CorruptMessage, match=f"no records from offset {bases[-2]} to"):
        new_log(disk, recovery_point=bases[-2] + 1)
    assert contents(disk) == before
    assert new_log(disk, recovery_point=bases[-2]).log_end_offset == bases[-2]


def test_a_compacted_log_keeps_gaps_of_compaction_only() -> None:
    """Above the recovery point a gap is of records that lost power: what follows is torn, too."""
    config = replace(SMALL, cleanup_policy=("compact",))
    disk = SimulatedDisk()
    filled(disk)
    bases = [int(name[:20]) for name in disk.list("t-0") if name.endswith(".log")]
    disk.open(f"t-0/{bases[-2]:020d}.log").truncate(0)
    kept = new_log(disk, config=config, recovery_point=bases[-2] + 1)
    assert kept.log_end_offset == 30
    kept.release()
    assert new_log(disk, config=config, recovery_point=bases[-2]).log_end_offset == bases[-2]


def test_a_copy_with_gaps_has_none_between_its_segments() -> None:
    """A follower of a compacted log loses nothing when it is killed."""
    config = replace(SMALL, cleanup_policy=("compact",), segment_bytes=200)
    disk = SimulatedDisk()
    log = new_log(disk, config=config)
    for offset in (0, 100, 200):
        batch = encode_batch([(NOW_MS, b"k", bytes(100), ())], base_offset=offset)
        log.writes.append_as_follower(batch, leader_epoch=0, now_ms=NOW_MS)
    assert log.segments.base_offsets == [0, 1, 101]
    assert new_log(disk, config=config).log_end_offset == 201


def test_recovery_reads_the_segments_from_the_recovery_point_on() -> None:
    """Each is counted as it is read; a clean start reads none."""
    disk = SimulatedDisk()
    filled(disk)
    bases = [int(name[:20]) for name in disk.list("t-0") if name.endswith(".log")]
    assert len(bases) > 2
    for recovery_point, clean, count in (
        (0, False, len(bases)),
        (bases[-2], False, 2),
        (30, True, 0),
    ):
        counts: list[int] = []
        log = PartitionLog.open(
            disk,
            "t-0",
            config=SMALL,
            now_ms=NOW_MS,
            recovery_point=recovery_point,
            clean=clean,
            on_remaining_segments=counts.append,
        )
        assert counts == [*range(count, 0, -1), 0]
        close(log)
